"""`RemoteRunner`: a runner in another process, as a `RunnerApi`.

    async with connected_runner(home / "runner.sock") as runner:
        async with Hub(options, runner) as hub: ...

Reads of state come from the mirror and do not wait. Commands and other reads are calls over the
link. What `RunnerApi` promises holds: news arrive in order, in the step that applies them to the
state, and a log has no gap between what was read and what is live.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import anyio
import msgspec
from msgspec import UNSET

from quarterdeck.errors import RequestRejected
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentSnapshotWire,
    EnvelopeEndpoint,
    Event,
    HostElicitationSnapshot,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    SessionSnapshotWire,
    TransportSubscribeParams,
    TransportUnsubscribe,
    to_json,
)
from quarterdeck.runner.actor import PROGRAM, Actor, not_found
from quarterdeck.runner.api import (
    News,
    OnHead,
    OnNews,
    PermissionView,
    RequestUpdated,
    RunnerApi,
    RunnerHealth,
    Unsubscribe,
)
from quarterdeck.runner.link.connection import RunnerConnection
from quarterdeck.runner.link.messages import (
    RunnerIdentity,
    RunnerSettings,
    method_shape,
    plain,
    typed,
)
from quarterdeck.runner.link.remote_log import LogIterator, RemoteLog
from quarterdeck.runner.link.transport import RunnerAddress
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.sessions.catalogue import SessionOverview
from quarterdeck.storage import LogEpoch
from quarterdeck.wire import IndependentTasks, background_tasks

_P = ParamSpec("_P")
_R = TypeVar("_R")


READ_SECONDS: Final = 4.0
"""For a list that is up to date; after that it is what this side knows."""


def _call(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[RemoteRunner, _P], Coroutine[Any, Any, _R]]:
    """Return a method of `RunnerApi` that is carried out by the runner."""
    signature = inspect.signature(method)
    name = method.__name__

    @wraps(method)
    async def call(self: RemoteRunner, /, *arguments: _P.args, **keywords: _P.kwargs) -> _R:
        given = signature.bind(self, *arguments, **keywords).arguments
        params = {each: plain(value) for each, value in given.items() if each != "self"}
        shape = method_shape(name)
        value = await self.connection.call(name, params)
        read: _R = _read_events(value) if shape.returns_bytes else read_result(value, shape.result)
        return read

    return call


def _read_events(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, bytes) for each in value):
        raise RequestRejected("failed", "the runner sent an answer that cannot be read")
    return value


def read_result(value: Any, hint: Any) -> Any:
    """Return the result of a call as its type.

    Raises:
        RequestRejected: if it is of another one: the runner has another version, or has failed.
    """
    try:
        return typed(value, hint)
    except msgspec.ValidationError as error:
        message = f"the runner sent an answer that cannot be read: {error}"
        raise RequestRejected("failed", message) from error


class RemoteRunner:
    """A runner in another process; implements `RunnerApi`."""

    def __init__(self, connection: RunnerConnection, tasks: IndependentTasks) -> None:
        self.connection = connection
        self._tasks = tasks
        self._endpoint = RemoteEndpoint(connection, tasks)
        self._queued = 0

    @property
    def identity(self) -> RunnerIdentity:
        """Which runner this is; another one after a restart."""
        return self.connection.identity

    # ---- state -----------------------------------------------------------------------------

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        return self.connection.subscribe_news(on_news)

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        return self.connection.subscribe_heads(on_head)

    def agents(self) -> list[AgentSnapshotWire]:
        return [entry.agent for entry in self.connection.mirror.agents.values()]

    def agent(self, agent_id: str) -> AgentSnapshotWire | None:
        entry = self.connection.mirror.agents.get(agent_id)
        return None if entry is None else entry.agent

    def agent_name(self, agent_id: str) -> str | None:
        entry = self.connection.mirror.agents.get(agent_id)
        return None if entry is None else entry.name

    def sessions(self) -> list[SessionOverview]:
        return self.connection.mirror.all_sessions()

    def session(self, session_id: str) -> SessionOverview:
        found = self.find_session(session_id)
        if found is None:
            raise not_found(f"session {session_id!r}", "check its id in the list of sessions")
        return found

    def find_session(self, session_id: str) -> SessionOverview | None:
        return self.connection.mirror.find(session_id)

    def session_snapshots(self) -> list[SessionSnapshotWire]:
        return self.connection.mirror.live_sessions()

    def session_snapshot(self, session_id: str) -> SessionSnapshotWire | None:
        entry = self.connection.mirror.sessions.get(session_id)
        return None if entry is None else entry.live

    def last_seq(self, session_id: str) -> int:
        return self.connection.mirror.heads.get(session_id, 0)

    def pending_permissions(self) -> list[PermissionView]:
        return list(self.connection.mirror.permissions.values())

    def pending_permission(self, request_id: str) -> PermissionView | None:
        return self.connection.mirror.permissions.get(request_id)

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        return self.connection.mirror.pending_elicitations()

    def elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        return self.connection.mirror.elicitations.get(request_id)

    def health(self) -> RunnerHealth:
        return self.connection.mirror.health

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        del session_id  # all are in one log
        return self.connection.mirror.log_epoch

    def unconfirmed_epoch(self) -> LogEpoch | None:
        return self.connection.mirror.unconfirmed_epoch

    def host_epoch(self) -> str:
        return self.connection.mirror.host_epoch

    def policy(self) -> Policy:
        return self.connection.mirror.policy

    # ---- the log ---------------------------------------------------------------------------

    async def open_log(self, session_id: str | None) -> RemoteLog:
        return await self.connection.open_log(session_id)

    async def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[Event]:
        log = await self.connection.open_log(session_id)
        async for event in LogIterator(log).after(from_seq):
            yield event

    @property
    def endpoint(self) -> EnvelopeEndpoint:
        return self._endpoint

    async def take_back(
        self, session_id: str, events: Sequence[bytes], *, by: Actor = PROGRAM
    ) -> None:
        params = {"session_id": session_id, "by": plain(by)}
        await self.connection.call("take_back", params, events)

    log_heads = _call(RunnerApi.log_heads)
    compare_heads = _call(RunnerApi.compare_heads)
    stop_diverged = _call(RunnerApi.stop_diverged)
    confirm_heads = _call(RunnerApi.confirm_heads)
    compact = _call(RunnerApi.compact)
    read_events = _call(RunnerApi.read_events)

    # ---- agents ----------------------------------------------------------------------------

    knows_agent = _call(RunnerApi.knows_agent)
    known_agents = _call(RunnerApi.known_agents)
    list_mcp_servers = _call(RunnerApi.list_mcp_servers)
    agent_confinement = _call(RunnerApi.agent_confinement)
    start_agent = _call(RunnerApi.start_agent)
    spawn_agent = _call(RunnerApi.spawn_agent)
    stop_agent = _call(RunnerApi.stop_agent)
    authenticate = _call(RunnerApi.authenticate)
    logout = _call(RunnerApi.logout)
    agent_offers = _call(RunnerApi.agent_offers)
    auth_status = _call(RunnerApi.auth_status)
    list_providers = _call(RunnerApi.list_providers)
    set_provider = _call(RunnerApi.set_provider)
    disable_provider = _call(RunnerApi.disable_provider)
    foreign_programs = _call(RunnerApi.foreign_programs)
    adopt_program = _call(RunnerApi.adopt_program)
    release_program = _call(RunnerApi.release_program)
    foreign_sessions = _call(RunnerApi.foreign_sessions)
    adopt_session = _call(RunnerApi.adopt_session)
    agent_sessions = _call(RunnerApi.agent_sessions)
    install_agent = _call(RunnerApi.install_agent)
    remove_agent = _call(RunnerApi.remove_agent)
    install_jobs = _call(RunnerApi.install_jobs)
    refresh_registry = _call(RunnerApi.refresh_registry)
    sign_in_methods = _call(RunnerApi.sign_in_methods)
    begin_sign_in = _call(RunnerApi.begin_sign_in)
    sign_in_output = _call(RunnerApi.sign_in_output)
    send_sign_in_input = _call(RunnerApi.send_sign_in_input)
    cancel_sign_in = _call(RunnerApi.cancel_sign_in)

    # ---- sessions --------------------------------------------------------------------------

    async def _read(self, method: str, params: dict[str, Any]) -> Any:
        """Call; return None if the runner does not answer: then what is known here must do."""
        with anyio.move_on_after(READ_SECONDS):
            try:
                return await self.connection.call(method, params)
            except RequestRejected:
                if self.health().is_connected:
                    raise
        return None

    async def list_sessions(self) -> list[SessionOverview]:
        found = await self._read("list_sessions", {})
        if found is None:
            return self.sessions()
        sessions: list[SessionOverview] = read_result(found, list[SessionOverview])
        for each in sessions:
            self.connection.mirror.take(each)
        return sessions

    async def show_session(self, session_id: str) -> SessionOverview:
        found = await self._read("show_session", {"session_id": session_id})
        if found is None:
            return self.session(session_id)
        session: SessionOverview = read_result(found, SessionOverview)
        self.connection.mirror.take(session)
        return session

    create_session = _call(RunnerApi.create_session)
    load_session = _call(RunnerApi.load_session)
    resume_session = _call(RunnerApi.resume_session)
    fork_session = _call(RunnerApi.fork_session)
    stored_servers = _call(RunnerApi.stored_servers)
    ensure_active = _call(RunnerApi.ensure_active)
    close_session = _call(RunnerApi.close_session)
    delete_session = _call(RunnerApi.delete_session)
    cancel_turn = _call(RunnerApi.cancel_turn)
    cancel_tool_call = _call(RunnerApi.cancel_tool_call)
    cancel_terminal = _call(RunnerApi.cancel_terminal)
    end_agent = _call(RunnerApi.end_agent)
    set_mode = _call(RunnerApi.set_mode)
    set_option = _call(RunnerApi.set_option)
    set_title = _call(RunnerApi.set_title)
    set_archived = _call(RunnerApi.set_archived)
    session_status = _call(RunnerApi.session_status)
    execute_context_command = _call(RunnerApi.execute_context_command)
    context_capabilities = _call(RunnerApi.context_capabilities)
    context_sessions = _call(RunnerApi.context_sessions)

    # ---- prompts and requests --------------------------------------------------------------

    add_prompt = _call(RunnerApi.add_prompt)
    edit_prompt = _call(RunnerApi.edit_prompt)
    cancel_prompt = _call(RunnerApi.cancel_prompt)
    get_prompt = _call(RunnerApi.get_prompt)
    list_prompts = _call(RunnerApi.list_prompts)
    wait_prompt = _call(RunnerApi.wait_prompt)

    async def count_queued_prompts(self) -> int:
        found = await self._read("count_queued_prompts", {})
        self._queued = self._queued if found is None else read_result(found, int)
        return self._queued

    answer_permission = _call(RunnerApi.answer_permission)
    answer_elicitation = _call(RunnerApi.answer_elicitation)
    answer_request = _call(RunnerApi.answer_request)
    list_decisions = _call(RunnerApi.list_decisions)

    def report_removed_meta(
        self, session_id: str | None, *, scope: str, by: Actor = PROGRAM
    ) -> None:
        params = {"session_id": session_id, "scope": scope, "by": plain(by)}
        self.connection.send_command("report_removed_meta", params)

    # ---- workspaces ------------------------------------------------------------------------

    list_folder = _call(RunnerApi.list_folder)
    find_files = _call(RunnerApi.find_files)

    # ---- policy and configuration ----------------------------------------------------------

    def set_policy(self, policy: Policy) -> None:
        self.connection.mirror.policy = policy
        self.connection.send_command("set_policy", {"policy": plain(policy)})

    def reconfigure(self, options: RunnerOptions) -> None:
        self.connection.mirror.policy = options.policy
        self.connection.send_command("reconfigure", plain(RunnerSettings.of(options)))

    # ---- the end of a runner ---------------------------------------------------------------

    drain = _call(RunnerApi.drain)
    resume_turns = _call(RunnerApi.resume_turns)

    async def shut_down(self, *, by: Actor = PROGRAM) -> None:
        """Have the runner's process end, as on SIGTERM.

        Raises:
            RequestRejected: if the runner is too old for that.
        """
        if not self.connection.offers("shut-down"):
            message = f"this runner cannot be ended this way; end it: kill {self.identity.pid}"
            raise RequestRejected("unsupported", message)
        await self.connection.call("shut_down", {"by": plain(by)})


class RemoteEndpoint:
    """The envelopes of seed 003 over the link; an `EnvelopeEndpoint`."""

    def __init__(self, connection: RunnerConnection, tasks: IndependentTasks) -> None:
        self._connection = connection
        self._tasks = tasks

    @property
    def log_epoch(self) -> str:
        """The epoch of the runner's log."""
        return self._connection.mirror.log_epoch.id

    async def request(self, request: RpcRequest) -> RpcResponse:
        """Run a method and return its response."""
        answer = await self._connection.call("endpoint_request", to_json(request))
        response: RpcResponse = read_result(answer, RpcResponse)
        return response

    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe:
        """Subscribe to a stream; events come as they arrive."""
        session_id = None if params.session_id is UNSET else params.session_id
        scope = anyio.CancelScope()
        self._tasks.start_soon(self._follow, scope, session_id, params.from_seq, on_event)
        return scope.cancel

    async def _follow(
        self,
        scope: anyio.CancelScope,
        session_id: str | None,
        from_seq: int,
        on_event: Callable[[Event], None],
    ) -> None:
        with scope:
            log = await self._connection.open_log(session_id)
            async for event in LogIterator(log).after(from_seq):
                on_event(event)

    def on_inbound_request(self, handler: Callable[[InboundRequest], None]) -> TransportUnsubscribe:
        """Call `handler` with each request: pending ones before this returns, then new ones."""
        given: set[str] = set()

        def give(kind: str, request_id: str, pending: Any) -> None:
            if request_id not in given:
                given.add(request_id)
                payload: Mapping[str, Any] = to_json(pending)
                handler(InboundRequest(id=request_id, kind=kind, payload=payload))

        def on_news(news: News) -> None:
            if not isinstance(news, RequestUpdated):
                return
            if news.status != "pending":
                given.discard(news.request_id)
                return
            mirror = self._connection.mirror
            if news.kind == "permission":
                pending: Any = mirror.permissions.get(news.request_id)
                pending = None if pending is None else pending.request
            else:
                pending = mirror.elicitations.get(news.request_id)
            if pending is not None:
                give(news.kind, news.request_id, pending)

        unsubscribe = self._connection.subscribe_news(on_news)
        for permission in tuple(self._connection.mirror.permissions.values()):
            give("permission", permission.request.request_id, permission.request)
        for elicitation in self._connection.mirror.pending_elicitations():
            give("elicitation", elicitation.request_id, elicitation)
        return unsubscribe

    async def respond_inbound(self, response: InboundResponse) -> None:
        """Answer an inbound request.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if the answer is invalid.
        """
        await self._connection.call("endpoint_respond", to_json(response))


@asynccontextmanager
async def connected_runner(address: Path | RunnerAddress) -> AsyncIterator[RemoteRunner]:
    """Connect to the runner at a Unix socket or a WebSocket, and keep connected in the body.

    Raises:
        StartRefused: if there is none, or it does not accept this hub.
    """
    connection = RunnerConnection(address)
    async with connection.open(), background_tasks() as tasks:
        yield RemoteRunner(connection, IndependentTasks(tasks))

"""`TranslatedRunner`: a runner whose ids are those of the hub (`identifiers`); a `RunnerApi`.

Ids are translated on the way in by the names of parameters, and on the way out by the names of
fields. Everything else is passed on as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from typing_extensions import override

from quarterdeck.hub.fleet.identifiers import MachineIds
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentSnapshotWire,
    EnvelopeEndpoint,
    Event,
    HostElicitationSnapshot,
    SessionSnapshotWire,
)
from quarterdeck.runner import (
    PROGRAM,
    Actor,
    LogSource,
    PermissionView,
    RunnerApi,
    RunnerHealth,
    RunnerOptions,
    SessionOverview,
)
from quarterdeck.runner.link import LogIterator, RunSubscriber
from quarterdeck.storage import LogEpoch

_P = ParamSpec("_P")
_R = TypeVar("_R")
ID_PARAMETERS: Final = ("session_id", "request_id", "agent_id", "name", "agent")
"""Parameters that say which machine a command is for. Agents are started by `name`; with the hub's
spelling, a name belongs to a machine as well."""

OnNews = Callable[[Any], None]
OnHead = Callable[[str, int], None]
Unsubscribe = Callable[[], None]


@cache
def signature_of(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)


def translating(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[TranslatedRunner, _P], Coroutine[Any, Any, _R]]:
    """Return a method of `RunnerApi` that takes and returns the hub's ids."""
    name = method.__name__

    @wraps(method)
    async def call(self: TranslatedRunner, /, *arguments: _P.args, **keywords: _P.kwargs) -> _R:
        given = dict(signature_of(method).bind(self, *arguments, **keywords).arguments)
        del given["self"]
        result: _R = await self.perform(name, self.inner_parameters(given))
        return result

    return call


class PassedLog:
    """A log that is passed on as it is; a `LogSource`."""

    def __init__(self, source: LogSource) -> None:
        self._source = source

    @property
    def head(self) -> int:
        return self._source.head

    @property
    def first(self) -> int:
        return self._source.first

    @property
    def has_ended(self) -> bool:
        return self._source.has_ended

    @property
    def was_closed(self) -> bool:
        return self._source.was_closed

    async def read(self, after: int, limit: int) -> list[bytes]:
        return await self._source.read(after, limit)

    def subscribe(self, subscriber: RunSubscriber) -> Unsubscribe:
        return self._source.subscribe(subscriber)


class TranslatedLog(PassedLog):
    """A log with the hub's ids."""

    def __init__(self, source: LogSource, session_id: str, ids: MachineIds) -> None:
        super().__init__(source)
        self._session_id = session_id
        self._ids = ids

    @override
    async def read(self, after: int, limit: int) -> list[bytes]:
        return self.translated(await self._source.read(after, limit))

    def translated(self, events: Sequence[bytes]) -> list[bytes]:
        return [self._ids.session_event(self._session_id, each) for each in events]

    @override
    def subscribe(self, subscriber: RunSubscriber) -> Unsubscribe:
        return self._source.subscribe(_TranslatedSubscriber(self, subscriber))


class _TranslatedSubscriber:
    def __init__(self, log: TranslatedLog, subscriber: RunSubscriber) -> None:
        self._log = log
        self._subscriber = subscriber
        self.on_skipped = subscriber.on_skipped
        self.on_ended = subscriber.on_ended

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._subscriber.on_published(last_seq, self._log.translated(encoded))


class TranslatedRunner:
    """A runner of one machine, by the hub's ids; implements `RunnerApi`."""

    def __init__(self, runner: RunnerApi, machine_id: str) -> None:
        self.machine_id = machine_id
        self.ids = MachineIds(machine_id)
        self.runner = runner

    def inner_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters with the ids of the machine."""
        inner = dict(given)
        for name in ID_PARAMETERS:
            if isinstance(inner.get(name), str):
                inner[name] = self.ids.inner(inner[name])
        if "session_ids" in inner:
            inner["session_ids"] = [self.ids.inner(each) for each in inner["session_ids"]]
        return inner

    async def perform(self, method: str, params: dict[str, Any]) -> Any:
        """Carry out a call with the ids of the machine; return its result with the hub's."""
        return self.ids.translated(await getattr(self.runner, method)(**params))

    # ---- state -----------------------------------------------------------------------------

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        return self.runner.subscribe_news(lambda news: on_news(self.ids.translated(news)))

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        return self.runner.subscribe_heads(
            lambda session_id, seq: on_head(self.ids.outer(session_id), seq)
        )

    def agents(self) -> list[AgentSnapshotWire]:
        return self.ids.translated(self.runner.agents())

    def agent(self, agent_id: str) -> AgentSnapshotWire | None:
        return self.ids.translated(self.runner.agent(self.ids.inner(agent_id)))

    def agent_name(self, agent_id: str) -> str | None:
        return self.runner.agent_name(self.ids.inner(agent_id))

    def sessions(self) -> list[SessionOverview]:
        return self.ids.translated(self.runner.sessions())

    def session(self, session_id: str) -> SessionOverview:
        return self.ids.translated(self.runner.session(self.ids.inner(session_id)))

    def find_session(self, session_id: str) -> SessionOverview | None:
        return self.ids.translated(self.runner.find_session(self.ids.inner(session_id)))

    def session_snapshots(self) -> list[SessionSnapshotWire]:
        return self.ids.translated(self.runner.session_snapshots())

    def session_snapshot(self, session_id: str) -> SessionSnapshotWire | None:
        return self.ids.translated(self.runner.session_snapshot(self.ids.inner(session_id)))

    def last_seq(self, session_id: str) -> int:
        return self.runner.last_seq(self.ids.inner(session_id))

    def pending_permissions(self) -> list[PermissionView]:
        return self.ids.translated(self.runner.pending_permissions())

    def pending_permission(self, request_id: str) -> PermissionView | None:
        return self.ids.translated(self.runner.pending_permission(self.ids.inner(request_id)))

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        return self.ids.translated(self.runner.pending_elicitations())

    def elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        return self.ids.translated(self.runner.elicitation(self.ids.inner(request_id)))

    def health(self) -> RunnerHealth:
        return self.runner.health()

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        del session_id  # one for all sessions of a machine
        return self.runner.log_epoch()

    def unconfirmed_epoch(self) -> LogEpoch | None:
        return self.runner.unconfirmed_epoch()

    def host_epoch(self) -> str:
        return self.runner.host_epoch()

    # ---- the log ---------------------------------------------------------------------------

    async def open_log(self, session_id: str | None) -> LogSource:
        if session_id is None:
            return await self.runner.open_log(None)
        inner = self.ids.inner(session_id)
        source = await self.runner.open_log(inner)
        return source if self.ids.is_plain(inner) else TranslatedLog(source, inner, self.ids)

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        inner = self.ids.inner(session_id)
        events = await self.runner.read_events(inner, after, limit)
        if self.ids.is_plain(inner):
            return events
        return [self.ids.session_event(inner, each) for each in events]

    async def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[Event]:
        async for event in LogIterator(await self.open_log(session_id)).after(from_seq):
            yield event

    @property
    def endpoint(self) -> EnvelopeEndpoint:
        return self.runner.endpoint

    take_back = translating(RunnerApi.take_back)
    log_heads = translating(RunnerApi.log_heads)
    compare_heads = translating(RunnerApi.compare_heads)
    stop_diverged = translating(RunnerApi.stop_diverged)
    confirm_heads = translating(RunnerApi.confirm_heads)
    compact = translating(RunnerApi.compact)

    # ---- agents ----------------------------------------------------------------------------

    knows_agent = translating(RunnerApi.knows_agent)
    known_agents = translating(RunnerApi.known_agents)
    list_mcp_servers = translating(RunnerApi.list_mcp_servers)
    agent_confinement = translating(RunnerApi.agent_confinement)
    start_agent = translating(RunnerApi.start_agent)
    spawn_agent = translating(RunnerApi.spawn_agent)
    stop_agent = translating(RunnerApi.stop_agent)
    authenticate = translating(RunnerApi.authenticate)
    logout = translating(RunnerApi.logout)
    agent_offers = translating(RunnerApi.agent_offers)
    auth_status = translating(RunnerApi.auth_status)
    list_providers = translating(RunnerApi.list_providers)
    set_provider = translating(RunnerApi.set_provider)
    disable_provider = translating(RunnerApi.disable_provider)

    # ---- sessions --------------------------------------------------------------------------

    list_sessions = translating(RunnerApi.list_sessions)
    show_session = translating(RunnerApi.show_session)
    create_session = translating(RunnerApi.create_session)
    load_session = translating(RunnerApi.load_session)
    resume_session = translating(RunnerApi.resume_session)
    fork_session = translating(RunnerApi.fork_session)
    stored_servers = translating(RunnerApi.stored_servers)
    ensure_active = translating(RunnerApi.ensure_active)
    close_session = translating(RunnerApi.close_session)
    delete_session = translating(RunnerApi.delete_session)
    cancel_turn = translating(RunnerApi.cancel_turn)
    cancel_tool_call = translating(RunnerApi.cancel_tool_call)
    cancel_terminal = translating(RunnerApi.cancel_terminal)
    end_agent = translating(RunnerApi.end_agent)
    set_mode = translating(RunnerApi.set_mode)
    set_option = translating(RunnerApi.set_option)
    set_title = translating(RunnerApi.set_title)
    set_archived = translating(RunnerApi.set_archived)
    session_status = translating(RunnerApi.session_status)
    execute_context_command = translating(RunnerApi.execute_context_command)
    context_capabilities = translating(RunnerApi.context_capabilities)
    context_sessions = translating(RunnerApi.context_sessions)

    # ---- prompts and requests --------------------------------------------------------------

    add_prompt = translating(RunnerApi.add_prompt)
    edit_prompt = translating(RunnerApi.edit_prompt)
    cancel_prompt = translating(RunnerApi.cancel_prompt)
    get_prompt = translating(RunnerApi.get_prompt)
    list_prompts = translating(RunnerApi.list_prompts)
    wait_prompt = translating(RunnerApi.wait_prompt)
    count_queued_prompts = translating(RunnerApi.count_queued_prompts)
    answer_permission = translating(RunnerApi.answer_permission)
    answer_elicitation = translating(RunnerApi.answer_elicitation)
    answer_request = translating(RunnerApi.answer_request)
    list_decisions = translating(RunnerApi.list_decisions)

    def report_removed_meta(
        self, session_id: str | None, *, scope: str, by: Actor = PROGRAM
    ) -> None:
        inner = None if session_id is None else self.ids.inner(session_id)
        self.runner.report_removed_meta(inner, scope=scope, by=by)

    # ---- the rest --------------------------------------------------------------------------

    drain = translating(RunnerApi.drain)
    resume_turns = translating(RunnerApi.resume_turns)
    list_folder = translating(RunnerApi.list_folder)
    find_files = translating(RunnerApi.find_files)
    install_agent = translating(RunnerApi.install_agent)
    install_jobs = translating(RunnerApi.install_jobs)
    refresh_registry = translating(RunnerApi.refresh_registry)
    remove_agent = translating(RunnerApi.remove_agent)
    sign_in_methods = translating(RunnerApi.sign_in_methods)
    begin_sign_in = translating(RunnerApi.begin_sign_in)
    sign_in_output = translating(RunnerApi.sign_in_output)
    send_sign_in_input = translating(RunnerApi.send_sign_in_input)
    cancel_sign_in = translating(RunnerApi.cancel_sign_in)
    foreign_programs = translating(RunnerApi.foreign_programs)
    adopt_program = translating(RunnerApi.adopt_program)
    release_program = translating(RunnerApi.release_program)
    foreign_sessions = translating(RunnerApi.foreign_sessions)
    adopt_session = translating(RunnerApi.adopt_session)
    agent_sessions = translating(RunnerApi.agent_sessions)

    def policy(self) -> Policy:
        return self.runner.policy()

    def set_policy(self, policy: Policy) -> None:
        self.runner.set_policy(policy)

    def reconfigure(self, options: RunnerOptions) -> None:
        self.runner.reconfigure(options)

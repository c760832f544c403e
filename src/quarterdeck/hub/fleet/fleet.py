"""`Fleet`: the runners of all machines as one; a `RunnerApi`.

The hub's own machine is always there. Others join: their runners dial the hub (`accepting`), and
each is a `MachineRunner`. Ids say to which machine something belongs (`identifiers`), so a command
is passed to the runner of its session, agent or request. Lists are those of all machines.

    one machine only      everything is passed to its runner as it is
    several               lists and news are joined; the host's stream is numbered anew

What is about a machine as a whole (its folders, the agents that are installed, its rules) is asked
of one machine: `on`. Without a name, that is the hub's own.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from quarterdeck.errors import QuarterdeckError, RequestRejected
from quarterdeck.hub.fleet.decisions import MergedDecisions
from quarterdeck.hub.fleet.envelopes import FleetEndpoint, follow_events
from quarterdeck.hub.fleet.host_stream import EndableSource, HostFollower, HostStream
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.hub.fleet.machine_runner import MachineRunner
from quarterdeck.hub.fleet.store import FleetStore
from quarterdeck.hub.fleet.translated import (
    ID_PARAMETERS,
    OnHead,
    OnNews,
    TranslatedRunner,
    Unsubscribe,
    signature_of,
)
from quarterdeck.hub.log import HubLog
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
    ContextSession,
    LogSource,
    MachineUpdated,
    PermissionView,
    RecordedDecision,
    RunnerApi,
    RunnerHealth,
    RunnerOptions,
    SessionOverview,
    not_found,
)
from quarterdeck.runner.link import LinkEnd, LinkSocket, LogIterator
from quarterdeck.storage import CompactedFile, LogEpoch
from quarterdeck.views.context import ACPCapabilities
from quarterdeck.wire import IndependentTasks, background_tasks, foreign_errors

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class MachineState(Struct, frozen=True, kw_only=True, rename="camel"):
    """How it stands with a machine that has joined."""

    machine_id: str
    name: str
    is_connected: bool
    changed_at: float
    """Since when it is connected, or away; Unix time."""
    problem: str
    """Why its runner cannot be used although it is there; a sentence."""
    version: str
    protocol: int
    sessions: int
    waiting: int
    """Commands that wait for it."""


def _routed(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[Fleet, _P], Coroutine[Any, Any, _R]]:
    """Return a method of `RunnerApi` that is carried out by the machine that its ids belong to."""
    name = method.__name__

    @wraps(method)
    async def call(self: Fleet, /, *arguments: _P.args, **keywords: _P.kwargs) -> _R:
        given = signature_of(method).bind(self, *arguments, **keywords).arguments
        named = (given[each] for each in ID_PARAMETERS if isinstance(given.get(each), str))
        runner = self.runner_of(next(named, ""))
        result: _R = await getattr(runner, name)(*arguments, **keywords)
        return result

    return call


class Fleet:
    """All machines of a hub; implements `RunnerApi`."""

    def __init__(self, local: RunnerApi) -> None:
        """`local` is the runner of the hub's own machine."""
        self.local = local
        self._here = TranslatedRunner(local, LOCAL)
        self._machines: dict[str, MachineRunner] = {}
        self._host = HostStream()
        self._passed: list[EndableSource] = []
        self._news: dict[object, OnNews] = {}
        self._heads: dict[object, OnHead] = {}
        self._followers: dict[str, list[Callable[[], None]]] = {}
        self._endpoint = FleetEndpoint(self)
        self._decisions = MergedDecisions()
        self._store: FleetStore | None = None
        self._log: HubLog | None = None
        self._tasks: TaskGroup | None = None

    # ---- life and machines -----------------------------------------------------------------

    @asynccontextmanager
    async def open(self, store: FleetStore, log: HubLog) -> AsyncIterator[None]:
        """Follow the machines that are added with `add` while the body runs."""
        self._store, self._log = store, log
        async with background_tasks() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                with anyio.CancelScope(shield=True):
                    for machine in tuple(self._machines.values()):
                        await self._leave(machine, "the hub has ended")

    async def add(self, machine_id: str, name: str) -> None:
        """Show a machine, which may be away, and accept its links.

        Raises:
            StorageRefused: if the copies of its logs cannot be opened.
        """
        assert self._tasks is not None, "the fleet is open"
        assert self._store is not None
        assert self._log is not None
        tasks = IndependentTasks(self._tasks)
        machine = MachineRunner(machine_id, name, self._log, self._store, tasks)
        await self._tasks.start(machine.run)
        if not self._machines:
            self._follow_host(self._here)
        self._machines[machine_id] = machine
        self._follow_host(machine)
        self._followers[machine_id] += [
            machine.subscribe_news(self._report),
            machine.subscribe_heads(self._on_head),
        ]
        self._restart_host()
        machine.report_machine()

    async def remove(self, machine_id: str) -> None:
        """Cut a machine off and forget everything that is known of it."""
        machine = self._machines.get(machine_id)
        if machine is None:
            return
        await self._leave(machine, "this machine was removed from the hub")
        await machine.delete()
        self._restart_host()
        self._report(MachineUpdated(machine_id=machine_id, is_connected=False))

    async def _leave(self, machine: MachineRunner, reason: str) -> None:
        del self._machines[machine.machine_id]
        for each in self._followers.pop(machine.machine_id):
            each()
        await machine.end(reason)
        if not self._machines:
            for each in self._followers.pop(LOCAL, ()):
                each()

    def rename(self, machine_id: str, name: str) -> None:
        machine = self._machines[machine_id]
        machine.connection.name = name
        machine.report_machine()

    def accepting(self, machine_id: str) -> Callable[[LinkSocket], LinkEnd]:
        """Return what takes a link that a machine has opened.

        Raises:
            RequestRejected: if there is no such machine.
        """
        return self._machine(machine_id).connection.accept

    def states(self) -> list[MachineState]:
        """Return how it stands with each machine that has joined."""
        return [self.state_of(machine_id) for machine_id in self._machines]

    def epochs(self) -> dict[str, str]:
        """Return the epoch of the sessions of each machine that has joined."""
        return {key: each.log_epoch().id for key, each in self._machines.items()}

    def state_of(self, machine_id: str) -> MachineState:
        """Return how it stands with a machine.

        Raises:
            RequestRejected: if there is no such machine.
        """
        machine = self._machine(machine_id)
        connection = machine.connection
        return MachineState(
            machine_id=machine_id,
            name=connection.name,
            is_connected=connection.is_connected,
            changed_at=connection.changed_at,
            problem=connection.problem,
            version=connection.identity.version if connection.identity.pid else "",
            protocol=connection.protocol,
            sessions=len(connection.mirror.sessions),
            waiting=machine.waiting.count,
        )

    def on(self, machine: str | None) -> RunnerApi:
        """Return the runner of one machine, by its id or name; None is the hub's own.

        Raises:
            RequestRejected: if there is no such machine.
        """
        if machine is None or machine == LOCAL:
            return self.local
        if machine in self._machines:
            return self._machines[machine]
        for each in self._machines.values():
            if each.connection.name == machine:
                return each
        raise not_found(f"machine {machine!r}", "list the machines with `quarterdeck machines`")

    def find(self, machine_id: str) -> MachineRunner | None:
        """Return the runner of a machine that has joined; None if there is none."""
        return self._machines.get(machine_id)

    def name_on(self, machine: str | None, name: str) -> str:
        """Return the name of an agent on a machine as the hub spells it."""
        runner = self.on(machine)
        return runner.ids.outer(name) if isinstance(runner, TranslatedRunner) else name

    def _machine(self, machine_id: str) -> MachineRunner:
        machine = self._machines.get(machine_id)
        if machine is None:
            raise not_found("such machine", "it may have been removed from this hub")
        return machine

    def others(self) -> list[TranslatedRunner]:
        return [*self._machines.values()]

    def machine_runner(self, hub_id: str) -> TranslatedRunner:
        machine_id = machine_of(hub_id).machine_id
        return self._here if machine_id == LOCAL else self._machine(machine_id)

    def runner_of(self, hub_id: str) -> RunnerApi:
        """Return the runner that an id belongs to.

        Raises:
            RequestRejected: if there is no such machine.
        """
        machine_id, inner = machine_of(hub_id)
        if machine_id != LOCAL:
            return self._machine(machine_id)
        return self.local if inner == hub_id else self._here

    def _find(self, hub_id: str) -> RunnerApi | None:
        try:
            return self.runner_of(hub_id)
        except RequestRejected:
            return None

    def _all(self) -> list[TranslatedRunner]:
        return [self._here, *self._machines.values()]

    # ---- news ------------------------------------------------------------------------------

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        key = object()
        self._news[key] = on_news
        unsubscribe = self._here.subscribe_news(on_news)

        def leave() -> None:
            self._news.pop(key, None)
            unsubscribe()

        return leave

    def _report(self, news: Any) -> None:
        for on_news in tuple(self._news.values()):
            try:
                on_news(news)
            except foreign_errors():
                logger.exception("a subscriber of news failed")

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        key = object()
        self._heads[key] = on_head
        unsubscribe = self._here.subscribe_heads(on_head)

        def leave() -> None:
            self._heads.pop(key, None)
            unsubscribe()

        return leave

    def _on_head(self, session_id: str, seq: int) -> None:
        for on_head in tuple(self._heads.values()):
            on_head(session_id, seq)

    # ---- state -----------------------------------------------------------------------------

    def agents(self) -> list[AgentSnapshotWire]:
        return [each for machine in self._all() for each in machine.agents()]

    def agent(self, agent_id: str) -> AgentSnapshotWire | None:
        runner = self._find(agent_id)
        return None if runner is None else runner.agent(agent_id)

    def agent_name(self, agent_id: str) -> str | None:
        runner = self._find(agent_id)
        return None if runner is None else runner.agent_name(agent_id)

    def sessions(self) -> list[SessionOverview]:
        return [each for machine in self._all() for each in machine.sessions()]

    def session(self, session_id: str) -> SessionOverview:
        found = self.find_session(session_id)
        if found is None:
            raise not_found(f"session {session_id!r}", "check its id in the list of sessions")
        return found

    def find_session(self, session_id: str) -> SessionOverview | None:
        runner = self._find(session_id)
        return None if runner is None else runner.find_session(session_id)

    def session_snapshots(self) -> list[SessionSnapshotWire]:
        return [each for machine in self._all() for each in machine.session_snapshots()]

    def session_snapshot(self, session_id: str) -> SessionSnapshotWire | None:
        runner = self._find(session_id)
        return None if runner is None else runner.session_snapshot(session_id)

    def last_seq(self, session_id: str) -> int:
        runner = self._find(session_id)
        return 0 if runner is None else runner.last_seq(session_id)

    def pending_permissions(self) -> list[PermissionView]:
        return [each for machine in self._all() for each in machine.pending_permissions()]

    def pending_permission(self, request_id: str) -> PermissionView | None:
        runner = self._find(request_id)
        return None if runner is None else runner.pending_permission(request_id)

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        return [each for machine in self._all() for each in machine.pending_elicitations()]

    def elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        runner = self._find(request_id)
        return None if runner is None else runner.elicitation(request_id)

    def health(self) -> RunnerHealth:
        """Return the health of the hub's own machine; `states` has the others."""
        return self.local.health()

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        runner = None if session_id is None else self._find(session_id)
        return self.local.log_epoch() if runner is None else runner.log_epoch(session_id)

    def unconfirmed_epoch(self) -> LogEpoch | None:
        return self.local.unconfirmed_epoch()

    def host_epoch(self) -> str:
        return self._host.epoch if self._machines else self.local.host_epoch()

    # ---- logs ------------------------------------------------------------------------------

    async def open_log(self, session_id: str | None) -> LogSource:
        if session_id is not None:
            return await self.runner_of(session_id).open_log(session_id)
        if self._machines:
            return self._host
        source = EndableSource(await self.local.open_log(None))
        self._passed = [each for each in self._passed if not each.has_ended]
        self._passed.append(source)
        return source

    def _follow_host(self, machine: TranslatedRunner) -> None:
        scope = anyio.CancelScope()
        follower = HostFollower(machine, lambda: self._host, self._restart_host)

        async def follow() -> None:
            with scope:
                await follower.run()

        assert self._tasks is not None, "the fleet is open"
        self._followers[machine.machine_id] = [scope.cancel]
        self._tasks.start_soon(follow)

    def _restart_host(self) -> None:
        """Begin another stream of the host: clients read the state again."""
        earlier, self._host = self._host, HostStream()
        earlier.end()
        passed, self._passed = self._passed, []
        for source in passed:
            source.end()

    read_events = _routed(RunnerApi.read_events)

    async def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[Event]:
        if session_id is None and self._machines:
            events: AsyncIterator[Event] = LogIterator(self._host).after(from_seq)
        else:
            events = self.runner_of(session_id or "").events(session_id, from_seq)
        async for event in events:
            yield event

    def open_events(
        self, session_id: str | None, from_seq: int, on_event: Callable[[Event], None]
    ) -> Unsubscribe:
        """Call `on_event` with each event of a log; return what ends that."""
        assert self._tasks is not None, "the fleet is open"
        scope = anyio.CancelScope()
        self._tasks.start_soon(follow_events, scope, self, session_id, from_seq, on_event)
        return scope.cancel

    @property
    def endpoint(self) -> EnvelopeEndpoint:
        return self._endpoint

    async def compact(self) -> list[CompactedFile]:
        return [
            *await self.local.compact(),
            *[each for machine in self._machines.values() for each in await machine.compact()],
        ]

    take_back = _routed(RunnerApi.take_back)
    log_heads = _routed(RunnerApi.log_heads)
    compare_heads = _routed(RunnerApi.compare_heads)
    stop_diverged = _routed(RunnerApi.stop_diverged)
    confirm_heads = _routed(RunnerApi.confirm_heads)

    # ---- agents ----------------------------------------------------------------------------

    knows_agent = _routed(RunnerApi.knows_agent)
    known_agents = _routed(RunnerApi.known_agents)
    list_mcp_servers = _routed(RunnerApi.list_mcp_servers)
    agent_confinement = _routed(RunnerApi.agent_confinement)
    start_agent = _routed(RunnerApi.start_agent)
    spawn_agent = _routed(RunnerApi.spawn_agent)
    stop_agent = _routed(RunnerApi.stop_agent)
    authenticate = _routed(RunnerApi.authenticate)
    logout = _routed(RunnerApi.logout)
    agent_offers = _routed(RunnerApi.agent_offers)
    auth_status = _routed(RunnerApi.auth_status)
    list_providers = _routed(RunnerApi.list_providers)
    set_provider = _routed(RunnerApi.set_provider)
    disable_provider = _routed(RunnerApi.disable_provider)

    # ---- sessions --------------------------------------------------------------------------

    async def list_sessions(self) -> list[SessionOverview]:
        found = await self._here.list_sessions()
        others: dict[str, list[SessionOverview]] = {}

        async def ask(machine: MachineRunner) -> None:
            others[machine.machine_id] = await _listed(machine)

        if self._machines:
            async with anyio.create_task_group() as tasks:
                for machine in self._machines.values():
                    tasks.start_soon(ask, machine)
        return [*found, *[each for key in self._machines for each in others.get(key, ())]]

    show_session = _routed(RunnerApi.show_session)
    create_session = _routed(RunnerApi.create_session)
    load_session = _routed(RunnerApi.load_session)
    resume_session = _routed(RunnerApi.resume_session)
    fork_session = _routed(RunnerApi.fork_session)
    stored_servers = _routed(RunnerApi.stored_servers)
    ensure_active = _routed(RunnerApi.ensure_active)
    close_session = _routed(RunnerApi.close_session)
    delete_session = _routed(RunnerApi.delete_session)
    cancel_turn = _routed(RunnerApi.cancel_turn)
    cancel_tool_call = _routed(RunnerApi.cancel_tool_call)
    cancel_terminal = _routed(RunnerApi.cancel_terminal)
    end_agent = _routed(RunnerApi.end_agent)
    set_mode = _routed(RunnerApi.set_mode)
    set_option = _routed(RunnerApi.set_option)
    set_title = _routed(RunnerApi.set_title)
    set_archived = _routed(RunnerApi.set_archived)
    session_status = _routed(RunnerApi.session_status)
    execute_context_command = _routed(RunnerApi.execute_context_command)

    async def context_capabilities(self) -> list[ACPCapabilities]:
        return await self.local.context_capabilities()

    async def context_sessions(self, session_ids: Sequence[str]) -> list[ContextSession]:
        asked: dict[str, list[str]] = {}
        for session_id in session_ids:
            asked.setdefault(machine_of(session_id).machine_id, []).append(session_id)
        found: list[ContextSession] = []
        for wanted in asked.values():
            runner = self._find(wanted[0])
            if runner is not None:
                found += await _context_sessions(runner, wanted)
        return found

    # ---- prompts and requests --------------------------------------------------------------

    add_prompt = _routed(RunnerApi.add_prompt)
    edit_prompt = _routed(RunnerApi.edit_prompt)
    cancel_prompt = _routed(RunnerApi.cancel_prompt)
    get_prompt = _routed(RunnerApi.get_prompt)
    list_prompts = _routed(RunnerApi.list_prompts)
    wait_prompt = _routed(RunnerApi.wait_prompt)

    async def count_queued_prompts(self) -> int:
        return sum([await each.count_queued_prompts() for each in self._all()])

    answer_permission = _routed(RunnerApi.answer_permission)
    answer_elicitation = _routed(RunnerApi.answer_elicitation)
    answer_request = _routed(RunnerApi.answer_request)

    async def list_decisions(
        self, *, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        if session_id is not None:
            runner = self.runner_of(session_id)
            return await runner.list_decisions(before=before, session_id=session_id, limit=limit)
        if not self._machines:
            return await self.local.list_decisions(before=before, session_id=None, limit=limit)
        return await self._decisions.page(self._all(), before=before, limit=limit)

    def report_removed_meta(
        self, session_id: str | None, *, scope: str, by: Actor = PROGRAM
    ) -> None:
        runner = self.local if session_id is None else self._find(session_id)
        if runner is not None:
            runner.report_removed_meta(session_id, scope=scope, by=by)

    # ---- the hub's own machine -------------------------------------------------------------

    drain = _routed(RunnerApi.drain)
    resume_turns = _routed(RunnerApi.resume_turns)
    list_folder = _routed(RunnerApi.list_folder)
    find_files = _routed(RunnerApi.find_files)
    install_agent = _routed(RunnerApi.install_agent)
    install_jobs = _routed(RunnerApi.install_jobs)
    refresh_registry = _routed(RunnerApi.refresh_registry)
    remove_agent = _routed(RunnerApi.remove_agent)
    sign_in_methods = _routed(RunnerApi.sign_in_methods)
    begin_sign_in = _routed(RunnerApi.begin_sign_in)
    sign_in_output = _routed(RunnerApi.sign_in_output)
    send_sign_in_input = _routed(RunnerApi.send_sign_in_input)
    cancel_sign_in = _routed(RunnerApi.cancel_sign_in)
    foreign_programs = _routed(RunnerApi.foreign_programs)
    adopt_program = _routed(RunnerApi.adopt_program)
    release_program = _routed(RunnerApi.release_program)
    foreign_sessions = _routed(RunnerApi.foreign_sessions)
    adopt_session = _routed(RunnerApi.adopt_session)
    agent_sessions = _routed(RunnerApi.agent_sessions)

    def policy(self) -> Policy:
        return self.local.policy()

    def set_policy(self, policy: Policy) -> None:
        self.local.set_policy(policy)

    def reconfigure(self, options: RunnerOptions) -> None:
        self.local.reconfigure(options)


async def _listed(machine: MachineRunner) -> list[SessionOverview]:
    """Return the sessions of a machine: up to date, or as they were last."""
    if not machine.connection.is_connected:
        return machine.sessions()
    try:
        return await machine.list_sessions()
    except QuarterdeckError as error:
        logger.debug("a machine did not answer", extra={"reason": str(error)})
        return machine.sessions()


async def _context_sessions(runner: RunnerApi, wanted: Sequence[str]) -> list[ContextSession]:
    try:
        return await runner.context_sessions(wanted)
    except RequestRejected as error:
        logger.debug("a machine did not answer", extra={"reason": str(error)})
        return []

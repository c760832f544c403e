"""The hub: what people connect to, over a runner.

    async with Hub(HubOptions(home=folder)) as hub, serving(hub) as address:
        session = await hub.runner.create_session("demo", cwd="/project")

The hub owns devices and their scopes, pairing, push and caches of views. It holds no session state
that could not be read from its runner again. It knows the runner as a `RunnerApi` only: by default
it builds a `Runner` in this process and ends it when it ends; a program that has a runner already
passes it, and the agents keep running when the hub ends.

Everything in the hub uses `Hub.runner`. That is the `Fleet` (`hub/fleet`): the runner that was
passed, and those of other machines that have joined, as one `RunnerApi`.

A hub works without a port; `serving` and `serve_hub` put it on one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, assert_never

import anyio
from anyio import to_thread

from quarterdeck.errors import AcpError, QuarterdeckError
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.auth.device import OWNER
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions
from quarterdeck.hub.auth.tokens import remove_owner_token
from quarterdeck.hub.database_url import database_url
from quarterdeck.hub.fleet.fleet import Fleet
from quarterdeck.hub.fleet.machine_links import MachineLinks
from quarterdeck.hub.fleet.machines import Machine, Machines
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.push.delivery import push_key
from quarterdeck.hub.push.service import PushOptions, PushService
from quarterdeck.hub.reach import Reach, ReachFacts, describe
from quarterdeck.hub.relay.service import RelayService
from quarterdeck.hub.store import HubStore, open_sqlite_store
from quarterdeck.hub.transcript_cache import Transcripts
from quarterdeck.hub.view_cache import SessionStates, ViewBudget
from quarterdeck.machine.free_memory import release_free_memory, resident_bytes
from quarterdeck.machine.home_locks import locked_home
from quarterdeck.machine.private_files import private_folder
from quarterdeck.protocol import ERROR_CODES, ApprovalMismatchEvent
from quarterdeck.relay.state import RelayState
from quarterdeck.runner import (
    AgentRemoved,
    AgentUpdated,
    Diagnostic,
    HealthChanged,
    MachineUpdated,
    News,
    QueueChanged,
    RequestUpdated,
    Runner,
    RunnerApi,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.storage.reserve import Reserve
from quarterdeck.wire import IndependentTasks, background_tasks

if TYPE_CHECKING:
    from quarterdeck.hub.reach.service import ReachService

logger = logging.getLogger(__name__)

RESERVE: Final = "hub.reserve"
PUSH_KEY, HUB_KEY = "push.key", "identity.key"
MEMORY_SECONDS: Final = 60.0
GROWN_BYTES: Final = 16 << 20
OLD_TOKEN: Final = "token"  # noqa: S105 - the name of a file
"""The owner's, of an earlier version."""


class Hub:
    """One hub on one data folder; an async context manager."""

    auth: Authentication
    push: PushService
    store: HubStore
    machines: Machines
    machine_links: MachineLinks

    def __init__(
        self,
        options: HubOptions,
        runner: RunnerApi | None = None,
        *,
        parts: Sequence[Callable[[Hub], list[Endpoint]]] = (),
        is_locked: bool = False,
    ) -> None:
        """Without a `runner`, one of the same folder is built and belongs to the hub.

        `parts` make further endpoints of the hub. `is_locked`: the caller holds `hub.lock`.
        """
        self.options = options
        self.parts = tuple(parts)
        self._is_locked = is_locked
        self.started_at = time.time()
        self._own_runner: Runner | None = None
        if runner is None:
            # No other hub has copies of its log that are worth a wait.
            runner = self._own_runner = Runner(replace(options.runner, hub_seconds=0.0))
        self.fleet = Fleet(runner)
        self.runner: RunnerApi = self.fleet
        """All machines as one; not the runner that was passed, which is `fleet.local`."""
        views = ViewBudget(options.view_bytes)
        self.states = SessionStates(self.runner.read_events, views)
        self.transcripts = Transcripts(self.runner, views)
        self.log_health = LogHealth(self.runner.health)
        self.relay: RelayService | None = None
        """None if phones do not reach this hub through a relay."""
        self.reach: ReachService | None = None
        """While the hub is served at a port."""
        self._tasks: IndependentTasks | None = None
        self._stack = AsyncExitStack()
        self._on_end: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        """Open everything.

        Raises:
            StartRefused: if the folder is in use, not private, or holds what cannot be read.
            StorageRefused: the same for the log.
        """
        try:
            await self._open()
        except BaseException:
            # No shield around it: a scope cannot end before those that were opened inside it.
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._tasks = None
        return await self._stack.__aexit__(kind, error, traceback)

    async def _open(self) -> None:
        options, stack = self.options, self._stack
        if not self._is_locked:
            stack.enter_context(locked_home(options.home, "hub"))
        if self._own_runner is not None:
            # First: runner.db takes its tables over from an older hub.db before that is opened.
            await stack.enter_async_context(self._own_runner)
        home = private_folder(options.home)
        reserve = Reserve(home / RESERVE)
        reserve.open()
        store = self.store = await self._open_store(home, reserve)
        self.auth = Authentication(
            store,
            hub_key(home / HUB_KEY),
            AuthenticationOptions(
                listening=options.listening,
                unused_seconds=options.device_unused_seconds,
                keeps_codes=options.keeps_codes,
            ),
        )
        if options.relay is not None:
            self.relay = RelayService(home, options.relay)
        remove_owner_token(home / OLD_TOKEN)
        await self.auth.load()
        self.push = self._push_service(home, store)
        await self._open_machines(store)
        tasks = IndependentTasks(await stack.enter_async_context(background_tasks()))
        self._tasks = tasks
        self.log_health.start(tasks)
        stack.callback(self.runner.subscribe_news(self._on_news))
        self.push.start(tasks)
        self._record_refused_agent()
        tasks.start_soon(self.auth.sweep_devices)
        tasks.start_soon(_give_memory_back)

    async def _open_store(self, home: Path, reserve: Reserve) -> HubStore:
        if not self.options.database:
            return await self._stack.enter_async_context(open_sqlite_store(home, reserve))
        # asyncpg is optional.
        from quarterdeck.hub.postgres import open_postgres_store  # noqa: PLC0415

        url = database_url(self.options.database, self.options.environ)
        return await self._stack.enter_async_context(open_postgres_store(url, reserve))

    async def _open_machines(self, store: HubStore) -> None:
        machines = self.machines = Machines(store.machines)
        await machines.load()
        links = self.machine_links = MachineLinks(machines, self.auth)
        self.before_end(links.end)
        await self._stack.enter_async_context(self.fleet.open(store.fleet, store.log))
        for machine in machines.all:
            await self._show_machine(machine)
        machines.subscribe_joined(self._on_joined)
        machines.subscribe_renamed(lambda machine: self.fleet.rename(machine.id, machine.name))
        machines.subscribe_removal_ended(self.fleet.remove)
        links.accepting = self.fleet.accepting

    async def _on_joined(self, machine: Machine) -> None:
        await self._show_machine(machine)
        self.push.on_machine(machine.name)

    async def _show_machine(self, machine: Machine) -> None:
        try:
            await self.fleet.add(machine.id, machine.name)
        except QuarterdeckError as error:
            # The others, and the hub's own sessions, are not to be missed for it.
            facts = {"machine": machine.id, "reason": str(error)}
            logger.error("a machine cannot be shown", extra=facts)  # noqa: TRY400

    def _push_service(self, home: Path, store: HubStore) -> PushService:
        origin = self.auth.public_origin
        options = PushOptions(
            key=push_key(home / PUSH_KEY),
            # Some push services reject a subject that is not a contact address.
            subject=origin if origin.startswith("https:") else "mailto:quarterdeck@example.com",
            trusted=frozenset(self.options.push_services),
        )
        return PushService(store.push, self.auth.devices, self.runner, options)

    def _on_news(self, news: News) -> None:
        match news:
            case HealthChanged():
                self.log_health.on_health()
                self._record_refused_agent()
            case SessionDeleted():
                self.states.forget(news.session_id)
                self.transcripts.forget(news.session_id)
            case RequestUpdated():
                self.push.on_request(news)
            case SessionUpdated():
                self.push.on_session(news.session_id, news.status)
            case Diagnostic():
                if news.code == ApprovalMismatchEvent.type and news.session_id is not None:
                    self.push.on_mismatch(news.session_id)
            case MachineUpdated():
                self._record_refused_on(news.machine_id)
            case AgentUpdated() | AgentRemoved() | QueueChanged():
                pass  # streams report these
            case _:
                assert_never(news)

    def _record_refused_agent(self) -> None:
        """Record and push that a process of an agent tried to control the runner."""
        detail = self.runner.health().refused_agent
        if detail and self._tasks is not None:
            self._tasks.start_soon(self.auth.callers.record_at_runner, detail)

    def _record_refused_on(self, machine_id: str) -> None:
        """Do the same for another machine."""
        found = self.fleet.find(machine_id)
        if found is not None and found.health().refused_agent and self._tasks is not None:
            detail = f"on {found.connection.name}: {found.health().refused_agent}"
            self._tasks.start_soon(self.auth.callers.record_at_runner, detail)

    def reconfigure(self, options: HubOptions) -> None:
        """Replace what can change while a hub runs; the rest of `options` is ignored.

        Agents that run are not restarted; those that start later use the new configuration. New
        rules also decide pending requests. Changed rules, agents and confinement are recorded and
        pushed: an agent that is not confined can write the file.
        """
        before = self.options
        changed = {
            "rules": before.policy != options.policy,
            "agents": before.agents != options.agents,
            "MCP servers": before.mcp != options.mcp,
            "the registry": before.registry != options.registry,
            "confinement": (before.confine, before.projects) != (options.confine, options.projects),
        }
        self.options = replace(
            self.options,
            agents=options.agents,
            mcp=options.mcp,
            registry=options.registry,
            policy=options.policy,
            idle_agent_minutes=options.idle_agent_minutes,
            retention=options.retention,
            confine=options.confine,
            projects=options.projects,
        )
        self.runner.reconfigure(self.options.runner)
        *words, last = [name for name, is_changed in changed.items() if is_changed] or [""]
        names = f"{', '.join(words)} and {last}" if words else last
        if names:
            self.start_in_background(partial(self._record_change, f"{names} in hub.toml"))

    async def _record_change(self, detail: str) -> None:
        owner = self.auth.devices.get(OWNER)
        assert owner is not None, "it cannot be revoked"
        await self.auth.devices.record("config-changed", owner, detail)

    def start_in_background(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run something to its end, also if its client disconnects; a failure is logged.

        Raises:
            AcpError: `acpjs/agent-exited` if the hub does not run.
        """
        if self._tasks is None:
            raise AcpError(ERROR_CODES["agent_exited"], "the hub is not running")
        self._tasks.start_soon(work)

    def before_end(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` when the server of this hub is about to end."""
        self._on_end.append(on_end)

    def end_streams(self) -> None:
        """End the streams of all clients."""
        for on_end in self._on_end:
            on_end()

    def relay_state(self) -> RelayState | None:
        """Return the state of the relay; None without one."""
        return None if self.relay is None else self.relay.state

    async def reach_report(self) -> Reach:
        """Return how phones can reach the hub."""
        if self.reach is not None:
            return await self.reach.report()
        return describe(ReachFacts(listening=self.auth.options.listening), {})

    @property
    def open_connections(self) -> int:
        """The open requests and streams of all devices."""
        devices = self.auth.devices
        return sum(devices.live_count(device.id) for device in devices.all)


async def _give_memory_back() -> None:
    """Give back what many views left free, after the memory has grown; never returns."""
    after = 0
    while True:
        await anyio.sleep(MEMORY_SECONDS)
        if resident_bytes() >= after + GROWN_BYTES:
            await to_thread.run_sync(release_free_memory)
            after = resident_bytes()

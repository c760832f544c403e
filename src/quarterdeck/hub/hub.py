"""The hub: the host, its log, and everything that lets people steer it from elsewhere.

    async with Hub(HubOptions(home=folder)) as hub:
        session = await hub.create_session("demo", cwd="/project")
        await hub.prompts.add(session.session_id, "a-key", [{"type": "text", "text": "hello"}])

It works without a server; `serve_hub` puts it on a port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from quarterdeck.agents import KnownAgents
from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.host import Host, HostOptions
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions
from quarterdeck.hub.auth.tokens import owner_token
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.push.delivery import push_key
from quarterdeck.hub.push.service import PushOptions, PushService
from quarterdeck.hub.store import HUB_TABLES, MOVED, HubStore
from quarterdeck.hub.view_cache import SessionStates
from quarterdeck.machine.private_files import locked_home
from quarterdeck.machine.terminals import DefaultTerminalHandler
from quarterdeck.protocol import Event, SessionSnapshotWire
from quarterdeck.runner.log_health import LogHealth
from quarterdeck.runner.permissions.inbox import PermissionInbox
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.runner.sessions.idle import IdleAgents
from quarterdeck.runner.sessions.manager import HostCondition, SessionManager, SessionOperations
from quarterdeck.runner.store import RunnerStore, keep_tidy
from quarterdeck.runner.tasks import IndependentTasks
from quarterdeck.storage import SqliteStorage
from quarterdeck.storage.database import HubDatabase, open_database
from quarterdeck.wire import background_tasks

_LOG_FAILED = "storage/write-failed"
KILL_MS = 2_000
"""For an agent to end by itself, and again when it is told to: the hub ends within ten seconds."""
LOG, RUNNER_DATABASE, HUB_DATABASE = "log.db", "runner.db", "hub.db"
TOKEN, PUSH_KEY = "token", "push.key"


class Hub:
    """One hub on one data directory; an async context manager, leaving it parks all sessions."""

    host: Host
    runner_database: HubDatabase
    gate: Authentication
    keeper: SessionManager
    keeps: SessionOperations
    prompts: PromptQueue
    idling: IdleAgents
    approvals: PermissionInbox
    library: SessionCatalogue
    states: SessionStates
    pushes: PushService

    def __init__(
        self, options: HubOptions, *, parts: Sequence[Callable[[Hub], list[Endpoint]]] = ()
    ) -> None:
        """`parts` make endpoints of somebody else, which are then endpoints like all others."""
        self.options = options
        self.parts = tuple(parts)
        self.started_at = time.time()
        self._known = KnownAgents(options.agents, options.environ, options.pass_env)
        self.watch = HostCondition()
        self.storage_failures = 0
        self.recording = LogHealth(options.home / LOG, lambda: self.is_healthy)
        self._stack = AsyncExitStack()
        self._unfollow: Callable[[], None] | None = None
        self._leavers: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        """Open everything.

        Raises:
            HubRefused: if the directory is in use, not private, or holds what cannot be read.
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
        with anyio.CancelScope(shield=True):
            await self.prompts.park()
            await self.approvals.stop()
        if self._unfollow is not None:
            self._unfollow()
        return await self._stack.__aexit__(kind, error, traceback)

    def reconfigure(self, options: HubOptions) -> None:
        """Take over what can change while a hub runs; the rest of `options` is not looked at.

        Agents that run go on as they were started; those that are started later are as it is said
        now. New rules also decide what waits already.
        """
        self.options = replace(
            self.options,
            agents=options.agents,
            policy=options.policy,
            idle_agent_minutes=options.idle_agent_minutes,
            retention=options.retention,
        )
        self.keeper.known.configure(options.agents)
        self.approvals.set_policy(options.policy)

    def before_end(self, leave: Callable[[], None]) -> None:
        """Call `leave` when whoever serves this hub is about to end."""
        self._leavers.append(leave)

    def say_goodbye(self) -> None:
        """Let go of everybody who follows what happens here."""
        for leave in self._leavers:
            leave()

    async def _open(self) -> None:
        options, stack = self.options, self._stack
        home = stack.enter_context(locked_home(options.home))
        runner_store, hub_store = await self._open_stores(home)
        # The inbox first: its rules are the host's permission hook.
        self.approvals = PermissionInbox(runner_store.decisions, options.policy)
        self.host = await stack.enter_async_context(Host(self._host_options()))
        gate = AuthenticationOptions(
            listening=options.listening, unused_seconds=options.device_unused_seconds
        )
        self.gate = Authentication(hub_store, gate)
        await self.gate.load(owner_token(home / TOKEN))
        self.library = SessionCatalogue(self.host, self._forget_state)
        self.states = SessionStates(self.library.page)
        self.keeper = SessionManager(
            self.host, runner_store.definitions, self._known, self.watch, self.library
        )
        self.prompts = PromptQueue(self.host, runner_store.prompts, self.keeper, self.watch)
        self.keeps = SessionOperations(
            self.host, runner_store, self.keeper, self.library, self.prompts.news
        )
        self.idling = IdleAgents(
            self.host, self.keeper, self.prompts, lambda: self.options.idle_agent_minutes
        )
        self.pushes = self._pushes(home, hub_store)
        tasks = IndependentTasks(await stack.enter_async_context(background_tasks()))
        self.recording.start(tasks)
        await self.host.restore_sessions()
        await self.library.start()
        await self.keeper.start(tasks)
        await self.keeps.start()
        await self.approvals.start(self.host, tasks)
        self.pushes.start(tasks)
        self.gate.devices.on_news = self.pushes.on_device
        self._unfollow = self.host.subscribe(None, 0, self._on_event)
        await self.prompts.start(tasks)
        tasks.start_soon(self.gate.keep_watch)
        tasks.start_soon(self.idling.run)
        tasks.start_soon(keep_tidy, runner_store, lambda: self.options.retention)

    async def _open_stores(self, home: Path) -> tuple[RunnerStore, HubStore]:
        """Open runner.db, which takes its tables over from an older hub.db, then hub.db."""
        enter, hub_path = self._stack.enter_async_context, home / HUB_DATABASE
        self.runner_database = await enter(
            open_database(home / RUNNER_DATABASE, RUNNER_TABLES, moved_from=hub_path)
        )
        hub_database = await enter(open_database(hub_path, HUB_TABLES, moved_away=MOVED))
        return RunnerStore(self.runner_database), HubStore(hub_database)

    def _pushes(self, home: Path, store: HubStore) -> PushService:
        origin = self.gate.public_origin
        options = PushOptions(
            key=push_key(home / PUSH_KEY),
            # Some push services refuse a subject that nobody could be reached at.
            subject=origin if origin.startswith("https:") else "mailto:quarterdeck@example.com",
            trusted=frozenset(self.options.push_services),
        )
        return PushService(store.push, self.gate.devices, self.approvals, self.library, options)

    def _host_options(self) -> HostOptions:
        storage = SqliteStorage(self.options.home / LOG, synchronous=self.options.synchronous)
        environment = self._known.environment
        return HostOptions(
            storage=storage,
            terminal=DefaultTerminalHandler(environ=environment.common()),
            inherit=environment.of,
            elicitation=("form", "url"),
            restart="on-crash",
            restart_limit=5,
            kill_timeout_ms=KILL_MS,
            on_permission=self.approvals.examine,
        )

    def _forget_state(self, session_id: str) -> None:
        self.states.forget(session_id)

    def _on_event(self, event: Event) -> None:
        self.watch.on_event(event)
        self.approvals.on_event(event)
        self.pushes.on_event(event)
        if event.type == "diagnostic" and event.payload["code"] == _LOG_FAILED:
            self.storage_failures += 1
            self.recording.on_failure()

    @property
    def is_healthy(self) -> bool:
        """Whether the log can be written."""
        return self.host.is_healthy

    @property
    def pending_approvals(self) -> int:
        return len(self.approvals.pending)

    @property
    def open_connections(self) -> int:
        """Requests and streams of all devices that are open now."""
        devices = self.gate.devices
        return sum(devices.live_count(device.id) for device in devices.all)

    # ---- sessions ------------------------------------------------------------------------------

    async def create_session(
        self,
        agent: str,
        *,
        cwd: str,
        mcp_servers: Sequence[Any] = (),
        additional_directories: Sequence[str] = (),
    ) -> SessionSnapshotWire:
        """Begin a session with an agent by its name; the agent is started if it does not run.

        Raises:
            RequestRejected: if there is no such agent.
            AcpError: if the agent cannot be started, or refuses.
        """
        running = await self.keeper.spawn_known(agent)
        return await self.host.create_session(
            running.agent_id,
            cwd=cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
        )

    async def delete_session(self, session_id: str) -> None:
        """Delete a session for ever; an agent that is not there any more need not know.

        Raises:
            RequestRejected: if there is none.
        """
        view = self.library.get(session_id)
        agent_id = view.agent_id if isinstance(view.agent_id, str) else None
        if self.host.get_session(session_id) is None and isinstance(view.agent, str):
            agent_id = await self._agent_to_tell(view.agent, session_id)
        await self.keeps.delete_session(agent_id, session_id)

    async def _agent_to_tell(self, name: str, session_id: str) -> str | None:
        """Return the agent that had a closed session; None if it cannot be started."""
        try:
            return (await self.keeper.spawn_known(name)).agent_id
        except (AcpError, RequestRejected) as error:
            message = f"session {session_id} is deleted here alone: {error.message}"
            self.host.diagnose("warn", "session/delete-skipped", message)
            return None

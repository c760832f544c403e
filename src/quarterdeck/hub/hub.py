"""The hub: what people connect to, over a runner.

    async with Hub(HubOptions(home=folder)) as hub, serving(hub) as address:
        session = await hub.runner.create_session("demo", cwd="/project")

The hub owns devices and their scopes, pairing, push and caches of views. It holds no session state
that could not be read from its runner again. It knows the runner as a `RunnerApi` only: by default
it builds a `Runner` in this process and ends it when it ends; a program that has a runner already
passes it, and the agents keep running when the hub ends.

A hub works without a port; `serving` and `serve_hub` put it on one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, assert_never

import anyio
from anyio import to_thread

from quarterdeck.errors import AcpError
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.auth.device import OWNER
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions
from quarterdeck.hub.auth.tokens import remove_owner_token
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.push.delivery import push_key
from quarterdeck.hub.push.service import PushOptions, PushService
from quarterdeck.hub.store import HUB_TABLES, MOVED, HubStore
from quarterdeck.hub.transcript_cache import Transcripts
from quarterdeck.hub.view_cache import SessionStates, ViewBudget
from quarterdeck.machine.free_memory import release_free_memory, resident_bytes
from quarterdeck.machine.private_files import private_folder
from quarterdeck.protocol import ERROR_CODES, ApprovalMismatchEvent
from quarterdeck.runner import (
    AgentRemoved,
    AgentUpdated,
    Diagnostic,
    HealthChanged,
    News,
    QueueChanged,
    RequestUpdated,
    Runner,
    RunnerApi,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.storage.database import Database, open_database
from quarterdeck.storage.reserve import Reserve
from quarterdeck.wire import IndependentTasks, background_tasks

DATABASE: Final = "hub.db"
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
    database: Database

    def __init__(
        self,
        options: HubOptions,
        runner: RunnerApi | None = None,
        *,
        parts: Sequence[Callable[[Hub], list[Endpoint]]] = (),
    ) -> None:
        """Without a `runner`, one of the same folder is built and belongs to the hub.

        `parts` make further endpoints of the hub.
        """
        self.options = options
        self.parts = tuple(parts)
        self.started_at = time.time()
        self._own_runner: Runner | None = None
        if runner is None:
            runner = self._own_runner = Runner(options.runner)
        self.runner: RunnerApi = runner
        views = ViewBudget(options.view_bytes)
        self.states = SessionStates(self.runner.read_events, views)
        self.transcripts = Transcripts(self.runner, views)
        self.log_health = LogHealth(self.runner.health)
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
        if self._own_runner is not None:
            # First: its lock keeps other processes out of the folder, and runner.db takes its
            # tables over from an older hub.db before that is opened.
            await stack.enter_async_context(self._own_runner)
        home = private_folder(options.home)
        reserve = Reserve(home / RESERVE)
        reserve.open()
        self.database = await stack.enter_async_context(
            open_database(home / DATABASE, HUB_TABLES, moved_away=MOVED)
        )
        store = HubStore(self.database, reserve)
        self.auth = Authentication(
            store,
            hub_key(home / HUB_KEY),
            AuthenticationOptions(
                listening=options.listening, unused_seconds=options.device_unused_seconds
            ),
        )
        remove_owner_token(home / OLD_TOKEN)
        await self.auth.load()
        self.push = self._push_service(home, store)
        tasks = IndependentTasks(await stack.enter_async_context(background_tasks()))
        self._tasks = tasks
        self.log_health.start(tasks)
        stack.callback(self.runner.subscribe_news(self._on_news))
        self.push.start(tasks)
        tasks.start_soon(self.auth.sweep_devices)
        tasks.start_soon(_give_memory_back)

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
                self.log_health.on_failure()
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
            case AgentUpdated() | AgentRemoved() | QueueChanged():
                pass  # streams report these
            case _:
                assert_never(news)

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
            "confinement": (before.confine, before.projects) != (options.confine, options.projects),
        }
        self.options = replace(
            self.options,
            agents=options.agents,
            policy=options.policy,
            idle_agent_minutes=options.idle_agent_minutes,
            retention=options.retention,
            confine=options.confine,
            projects=options.projects,
        )
        self.runner.reconfigure(self.options.runner)
        names = " and ".join(name for name, is_changed in changed.items() if is_changed)
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

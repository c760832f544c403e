"""`Adoption`: the foreign programs that a runner follows, and what is known of their sessions.

Each program that was adopted has a `ProgramFollower`, in a task of the runner. Which programs are
adopted is in runner.db, so it survives restarts. Sessions that were recorded stay when a program is
not followed any more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

import anyio
from msgspec import UNSET, Struct, UnsetType

from quarterdeck.errors import DatabaseFailed, RequestRejected
from quarterdeck.host import Host
from quarterdeck.host.log.emitter import now_ms
from quarterdeck.runner.actor import not_found
from quarterdeck.runner.adoption.follower import ProgramFollower
from quarterdeck.runner.adoption.hook_file import HookFile, ProgramHook
from quarterdeck.runner.adoption.hook_requests import HookRequests
from quarterdeck.runner.adoption.live import LiveProgram
from quarterdeck.runner.adoption.store import AdoptedProgram, AdoptionMode, AdoptionStore
from quarterdeck.views.context import (
    AdvisingAdapter,
    ForeignAdapter,
    ForeignSession,
    HookedAdapter,
    LiveAdapter,
)
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

SOCKET: Final = "adopt.sock"


class ForeignState(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a session that another program runs, or ran."""

    program: str
    """The name of its adapter."""
    title: str = ""
    """The name of the program, for people."""
    integration_method: str
    """How it is connected, in the words of the context protocol."""
    is_running: bool
    """Whether that program has it open now: then it can be continued only there."""
    status: str = "unknown"
    """idle, busy, waiting or unknown."""
    waiting_for: str = ""
    answers_requests: bool = False
    """Whether its permission requests can be answered here, too."""
    takes_commands: bool = False
    """Whether prompts reach that program now, and stop or steer what it does."""


class ForeignProgram(Struct, frozen=True, kw_only=True, rename="camel"):
    """A program whose sessions can be adopted."""

    name: str
    title: str
    integration_method: str
    is_installed: bool
    mode: AdoptionMode | UnsetType = UNSET
    """Absent if it is not followed."""
    folder: str = ""
    """Where its sessions are."""
    followed: int = 0
    """Sessions that are followed."""
    running: int = 0
    waiting_bytes: int = 0
    """How much is still to be read."""
    hook: ProgramHook | UnsetType = UNSET
    """Absent if its permission requests cannot be answered here by a hook."""
    advice: str = ""
    """What people do so that its requests can be answered here; empty if there is nothing."""


class FoundSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session of a foreign program on this machine."""

    session: ForeignSession
    is_adopted: bool
    """Whether it is followed; a session that was only recorded once is in the list of sessions."""


class Adoption:
    """Follows foreign programs, and answers what is known of their sessions."""

    def __init__(
        self, host: Host, store: AdoptionStore, home: Path, on_change: Callable[[str], None]
    ) -> None:
        """`home` is the runner's folder: hooks connect to a socket in it."""
        self._host = host
        self._home = home
        self._store = store
        self._on_change = on_change
        self.adapters: Mapping[str, ForeignAdapter] = {}
        self.followers: dict[str, ProgramFollower] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._hooked: set[str] = set()  # programs whose hook was there at the last look
        self._tasks: IndependentTasks | None = None

    async def start(self, tasks: IndependentTasks, adapters: Mapping[str, ForeignAdapter]) -> None:
        """Follow the programs that were adopted before."""
        self._tasks, self.adapters = tasks, adapters
        for program in await self._store.programs():
            if program.name in adapters:
                self._follow(program)
                await anyio.to_thread.run_sync(self._hook, adapters[program.name])
        tasks.start_soon(HookRequests(self._host, self).serve, self._home / SOCKET)

    def adapter(self, name: str) -> ForeignAdapter:
        """Return an adapter.

        Raises:
            RequestRejected: if there is none.
        """
        adapter = self.adapters.get(name)
        if adapter is None:
            names = ", ".join(self.adapters) or "none"
            raise not_found(f"program {name!r} to adopt", f"choose one of: {names}")
        return adapter

    async def adopt(self, name: str, mode: AdoptionMode) -> None:
        """Follow a program from now on; one that is followed with its past stays so."""
        self.adapter(name)
        follower = self.followers.get(name)
        if follower is None:
            program = AdoptedProgram(name, mode, now_ms())
        elif mode == "past":
            program = AdoptedProgram(name, mode, follower.program.since)
        else:
            return
        await self._store.follow(program)
        if follower is None:
            self._follow(program)
        else:
            follower.follow_past(program)

    async def install_hook(self, name: str) -> None:
        """Add the hook to the settings of a program.

        Raises:
            RequestRejected: if it has none, or its settings cannot be changed.
        """
        adapter: object = self.adapter(name)
        if not isinstance(adapter, HookedAdapter):
            raise RequestRejected("invalid", f"{name} has no hooks; adopt it without one")
        await anyio.to_thread.run_sync(self.hook_file(adapter).install)
        self._hooked.add(name)

    async def remove_hook(self, name: str) -> None:
        """Remove the hook from the settings of a program, if it is there.

        Raises:
            RequestRejected: if its settings cannot be changed.
        """
        adapter: object = self.adapter(name)
        if isinstance(adapter, HookedAdapter):
            config = self.adapter(name).get_data_paths().config
            await anyio.to_thread.run_sync(self.hook_file(adapter).remove, config)
            self._hooked.discard(name)

    async def stop(self, name: str) -> None:
        """Follow a program no more."""
        self.adapter(name)
        await self._store.forget(name)
        scope = self._scopes.pop(name, None)
        follower = self.followers.pop(name, None)
        if scope is not None:
            scope.cancel()
        for session_id in () if follower is None else tuple(follower.running):
            self._on_change(session_id)

    def _follow(self, program: AdoptedProgram) -> ProgramFollower:
        follower = ProgramFollower(
            self._host, self._store, self.adapter(program.name), program, self._on_change
        )
        self.followers[program.name] = follower
        scope = self._scopes[program.name] = anyio.CancelScope()
        assert self._tasks is not None
        self._tasks.start_soon(partial(self._run, follower, scope))
        return follower

    async def _run(self, follower: ProgramFollower, scope: anyio.CancelScope) -> None:
        adapter: object = self.adapter(follower.program.name)
        with scope:
            async with anyio.create_task_group() as tasks:
                if isinstance(adapter, LiveAdapter):
                    tasks.start_soon(_repeat, LiveProgram(self._host, adapter, follower).run)
                await _repeat(follower.run)

    # ---- what is known ---------------------------------------------------------------------

    async def programs(self) -> list[ForeignProgram]:
        return [await self._program(each) for each in self.adapters.values()]

    async def _program(self, adapter: ForeignAdapter) -> ForeignProgram:
        agent, follower = adapter.get_capabilities().agent, self.followers.get(adapter.name)
        return ForeignProgram(
            name=adapter.name,
            title=agent.display_name,
            integration_method=agent.integration_method,
            is_installed=await adapter.is_installed(),
            mode=UNSET if follower is None else follower.program.mode,
            folder=adapter.get_data_paths().sessions or "",
            followed=0 if follower is None else len(follower.sessions),
            running=0 if follower is None else len(follower.running),
            waiting_bytes=0 if follower is None else follower.waiting_bytes,
            hook=await anyio.to_thread.run_sync(self._hook, adapter),
            advice=_advice(adapter),
        )

    def _hook(self, adapter: ForeignAdapter) -> ProgramHook | UnsetType:
        name, hooked = adapter.name, cast("object", adapter)
        if not isinstance(hooked, HookedAdapter):
            return UNSET
        status = self.hook_file(hooked).status()
        (self._hooked.add if status.is_installed else self._hooked.discard)(name)
        return status

    def hook_file(self, adapter: HookedAdapter) -> HookFile:
        """Return the settings that the hook of a program is in."""
        return HookFile(adapter, adapter.hook_command(str(self._home / SOCKET)))

    async def found_sessions(self, name: str) -> list[FoundSession]:
        """Return the sessions of a program on this machine, those that changed last first."""
        adapter, follower = self.adapter(name), self.followers.get(name)
        found = await anyio.to_thread.run_sync(adapter.find_sessions)
        running = {each.id: each for each in await anyio.to_thread.run_sync(adapter.find_running)}
        followed = () if follower is None else follower.sessions
        return [
            FoundSession(
                session=_with_status(each, running.get(each.id)), is_adopted=each.id in followed
            )
            for each in sorted(found, key=lambda session: -session.changed_at)
        ]

    async def adopt_session(self, name: str, session_id: str) -> None:
        """Record one session of a program, and follow it.

        Raises:
            RequestRejected: if there is none.
            AcpError: if it was deleted or closed here.
        """
        adapter = self.adapter(name)
        found = await anyio.to_thread.run_sync(adapter.find_sessions)
        session = next((each for each in found if each.id == session_id), None)
        if session is None:
            raise not_found(f"session {session_id!r} of {name}", "list its sessions first")
        await self.adopt(name, "live")
        await self.followers[name].read_now(session)

    def state(self, session_id: str, name: str | None) -> ForeignState | None:
        """Return what is known of a session of a followed program."""
        follower = self.followers.get(name or "")
        if follower is None or (
            session_id not in follower.sessions and session_id not in follower.running
        ):
            return None
        running = follower.running.get(session_id)
        agent = self.adapters[follower.program.name].get_capabilities().agent
        is_live = self.live(session_id) is not None
        return ForeignState(
            program=follower.program.name,
            title=agent.display_name,
            integration_method=agent.integration_method,
            is_running=running is not None,
            status="unknown" if running is None else running.status,
            waiting_for="" if running is None else running.waiting_for,
            answers_requests=is_live or follower.program.name in self._hooked,
            takes_commands=is_live,
        )

    def live(self, session_id: str) -> LiveAdapter | None:
        """Return the adapter by which the program of a session takes commands now, if it does."""
        if self._host.foreign.is_ours(session_id):
            return None
        for name in self.followers:
            adapter: object = self.adapters[name]
            if isinstance(adapter, LiveAdapter) and adapter.is_live(session_id):
                return adapter
        return None

    async def interrupt(self, session_id: str) -> bool:
        """End the turn that the program of a session runs; return whether it takes commands.

        Raises:
            AcpError: if the program refuses.
        """
        adapter = self.live(session_id)
        if adapter is not None:
            await adapter.interrupt(session_id)
        return adapter is not None

    def check_free(self, session_id: str) -> None:
        """Refuse to open a session that another program has open.

        Raises:
            RequestRejected: with the program and its process.
        """
        for name, follower in self.followers.items():
            running = follower.running.get(session_id)
            if running is not None and not self._host.foreign.is_ours(session_id):
                title = self.adapters[name].get_capabilities().agent.display_name
                process = "" if running.pid is None else f" (process {running.pid})"
                message = (
                    f"session {session_id} is open in {title}{process};"
                    " continue it there, or close it there first"
                )
                raise RequestRejected("open-elsewhere", message)


_AGAIN_SECONDS = 5.0


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except DatabaseFailed as error:  # a full disk
            logger.warning("sessions are not followed", extra={"reason": str(error)})
        except Exception:
            logger.exception("following sessions failed; it starts again")
        await anyio.sleep(_AGAIN_SECONDS)


def _advice(adapter: object) -> str:
    return adapter.advice if isinstance(adapter, AdvisingAdapter) else ""


def _with_status(found: ForeignSession, running: ForeignSession | None) -> ForeignSession:
    if running is None:
        return found
    return ForeignSession(
        id=found.id,
        cwd=found.cwd,
        path=found.path,
        size=found.size,
        changed_at=found.changed_at,
        title=found.title or running.title,
        parent_id=found.parent_id,
        parent_call_id=found.parent_call_id,
        is_running=True,
        status=running.status,
        waiting_for=running.waiting_for,
        pid=running.pid,
    )

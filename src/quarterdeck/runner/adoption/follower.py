"""`ProgramFollower`: finds the sessions of one foreign program and records what is new in them.

Once a second it looks for running sessions and for files that have changed, and reads those piece
by piece: running sessions first, one piece each, then one piece of the oldest work that waits. So a
file of a gigabyte delays no other session, and memory stays flat. How often the files are looked
through depends on how long that takes: it may cost a small share of a core, and not more.

    a session                                  is followed
    that runs, or has changed since adoption   always
    of the past                                in the mode "past", or when it is asked for
    that a sub-agent of a followed one has     always
    that was deleted or closed here            never
    that an agent of this host has open        not now; what it records is skipped afterwards

A session that cannot be read is reported once, and tried again: soon at first, then less often.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio import CapacityLimiter
from msgspec import structs

from quarterdeck.errors import AcpError, QuarterdeckError, SourceRewritten
from quarterdeck.host import Host
from quarterdeck.host.log.emitter import now_ms
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.runner.adoption.positions import read_state
from quarterdeck.runner.adoption.store import AdoptedProgram, AdoptionStore, Position
from quarterdeck.views.context import ForeignAdapter, ForeignSession, SessionReader

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

TICK_SECONDS: Final = 0.5
_SCAN_SHARE: Final = 200.0  # a scan may take this fraction of the time: half a percent
_SAVE_SECONDS: Final = 2.0
_HELD_SECONDS: Final = 0.1
"""After which a session is read again whose reader waits for what comes first."""
_RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""After which a session that could not be read is tried again, each time in a row."""


class FollowedSession:
    """One session, and how far it was read."""

    def __init__(self, found: ForeignSession) -> None:
        self.found = found
        self.read_version: tuple[int, int] | None = None
        """Size and time of the file when all of it was read."""
        self.position = Position(found.id, {})
        self.reader: SessionReader | None = None
        self.was_ours = False
        self.is_unsaved = False
        self.problem = ""
        """Why it could not be read the last time."""
        self.failures = 0
        """How often in a row it could not be read."""
        self.retry_at = 0.0

    @property
    def version(self) -> tuple[int, int]:
        return self.found.size, self.found.changed_at

    def is_waiting(self, now: float) -> bool:
        """Return whether there may be something new to read."""
        return self.read_version != self.version and now >= self.retry_at


OnSessionChange = Callable[[str], None]
"""Takes a session whose program has another status of it."""


class ProgramFollower:
    """Follows one program until it is cancelled."""

    def __init__(
        self,
        host: Host,
        store: AdoptionStore,
        adapter: ForeignAdapter,
        program: AdoptedProgram,
        on_change: OnSessionChange,
    ) -> None:
        self._host = host
        self._store = store
        self._adapter = adapter
        self.program = program
        self._on_change = on_change
        self.sessions: dict[str, FollowedSession] = {}
        self.found: dict[str, ForeignSession] = {}
        self.running: dict[str, ForeignSession] = {}
        self._stored: dict[str, Position] = {}
        self._next_scan = 0.0
        self._next_save = 0.0
        self._limiter = CapacityLimiter(1)  # one thread for each program
        self._reading = anyio.Lock()
        self._hurry = anyio.Event()

    async def run(self) -> None:
        """Follow until cancelled; what was read is stored at the end, too."""
        self._stored = await self._store.positions(self.program.name)
        try:
            while True:
                await self._tick()
                with anyio.move_on_after(TICK_SECONDS):
                    await self._hurry.wait()
                self._hurry = anyio.Event()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await self._save()

    def follow_past(self, program: AdoptedProgram) -> None:
        """Follow as another mode says, from the next look on."""
        self.program = program
        self._next_scan = 0.0

    @property
    def waiting_bytes(self) -> int:
        """How much of the followed sessions is still to be read, about.

        Those that cannot be read do not count: they may never be.
        """
        readable = (each for each in self.sessions.values() if not each.problem)
        waiting = (each for each in readable if each.is_waiting(float("inf")))
        return sum(max(0, each.found.size - _offset(each)) for each in waiting)

    # ---- find ------------------------------------------------------------------------------

    async def _tick(self) -> None:
        now = time.monotonic()
        await self._look_for_running()
        if now >= self._next_scan:
            self._next_scan = now + TICK_SECONDS
            took = await self._scan()
            if self._next_scan:  # else another one was asked for meanwhile
                self._next_scan = now + max(TICK_SECONDS, took * _SCAN_SHARE)
        deadline = now + TICK_SECONDS
        while self._waiting() and time.monotonic() < deadline:
            await self._read_round()
        if time.monotonic() >= self._next_save:
            await self._save()

    async def _look_for_running(self) -> None:
        found = await self._on_thread(self._adapter.find_running)
        before, self.running = self.running, {each.id: each for each in found}
        for session_id in before.keys() | self.running.keys():
            if before.get(session_id) != self.running.get(session_id):
                self._on_change(session_id)
                self._next_scan = 0.0

    async def _scan(self) -> float:
        """Look through the files; return the seconds of CPU time that it took.

        On a busy machine it takes longer by the clock, and costs no more.
        """
        sessions, took = await self._on_thread(partial(_timed, self._adapter.find_sessions))
        began = time.thread_time()
        self._note([self._placed(each) for each in sessions])
        return took + time.thread_time() - began

    def _note(self, found: list[ForeignSession]) -> None:
        self.found = {each.id: each for each in found}
        for each in sorted(found, key=lambda session: -session.changed_at):
            if each.id in self.sessions:
                self.sessions[each.id].found = each
            elif self._is_wanted(each):
                self._follow(each)

    def _placed(self, found: ForeignSession) -> ForeignSession:
        """Return a session with the folder that its process works in, if its file has none yet."""
        running = None if found.cwd else self.running.get(found.id)
        return found if running is None else structs.replace(found, cwd=running.cwd)

    def _is_wanted(self, found: ForeignSession) -> bool:
        if not found.cwd:
            return False  # nothing was written yet
        return (
            self.program.mode == "past"
            or found.id in self.running
            or found.changed_at >= self.program.since
            or found.parent_id in self.sessions
        )

    def _follow(self, found: ForeignSession) -> FollowedSession:
        followed = self.sessions[found.id] = FollowedSession(found)
        stored = self._stored.pop(found.id, None)
        if stored is not None:
            followed.position = stored
        return followed

    # ---- read ------------------------------------------------------------------------------

    def _waiting(self) -> list[FollowedSession]:
        now = time.monotonic()
        return [each for each in self.sessions.values() if each.is_waiting(now)]

    async def _read_round(self) -> None:
        """Read a piece of each running session, and one of the first of the others."""
        waiting = self._waiting()
        running = [each for each in waiting if each.found.id in self.running]
        others = [each for each in waiting if each.found.id not in self.running]
        for each in (*running, *others[:1]):
            await self._read(each)

    async def read_now(self, found: ForeignSession) -> FollowedSession:
        """Follow a session and read all that is there; for one that a caller waits for.

        Raises:
            AcpError: if it was deleted or closed here.
        """
        followed = self.sessions.get(found.id) or self._follow(found)
        followed.retry_at, followed.read_version = 0.0, None
        while followed.is_waiting(time.monotonic()):
            await self._read(followed)
        if followed.problem:
            raise AcpError(ERROR_CODES["session_closed"], followed.problem)
        await self._host.wait_stored()
        return followed

    def look_now(self) -> None:
        """Look for sessions at once."""
        self._next_scan = 0.0
        self._hurry.set()

    async def read_more(self, session_id: str) -> bool:
        """Read what is new in a session, as its program reports; return whether it is followed."""
        followed = self.sessions.get(session_id)
        if followed is None:
            return False
        followed.read_version = None
        while followed.is_waiting(time.monotonic()):
            await self._read(followed)
        return True

    async def _read(self, followed: FollowedSession) -> None:
        """Read one piece; a session that cannot be read is tried again later."""
        async with self._reading:
            try:
                await self._read_piece(followed)
                followed.problem, followed.failures = "", 0
            except Exception as error:  # noqa: BLE001 - one session never stops the others
                _postpone(followed, error)

    async def _read_piece(self, followed: FollowedSession) -> None:
        foreign, found, version = self._host.foreign, followed.found, followed.version
        if foreign.is_ours(found.id):
            followed.was_ours, followed.reader, followed.read_version = True, None, version
            return
        reader = followed.reader
        if reader is None or foreign.last_number(found.id) != followed.position.seq:
            reader = await self._open(followed)
        if followed.was_ours:
            reader.skip(now_ms())
            followed.was_ours = False
        await foreign.room()
        try:
            updates = await self._on_thread(reader.read)
        except SourceRewritten as error:
            logger.warning("a session is read again", extra={"reason": str(error)})
            foreign.reset(self._adapter.name, found.id)
            followed.position, followed.reader = Position(found.id, {}), None
            return
        if not foreign.can_record(found.id):
            followed.was_ours = foreign.is_ours(found.id)
            followed.reader, followed.read_version = None, version
            return
        if not updates and reader.is_holding:
            followed.retry_at = time.monotonic() + _HELD_SECONDS
            return
        if not updates:
            followed.reader, followed.read_version = None, version
            return
        foreign.record(self._adapter.name, found.id, updates)
        last = updates[-1]
        seq = foreign.last_number(found.id)
        followed.position = Position(found.id, last.cursor, last.at, seq)
        followed.is_unsaved = True

    async def _open(self, followed: FollowedSession) -> SessionReader:
        """Make a session known; find out where to continue if others have added to its log."""
        found, skip_until = followed.found, 0
        last_seq = await self._host.foreign.open(self._adapter.name, found)
        if last_seq != followed.position.seq:
            state = await read_state(self._host, found.id, followed.position)
            followed.position, skip_until = state.position, state.skip_until
        position = followed.position
        reader = self._adapter.open_reader(found, position.cursor or None, position.at)
        if skip_until:
            reader.skip(skip_until)
        followed.reader = reader
        return reader

    async def _save(self) -> None:
        """Store positions, after the events that they belong to."""
        self._next_save = time.monotonic() + _SAVE_SECONDS
        unsaved = [each for each in self.sessions.values() if each.is_unsaved]
        if not unsaved:
            return
        positions = [each.position for each in unsaved]
        try:
            await self._host.wait_stored()
            await self._store.save(self.program.name, positions)
        except QuarterdeckError as error:  # the log has the cursors, too
            logger.warning("positions could not be stored", extra={"reason": str(error)})
            return
        for each, position in zip(unsaved, positions, strict=True):
            each.is_unsaved = each.position is not position

    async def _on_thread(self, look: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(look, limiter=self._limiter)


def _timed(look: Callable[[], _T]) -> tuple[_T, float]:
    """Return what a function returns, and the CPU time that it took."""
    began = time.thread_time()
    return look(), time.thread_time() - began


def _postpone(followed: FollowedSession, error: Exception) -> None:
    """Try a session again later; report why, once."""
    pause = _RETRY_SECONDS[min(followed.failures, len(_RETRY_SECONDS) - 1)]
    followed.reader, followed.failures = None, followed.failures + 1
    followed.retry_at = time.monotonic() + pause
    reason = str(error) or type(error).__name__
    if followed.problem == reason:
        return
    followed.problem = reason
    is_expected = isinstance(error, OSError | QuarterdeckError)
    level = logging.INFO if is_expected else logging.ERROR
    facts = {"session": followed.found.id, "reason": reason}
    message = "a session of another program is not read"
    logger.log(level, message, extra=facts, exc_info=None if is_expected else error)


def _offset(followed: FollowedSession) -> int:
    offset = followed.position.cursor.get("offset", 0)
    return offset if isinstance(offset, int) else 0

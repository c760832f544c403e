"""Caches of views: one budget of bytes for all of them, and states at any event.

Views are folded from the log on first use, page by page, and continued from where they stopped.
They can be dropped at any time, so what they take is bounded by bytes and not by the number of
sessions: `ViewBudget` holds the sizes of all views and drops those that were read least recently.
A size is an estimate, the bytes of the events that were folded times a factor that was measured:
adding it up costs nothing.

    view          what is kept                                    of a large session
    states        one of every few thousand events; they share    refused above `STATE_BYTES`:
                  what did not change                             a state holds every message
    transcripts   parts of some megabytes (`transcript_cache`)    the parts that are read

**One large fold at a time.** A fold that has read more than `LIGHT_BYTES` waits for its turn
(`ViewBudget.heavy`), so that many readers of many large sessions need the memory of one. After
`STEP_BYTES` of events other tasks run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import anyio
from anyio import lowlevel, to_thread

from quarterdeck.errors import EventInvalid, LogDamaged, RequestRejected
from quarterdeck.host.log.stream import LEAST, next_limit
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import SessionState, decode_event, initial_state, reduce, to_json

VIEW_BYTES: Final = 32 << 20
"""What all views may take, unless the options name another size."""
LIGHT_BYTES: Final = 2 << 20
"""Events that a fold reads before it waits for its turn among the large ones."""
STEP_BYTES: Final = 256 << 10
STEP_EVENTS: Final = 1_000
"""Events folded before other tasks run: a few milliseconds."""
STATE_BYTES: Final = 32 << 20
"""Events of which a state is made; the state of more is refused."""
EVERY: Final = 5_000  # events between two states that are kept
PAGE: Final = 500  # events that are read for a state at a time; EVERY is a multiple
_STATE_FACTOR: Final = 2  # bytes of a state for each byte of its events: 1 to 2
_RESET: Final = b'{"type":"session-reset"'

ReadPage = Callable[[str, int, int], Awaitable[list[bytes]]]


class _Held(NamedTuple):
    size: int
    drop: Callable[[], None]


class ViewBudget:
    """The sizes of all views that are kept; the least recently read are dropped first."""

    def __init__(self, most_bytes: int = VIEW_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[object, _Held] = OrderedDict()
        self.used = 0
        """Bytes, estimated."""
        self.heavy = anyio.Lock()
        """Held while a large fold runs."""

    def hold(self, key: object, size: int, drop: Callable[[], None]) -> None:
        """Count a view that was just read, and drop others if there are too many bytes.

        `drop` is called when this view has to go; a view larger than the budget goes at once.
        """
        self.release(key)
        self._held[key] = _Held(size, drop)
        self.used += size
        while self.used > self._most:
            oldest, held = self._held.popitem(last=False)
            self.used -= held.size
            held.drop()
            if oldest == key:
                return

    def release(self, key: object) -> None:
        """Count a view no longer."""
        held = self._held.pop(key, None)
        if held is not None:
            self.used -= held.size


class LogPages:
    """Reads the pages of a log for a fold, in turns with other large ones; a context manager."""

    def __init__(self, read: ReadPage, session_id: str, budget: ViewBudget) -> None:
        self._read = read
        self._session_id = session_id
        self._budget = budget
        self._limit = LEAST
        self._bytes = 0
        self._turn = AsyncExitStack()
        self._is_heavy = False

    async def __aenter__(self) -> LogPages:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self._turn.aclose()

    async def after(self, seq: int, most: int) -> list[bytes]:
        """Return the next events after a number; none if there are no more."""
        if self._bytes > LIGHT_BYTES and not self._is_heavy:
            await self._turn.enter_async_context(self._budget.heavy)
            self._is_heavy = True
        page = await self._read(self._session_id, seq, min(self._limit, most))
        self._limit = next_limit(page)
        self._bytes += sum(map(len, page))
        return page


async def read_some(
    read: ReadPage, session_id: str, after: int, limit: int, most_bytes: int
) -> list[bytes]:
    """Return the events after a number: `limit` of them, or fewer if they have `most_bytes`.

    Raises:
        LogDamaged: if the very first cannot be read; one further on ends the page before it.
    """
    events: list[bytes] = []
    size, step = 0, LEAST
    while size < most_bytes and len(events) < limit:
        wanted = min(step, limit - len(events))
        try:
            page = await read(session_id, after, wanted)
        except LogDamaged:
            if not events:
                raise
            break
        events += page
        if len(page) < wanted:
            break
        size += sum(map(len, page))
        after = _number(page[-1], after + len(page))
        step = next_limit(page)
    return events


def _number(data: bytes, otherwise: int) -> int:
    try:
        return decode_event(data).seq
    except EventInvalid:
        return otherwise


async def in_steps(page: list[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield a page in short runs, and let other tasks run between them."""
    for run in _runs(page):
        yield run
        await lowlevel.checkpoint()


def _runs(page: list[bytes]) -> Iterator[list[bytes]]:
    run: list[bytes] = []
    size = 0
    for data in page:
        run.append(data)
        size += len(data)
        if size >= STEP_BYTES or len(run) >= STEP_EVENTS:
            yield run
            run, size = [], 0
    if run:
        yield run


class _Kept(NamedTuple):
    """A state of a session."""

    seq: int
    state: SessionState
    size: int
    """Of the events in it."""


class _SessionStates:
    """States of one session, by the seq of their last event."""

    def __init__(self, session_id: str) -> None:
        self.kept = [_Kept(0, initial_state(session_id), 0)]
        self.head = self.kept[0]
        self.too_large: tuple[int, int] | None = None
        """The states from one event to another, both included, are too large."""
        self.lock = anyio.Lock()  # one caller reads the log, the others find it read

    def nearest(self, seq: int) -> _Kept:
        if self.head.seq <= seq:
            return self.head
        return self.kept[bisect_right(self.kept, seq, key=lambda each: each.seq) - 1]

    def keep(self, kept: _Kept) -> None:
        if kept.seq > self.head.seq:
            self.head = kept
        if kept.seq >= self.kept[-1].seq + EVERY:
            self.kept.append(kept)

    @property
    def size(self) -> int:
        return self.head.size * _STATE_FACTOR


class SessionStates:
    """Folds logs into states."""

    def __init__(
        self,
        read: ReadPage,
        budget: ViewBudget | None = None,
        *,
        most_bytes: int = STATE_BYTES,
    ) -> None:
        """`most_bytes` of events are folded into one state at most."""
        self._read = read
        self._budget = budget or ViewBudget()
        self._most = most_bytes
        self._sessions: dict[str, _SessionStates] = {}
        self._encoding = anyio.CapacityLimiter(1)

    async def at(self, session_id: str, seq: int) -> SessionState:
        """Return the state after the event `seq`, which is there.

        Raises:
            RequestRejected: if the session is too large for a state.
        """
        states = self._sessions.get(session_id)
        if states is None:
            states = self._sessions[session_id] = _SessionStates(session_id)
        async with states.lock:
            try:
                return await self._fold(session_id, states, seq)
            finally:
                self._hold(session_id, states)

    async def encoded_at(self, session_id: str, seq: int) -> bytes:
        """Return the state after an event as JSON; made on a thread, one at a time.

        Raises:
            RequestRejected: if the session is too large for a state.
        """
        state = await self.at(session_id, seq)
        return await to_thread.run_sync(_encoded, state, limiter=self._encoding)

    def forget(self, session_id: str) -> None:
        """Forget the states of a deleted session."""
        self._sessions.pop(session_id, None)
        self._budget.release(("state", session_id))

    def _hold(self, session_id: str, states: _SessionStates) -> None:
        if self._sessions.get(session_id) is not states:
            return  # forgotten while it was read

        def drop() -> None:
            if self._sessions.get(session_id) is states:
                del self._sessions[session_id]

        overhead = 4_096  # of a session that has no events
        self._budget.hold(("state", session_id), states.size + overhead, drop)

    async def _fold(self, session_id: str, states: _SessionStates, seq: int) -> SessionState:
        at = states.nearest(seq)
        if states.too_large is not None and at.seq < states.too_large[0] <= seq:
            at = await self._after_reset(session_id, states, states.too_large, seq)
        async with LogPages(self._read, session_id, self._budget) as pages:
            while at.seq < seq:
                page = await pages.after(at.seq, min(PAGE - at.seq % PAGE, seq - at.seq))
                if not page:
                    break  # its events were deleted
                async for run in in_steps(page):
                    at = _folded(at, run, seq)
                    if at.size > self._most:
                        at = await self._after_reset(session_id, states, (at.seq, at.seq), seq)
                        break  # read on after the reset
                    states.keep(at)
        return at.state

    async def _after_reset(
        self, session_id: str, states: _SessionStates, too_large: tuple[int, int], seq: int
    ) -> _Kept:
        """Return the state at the next reset of a log, which is small again.

        Raises:
            RequestRejected: if there is none up to `seq`.
        """
        first, reached = too_large
        while reached < seq:
            page = await self._read(session_id, reached, PAGE)
            for number, data in enumerate(page, reached + 1):
                if data.startswith(_RESET):
                    states.too_large = (first, number - 1)
                    at = _folded(_Kept(number - 1, initial_state(session_id), 0), [data], number)
                    if at.seq <= seq:
                        states.keep(at)
                        return at
            reached = min(reached + len(page), seq) if page else seq
        states.too_large = (first, reached)
        raise _too_large(session_id, self._most)


def _folded(at: _Kept, page: list[bytes], most: int) -> _Kept:
    seq, state, size = at
    reached = seq + len(page)
    for data in page:
        try:
            event = decode_event(data)
        except EventInvalid:
            continue  # damaged; it does not hide the others
        if event.seq > most:
            break
        size = 0 if data.startswith(_RESET) else size + len(data)
        state, seq = reduce(state, event), event.seq
    return _Kept(min(max(seq, reached), most), state, size)


def _encoded(state: SessionState) -> bytes:
    return encode_json(to_json(state))


def _too_large(session_id: str, most: int) -> RequestRejected:
    message = (
        f"session {session_id} has more than {most >> 20} MiB of events, too many for one state;"
        " read its transcript or its history page by page"
    )
    return RequestRejected("too-large", message)

"""The state of a session at any of its events, in time that does not grow with its log.

States share what did not change, so keeping one of every few thousand events costs little more
than keeping the last. The first look at a session reads its log once, page by page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from quarterdeck.errors import EventInvalid
from quarterdeck.protocol import SessionState, decode_event, initial_state, reduce

EVERY: Final = 5_000  # events between two states that are kept
PAGE: Final = 500  # events that are folded before others get their turn
SESSIONS: Final = 64  # sessions whose states are kept: those looked at last

ReadPage = Callable[[str, int, int], Awaitable[list[bytes]]]


class _Kept:
    """States of one session, by the seq of their last event."""

    def __init__(self, session_id: str) -> None:
        self.seqs = [0]
        self.states = [initial_state(session_id)]
        self.head = (0, self.states[0])
        self.lock = anyio.Lock()  # one reads the log, others find it read

    def nearest(self, seq: int) -> tuple[int, SessionState]:
        if self.head[0] <= seq:
            return self.head
        place = bisect_right(self.seqs, seq) - 1
        return self.seqs[place], self.states[place]

    def keep(self, seq: int, state: SessionState) -> None:
        if seq > self.head[0]:
            self.head = (seq, state)
        if seq >= self.seqs[-1] + EVERY:
            self.seqs.append(seq)
            self.states.append(state)


class States:
    """Folds logs into states."""

    def __init__(self, read: ReadPage) -> None:
        self._read = read
        self._sessions: OrderedDict[str, _Kept] = OrderedDict()

    async def at(self, session_id: str, seq: int) -> SessionState:
        """Return the state after the event `seq`, which is there."""
        kept = self._sessions.get(session_id)
        if kept is None:
            kept = self._sessions[session_id] = _Kept(session_id)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session_id)
        async with kept.lock:
            return await self._fold(session_id, kept, seq)

    def forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    async def _fold(self, session_id: str, kept: _Kept, seq: int) -> SessionState:
        after, state = kept.nearest(seq)
        while after < seq:
            page = await self._read(session_id, after, min(PAGE, seq - after))
            if not page:
                break  # its events were deleted
            state, reached = _folded(state, page, seq)
            after = max(reached, after + len(page))
            kept.keep(min(after, seq), state)
        return state


def _folded(state: SessionState, page: list[bytes], most: int) -> tuple[SessionState, int]:
    reached = 0
    for data in page:
        try:
            event = decode_event(data)
        except EventInvalid:
            continue  # damaged; it does not hide the others
        if event.seq > most:
            break
        state, reached = reduce(state, event), event.seq
    return state, reached

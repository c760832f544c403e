"""Caches of views: states at any event, and transcripts, of the sessions that clients read last.

Both are folded from the log on first use, page by page, and continued from where they stopped.
They can be dropped at any time. States share what did not change, so keeping one of every few
thousand events costs little more than keeping the last, and the state at any event is folded from
the nearest one in time that does not grow with the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio import lowlevel

from quarterdeck.errors import EventInvalid
from quarterdeck.host.log.stream import FIRST_LIMIT, next_limit
from quarterdeck.protocol import SessionState, decode_event, initial_state, reduce
from quarterdeck.runner import RunnerApi
from quarterdeck.views.transcript import Transcript

EVERY: Final = 5_000  # events between two states that are kept
PAGE: Final = 500  # events that are folded before other tasks run
SESSIONS: Final = 64  # sessions whose states are kept: those read last

ReadPage = Callable[[str, int, int], Awaitable[list[bytes]]]


class _Kept:
    """States of one session, by the seq of their last event."""

    def __init__(self, session_id: str) -> None:
        self.seqs = [0]
        self.states = [initial_state(session_id)]
        self.head = (0, self.states[0])
        self.lock = anyio.Lock()  # one caller reads the log, the others find it read

    def nearest(self, seq: int) -> tuple[int, SessionState]:
        if self.head[0] <= seq:
            return self.head
        index = bisect_right(self.seqs, seq) - 1
        return self.seqs[index], self.states[index]

    def keep(self, seq: int, state: SessionState) -> None:
        if seq > self.head[0]:
            self.head = (seq, state)
        if seq >= self.seqs[-1] + EVERY:
            self.seqs.append(seq)
            self.states.append(state)


class SessionStates:
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


EVENTS_PER_STEP: Final = 1000
"""Events folded before other tasks get their turn: a few milliseconds."""
TRANSCRIPTS: Final = 32
"""Transcripts that are kept; the least recently read goes first."""


@dataclass
class _KeptTranscript:
    transcript: Transcript
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """One caller reads the log, the others find it read."""


class Transcripts:
    """The transcripts of the sessions that clients read last."""

    def __init__(self, runner: RunnerApi) -> None:
        self._runner = runner
        self._kept: OrderedDict[str, _KeptTranscript] = OrderedDict()

    async def get(self, session_id: str) -> Transcript:
        """Return a session's transcript up to its newest event.

        Raises:
            RequestRejected: if there is no such session.
        """
        head = self._runner.session(session_id).last_seq
        kept = self._kept.get(session_id)
        if kept is None or kept.transcript.seq > head:  # a deleted session's id may be used again
            kept = self._kept[session_id] = _KeptTranscript(Transcript(session_id))
            if len(self._kept) > TRANSCRIPTS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(session_id)
        async with kept.lock:
            transcript, limit = kept.transcript, FIRST_LIMIT
            while page := await self._runner.read_events(session_id, transcript.seq, limit):
                limit = next_limit(page)
                for start in range(0, len(page), EVENTS_PER_STEP):
                    _fold(transcript, page[start : start + EVENTS_PER_STEP])
                    await lowlevel.checkpoint()
        return transcript


def _fold(transcript: Transcript, page: list[bytes]) -> None:
    after = transcript.seq
    for data in page:
        try:
            transcript.apply_stored(data)
        except EventInvalid:
            continue  # one damaged event does not hide the others
    transcript.seq = max(transcript.seq, after + len(page))

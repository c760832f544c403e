"""`Transcripts`: the transcripts of sessions, of which only the parts that are read are in memory.

A transcript is kept as parts, each made of some megabytes of events. The newest part grows with
the log; the others are folded again from their events when a client pages back to them. Which
events a part has is decided by the log alone, so a part that is folded again is the same:

    a part ends    after the event …                                     beyond
    usually        that ends a turn                                      `PART_BYTES`
    else           of any entry that is no message: none continues       2 * `PART_BYTES`
    at worst       that comes next: the message continues as another     4 * `PART_BYTES`
                   entry in the next part

A tool call is an entry of the part in which it begins. Its updates may follow in later parts, so a
part is read on beyond its end until all its calls have ended, for `PART_BYTES` at most.

The index of a large session (where its parts begin) is small and stays while it is among the last
`SESSIONS` that were read; without it the log is read once from its beginning. All else is counted
in the `ViewBudget`, which all views share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from msgspec.structs import replace

from quarterdeck.errors import EventInvalid
from quarterdeck.hub.view_cache import LogPages, ReadPage, ViewBudget, in_steps
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import SessionState, initial_state, to_json
from quarterdeck.runner import RunnerApi
from quarterdeck.views.entries import Entry
from quarterdeck.views.transcript import Transcript

PART_BYTES: Final = 4 << 20
SESSIONS: Final = 256
"""Sessions whose index is kept: those read last."""
_FACTOR: Final = 2  # bytes of a transcript for each byte of its events: 0.5 to 2.2
_OVERHEAD: Final = 4_096  # of a part that has no events
_MOST: Final = 10_000  # events in a page
_UPDATES: Final = (
    b'{"type":"tool-call-update"',
    b'{"type":"terminal-output"',
    b'{"type":"tool-call-content-chunk"',
    b'{"type":"terminal-update"',
)


class _Part:
    """A part of a transcript: the entries that begin after one event and up to another."""

    def __init__(self, after: int, state: SessionState) -> None:
        self.after = after
        self.until: int | None = None
        """The last event of the part; None in the newest, which grows."""
        self.state = state
        """The state before the part, without entries; only the newest needs all of it."""
        self.size = 0
        """Bytes of the events that were folded."""
        self.ahead = 0
        """Bytes of events beyond the end that were looked through."""
        self.reached = after
        """The last event that was looked at."""
        self.transcript: Transcript | None = None

    def drop(self) -> None:
        self.transcript = None
        self.size = self.ahead = 0
        self.reached = self.after

    def begin(self, session_id: str) -> Transcript:
        """Return the transcript; an empty one if it was dropped."""
        if self.transcript is None:
            self.transcript = Transcript(session_id, after=self.after, state=self.state)
        return self.transcript

    @property
    def is_complete(self) -> bool:
        """Whether nothing in the log can change it any more."""
        if self.until is None or self.transcript is None or self.reached < self.until:
            return False
        return self.ahead >= PART_BYTES or not self.transcript.has_running_calls

    def take(self, data: bytes) -> bool:
        """Add the next event of the newest part; return whether the part ends with it."""
        assert self.transcript is not None
        _apply(self.transcript, data)
        self.size += len(data)
        self.reached = self.transcript.seq
        if self.size < PART_BYTES:
            return False
        if self.transcript.is_at_turn_end or self.size >= 4 * PART_BYTES:
            return True
        return self.size >= 2 * PART_BYTES and not self.transcript.is_in_message

    def take_again(self, run: list[bytes]) -> None:
        """Add the next events of an older part, or of what follows it, until it is complete."""
        for data in run:
            if self.is_complete:
                return
            self._take_again(data)

    def _take_again(self, data: bytes) -> None:
        assert self.transcript is not None
        assert self.until is not None
        self.reached += 1
        if self.reached <= self.until:
            _apply(self.transcript, data)
            self.size += len(data)
            self.reached = self.transcript.seq
            return
        self.ahead += len(data)
        if data.startswith(_UPDATES):
            seq = self.transcript.seq
            _apply(self.transcript, data)
            self.reached = max(self.reached, self.transcript.seq)
            self.transcript.seq = seq


class SessionTranscript:
    """The transcript of one session, while its reader has it (`Transcripts.read`)."""

    def __init__(
        self, read: ReadPage, budget: ViewBudget, session_id: str, forget: Callable[[], None]
    ) -> None:
        """`forget` is called when the index has to go."""
        self._read = read
        self._budget = budget
        self._session_id = session_id
        self._forget = forget
        self._parts = [_Part(0, initial_state(session_id))]
        self._newest = Transcript(session_id)
        self.lock = anyio.Lock()
        """One caller reads the log, the others find it read."""

    @property
    def position(self) -> int:
        """The newest event that was read; less if the newest part was dropped."""
        return self._parts[-1].reached

    @property
    def seq(self) -> int:
        """The newest event in it."""
        return self._newest.seq

    @property
    def state(self) -> SessionState:
        """The state without messages and, in a large session, without older tool calls."""
        return self._newest.state

    async def older(self, before: int | None) -> AsyncGenerator[Entry]:
        """Yield the entries whose `seq` is less than `before`, the newest first."""
        for part in reversed(self._parts):
            if before is not None and part.after + 1 >= before:
                continue
            for entry in (await self._whole(part)).older(before):
                yield entry

    async def entry(self, seq: int) -> Entry | None:
        """Return the entry that starts with the event `seq`."""
        for part in reversed(self._parts):
            if part.after < seq:
                return (await self._whole(part)).entry(seq)
        return None

    async def read_to_end(self) -> None:
        """Read what was added to the log."""
        part = self._parts[-1]
        self._budget.release(part)  # it must not be dropped while it is read
        self._newest = part.begin(self._session_id)
        try:
            async with LogPages(self._read, self._session_id, self._budget) as pages:
                while page := await pages.after(part.reached, _MOST):
                    least = part.reached + len(page)  # damaged events have numbers, too
                    async for run in in_steps(page):
                        for data in run:
                            part = self._add(part, data)
                    part.reached = max(part.reached, least)
        finally:
            self._newest = part.begin(self._session_id)
            self._hold(part)

    def finish(self) -> None:
        """Keep nothing but what is counted: its reader has read."""
        self._newest = _NOTHING

    def release(self) -> None:
        """Count nothing of it any more."""
        self._budget.release(self)
        for part in self._parts:
            self._budget.release(part)

    def _add(self, part: _Part, data: bytes) -> _Part:
        """Add an event to the newest part; return the part that is the newest after it."""
        ends = part.take(data)
        assert part.transcript is not None
        if len(self._parts) > 1 and part.transcript.begins > part.after:
            for each in self._parts[:-1]:  # a reset: nothing before it is shown
                self._budget.release(each)
            self._parts = [part]
        if not ends:
            return part
        newest = _Part(part.reached, _without_entries(part.transcript.state))
        newest.begin(self._session_id)
        part.until = part.reached
        # All that the entries of an older part need.
        part.state = replace(initial_state(self._session_id), connection=part.state.connection)
        self._parts.append(newest)
        self._hold(part)
        self._budget.hold(self, len(encode_json(to_json(newest.state))) * _FACTOR, self._forget)
        return newest

    async def _whole(self, part: _Part) -> Transcript:
        """Return the transcript of a part, read again if it was dropped."""
        if part is self._parts[-1]:
            return self._newest
        self._budget.release(part)
        transcript = part.begin(self._session_id)
        try:
            async with LogPages(self._read, self._session_id, self._budget) as pages:
                while not part.is_complete and (page := await pages.after(part.reached, _MOST)):
                    async for run in in_steps(page):
                        part.take_again(run)
        finally:
            self._hold(part)
        return transcript

    def _hold(self, part: _Part) -> None:
        self._budget.hold(part, part.size * _FACTOR + _OVERHEAD, part.drop)


_NOTHING: Final = Transcript("")


class Transcripts:
    """The transcripts of the sessions that clients read last."""

    def __init__(self, runner: RunnerApi, budget: ViewBudget | None = None) -> None:
        self._runner = runner
        self._budget = budget or ViewBudget()
        self._sessions: OrderedDict[str, SessionTranscript] = OrderedDict()

    @asynccontextmanager
    async def read(self, session_id: str) -> AsyncIterator[SessionTranscript]:
        """Lend a session's transcript, up to its newest event; it does not grow meanwhile.

        Raises:
            RequestRejected: if there is no such session.
        """
        head = self._runner.session(session_id).last_seq
        kept = self._sessions.get(session_id)
        if kept is None or kept.position > head:  # a deleted session's id may be used again
            self.forget(session_id)
            kept = self._sessions[session_id] = SessionTranscript(
                self._runner.read_events,
                self._budget,
                session_id,
                lambda: self.forget(session_id),
            )
            if len(self._sessions) > SESSIONS:
                self.forget(next(iter(self._sessions)))
        self._sessions.move_to_end(session_id)
        async with kept.lock:
            await kept.read_to_end()
            try:
                yield kept
            finally:
                kept.finish()

    def forget(self, session_id: str) -> None:
        """Forget the transcript of a session."""
        kept = self._sessions.pop(session_id, None)
        if kept is not None:
            kept.release()


def _apply(transcript: Transcript, data: bytes) -> None:
    try:
        transcript.apply_stored(data)
    except EventInvalid:
        transcript.seq += 1  # one damaged event does not hide the others


def _without_entries(state: SessionState) -> SessionState:
    empty = initial_state(state.session_id)
    return replace(
        state, messages=empty.messages, tool_calls=empty.tool_calls, terminals=empty.terminals
    )

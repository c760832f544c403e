"""The positions of all events in a JSONL log, in memory that does not grow with the events.

There are three kinds of line, distinguished by shape, as acpjs writes them:

1. `{"kind":"session-meta","sessionId":…,"cwd":…,"additionalDirectories":…,"lifecycle":…}`: the last
   one of a session counts. `lastSeq` is our addition: events up to it are deleted.
2. an event of a session: a `sessionId`, no `kind`.
3. an event of the host: neither. It is kept and not read.

Anything else is malformed: skipped, counted and kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.storage.contract import META_KIND, SessionMeta, decode_meta
from quarterdeck.storage.integrity import name_checksum
from quarterdeck.storage.mark import Slot

RUN_BYTES: Final = 128 << 10
"""The extent of one run, and so the most that a page reads in vain."""


class EventLine(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of an event that the index needs; `session_id` is unset for host events."""

    type: str
    seq: int
    session_id: str | UnsetType = UNSET
    kind: UnsetType | str = UNSET


Line: TypeAlias = EventLine | SessionMeta | None
_decode_event: Final = msgspec.json.Decoder(EventLine).decode


def read_line(line: bytes) -> Line:
    """Decode a line; return None if it is malformed."""
    try:
        if not line.isascii():
            line.decode()  # msgspec does not validate fields that it skips
        event = _decode_event(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _read_slowly(line)
    return event if event.kind is UNSET else None


def _read_slowly(line: bytes) -> Line:
    """Decode what the fast decoder rejects: metas, and events with lone surrogates."""
    try:
        value = decode_json(line)
        if not isinstance(value, dict):
            return None
        if value.get("kind") == META_KIND:
            return decode_meta(line)
        return None if "kind" in value else msgspec.convert(value, EventLine)
    except (JsonInvalid, msgspec.ValidationError):
        return None


class EventRange(NamedTuple):
    """A part of the file that holds events of a session, perhaps among others."""

    first_seq: int
    start: int
    end: int


class SessionIndex:
    """What is known about a session without reading the file."""

    def __init__(self, session_id: str, number: int) -> None:
        self.meta: bytes | None = None
        self.last_seq = 0
        self.freed_seq = 0
        self.event_bytes = 0
        self.chain = 0
        """The running checksum of the events that are not deleted; the slot adds the meta."""
        self.is_verified = False
        """Whether it once was what the mark says."""
        self.is_damaged = False
        self.name = name_checksum(session_id)
        self.number = number
        self._runs: list[EventRange] = []

    @property
    def slot(self) -> Slot:
        return Slot(self.last_seq, self.name, crc32(self.meta or b"", self.chain))

    def add_event(self, seq: int, start: int, line: bytes) -> None:
        """Add the event in `line`, which has its newline, at `start` of the file."""
        end = start + len(line)
        self.last_seq = seq
        self.chain = crc32(line, self.chain)
        self.event_bytes += end - start
        last = self._runs[-1] if self._runs else None
        if last is not None and end - last.start <= RUN_BYTES:
            self._runs[-1] = EventRange(last.first_seq, last.start, end)
        else:
            self._runs.append(EventRange(seq, start, end))

    def free_events(self, seq: int) -> int:
        """Forget all events, the last of which is `seq`; return their size in bytes."""
        freed, self.event_bytes, self.chain = self.event_bytes, 0, 0
        self.freed_seq = seq
        self.last_seq = max(self.last_seq, seq)
        self._runs = []
        return freed

    def runs_after(self, seq: int) -> list[EventRange]:
        """Return the runs that hold the events above `seq`; the first may begin before them.

        It is a copy made in one step: the writer may be extending the last run, and a reader that
        then took the run after it would miss what was added.
        """
        first = bisect_right(self._runs, seq + 1, key=lambda run: run.first_seq) - 1
        return self._runs[max(first, 0) :]


class Index:
    """All sessions of a file, in order of first appearance, and the size of its garbage."""

    def __init__(self, expected: Mapping[int, Slot] | None = None) -> None:
        """`expected` is what the log had when its mark was written, by the sessions' names."""
        self._expected = {} if expected is None else expected
        self.sessions: dict[str, SessionIndex] = {}
        self.understood = 0
        self.skipped = 0
        self.garbage_bytes = 0
        """Replaced metas and deleted events."""
        self.freed_bytes = 0
        """The part of it that is events."""

    def session(self, session_id: str) -> SessionIndex:
        known = self.sessions.get(session_id)
        if known is None:
            known = self.sessions[session_id] = SessionIndex(session_id, len(self.sessions) + 1)
        return known

    def add_line(self, line: bytes, start: int) -> None:
        """Index a line of the file, with its newline."""
        if not line.strip():
            return
        content = read_line(line)
        understood = True
        if isinstance(content, SessionMeta):
            self.add_meta(content.session_id, line.rstrip(b"\n"), freed_seq=content.last_seq)
        elif isinstance(content, EventLine) and content.session_id is not UNSET:
            understood = self._add_event(content.session_id, content.seq, start, line)
        else:
            understood = content is not None
        self.understood += understood
        self.skipped += not understood

    def add_meta(self, session_id: str, line: bytes, *, freed_seq: int) -> None:
        session = self.session(session_id)
        if session.meta is not None:
            self.garbage_bytes += len(session.meta) + 1
        session.meta = line
        if freed_seq > session.freed_seq:
            freed = session.free_events(freed_seq)
            self.freed_bytes += freed
            self.garbage_bytes += freed
        self._verify(session)

    def _add_event(self, session_id: str, seq: int, start: int, line: bytes) -> bool:
        session = self.session(session_id)
        if seq <= session.last_seq:  # numbers never go back: a repeated line is not an event
            return False
        session.add_event(seq, start, line)
        self._verify(session)
        return True

    def _verify(self, session: SessionIndex) -> None:
        """Compare a session with the mark; lines that the mark does not have yet may follow."""
        slot = self._expected.get(session.name)
        if slot is not None and session.last_seq == slot.last_seq:
            session.is_verified = session.is_verified or session.slot == slot

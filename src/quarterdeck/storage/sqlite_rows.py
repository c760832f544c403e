"""The rows of a SQLite log: how runs of events and records of sessions are written and checked.

A row that is read is checked: its checksum, its number of lines, and that it continues the row
before it. What a damaged index leaves out or adds is found by that, too. Values are checked for
their type first: a damaged record may have any.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple
from zlib import crc32

from quarterdeck.storage.contract import MOST_PAGE_BYTES, Run, SessionMeta, listed_meta
from quarterdeck.storage.integrity import (
    Damage,
    meta_checksum,
    name_checksum,
    record_checksum,
    run_checksum,
)
from quarterdeck.storage.mark import MOST_SLOTS, Slot
from quarterdeck.storage.sqlite_schema import column_of, session_of

ROW_BYTES: Final = 64 << 10
"""The size of a row with several events: reading one event reads its whole row."""
RECORDS: Final = (
    "SELECT id, session_id, meta, last_seq, freed_seq, checksum FROM sessions ORDER BY id"
)
PAGE: Final = (
    "SELECT id, last_seq, count, data, checksum FROM events"
    " WHERE session = ? AND last_seq > ? ORDER BY last_seq"
)
_SPOILED: Final = 0xFFFF_FFFF
_TEXT: Final = (str, bytes)
_MOST_ID: Final = (1 << 62) - 1


class Head(NamedTuple):
    """What is known of a session without reading its events."""

    id: int
    last_seq: int
    freed_seq: int
    name: int
    meta: int
    """Checksums of its id and of its meta."""

    @property
    def checksum(self) -> int:
        return record_checksum(self.name, self.meta, self.last_seq, self.freed_seq)

    def is_of(self, row: Sequence[Any]) -> bool:
        """Return whether a row of `RECORDS`, whose id is that of this session, has this head.

        Its own checksum proves no more, and takes three times as long.
        """
        id_, _column, meta, last_seq, freed_seq, _checksum = row
        return (
            id_ == self.id
            and last_seq == self.last_seq
            and freed_seq == self.freed_seq
            and (meta is None or type(meta) is bytes)
            and meta_checksum(meta) == self.meta
        )

    @property
    def slot(self) -> Slot:
        return Slot(self.last_seq, self.name)


def intact_head(row: Sequence[Any]) -> Head | None:
    """Return the head in a row of `RECORDS`; None if it is damaged."""
    id_, column, meta, last_seq, freed_seq, checksum = row
    if (
        not isinstance(column, _TEXT)
        or not (meta is None or type(meta) is bytes)
        or type(last_seq) is not int
        or type(freed_seq) is not int
    ):
        return None
    name = name_checksum(session_of(column))
    meta_sum = meta_checksum(meta)
    if record_checksum(name, meta_sum, last_seq, freed_seq) != checksum:
        return None
    return Head(id_, last_seq, freed_seq, name, meta_sum)


class Record(NamedTuple):
    """A row of `sessions`."""

    session_id: str
    head: Head
    meta: bytes | None
    is_intact: bool


def read_record(row: Sequence[Any]) -> Record:
    """Read a row of `RECORDS`; one that is not intact keeps a checksum that does not match."""
    id_, column, meta, last_seq, freed_seq, _checksum = row
    session_id = session_of(column) if isinstance(column, _TEXT) else f"?{id_}"
    head = intact_head(row)
    if head is not None:
        return Record(session_id, head, meta, is_intact=True)
    name = name_checksum(session_id)
    if not isinstance(column, _TEXT) or not all(
        isinstance(value, kind)
        for value, kind in ((meta, (bytes, NoneType)), (last_seq, int), (freed_seq, int))
    ):
        return Record(session_id, Head(id_, 0, 0, name, 0), None, is_intact=False)
    spoiled = Head(id_, last_seq, freed_seq, name, meta_checksum(meta) ^ _SPOILED)
    return Record(session_id, spoiled, meta, is_intact=False)


def sealed_record(
    session_id: str, id_: int, meta: bytes | None, last_seq: int, freed_seq: int
) -> tuple[int, str | bytes, bytes | None, int, int, int]:
    """Return a row of `sessions` with its checksum."""
    head = Head(id_, last_seq, freed_seq, name_checksum(session_id), meta_checksum(meta))
    return id_, column_of(session_id), meta, last_seq, freed_seq, head.checksum


def listed_record(record: Record) -> SessionMeta:
    """Return a session for a listing; one with a damaged record is closed, without its facts."""
    if record.is_intact:
        return listed_meta(record.session_id, record.meta, record.head.last_seq)
    last_seq = max(record.head.last_seq, 0)
    return SessionMeta(session_id=record.session_id, cwd="", lifecycle="closed", last_seq=last_seq)


class BadRun(Exception):
    """A row that cannot be what was stored; `str()` is a clause."""

    def __init__(self, first_seq: int, last_seq: int, reason: str) -> None:
        super().__init__(reason)
        self.first_seq = first_seq
        self.last_seq = last_seq

    def damage(self, session_id: str) -> Damage:
        first_seq, last_seq = self.first_seq, self.last_seq
        return Damage(
            session_id=session_id, first_seq=first_seq, last_seq=last_seq, reason=str(self)
        )


class PageReader:
    """Reads events of a session from the rows of `PAGE`, up to the first that is wrong."""

    def __init__(self, head: Head, after: int, unsealed: range) -> None:
        """Rows with an id in `unsealed` may have no checksum yet."""
        self.events: list[bytes] = []
        self.reached = after
        self._after = after
        self._head = head
        self._unsealed = unsealed

    def read(self, rows: Iterable[Sequence[Any]], limit: int) -> list[bytes]:
        """Return at most `limit` events.

        Raises:
            BadRun: if the very first cannot be read; one further on ends the page before it.
        """
        try:
            self._read(rows, limit)
        except BadRun:
            if not self.events:
                raise
        return self.events[:limit]

    def _read(self, rows: Iterable[Sequence[Any]], limit: int) -> None:
        events, name, size = self.events, self._head.name, 0
        for row in rows:
            _id, last_seq, count, data, checksum = row
            if (  # the usual case, without a call: rows of single events are many
                type(last_seq) is type(count) is int
                and type(data) is bytes
                and 1 <= count == last_seq - self.reached
                and checksum == crc32(data, crc32(b"%d %d" % (last_seq, count), name))
            ):
                if count == 1:
                    events.append(data)
                else:
                    events += data.split(b"\n")
            else:
                last_seq, run = self._checked(row)
                events += run[max(0, self._after - (last_seq - len(run))) :]
            self.reached = last_seq
            size += len(data)
            if len(events) >= limit or size >= MOST_PAGE_BYTES:
                return
        if self.reached < self._head.last_seq:
            raise BadRun(self.reached + 1, self._head.last_seq, "they are missing")

    def _checked(self, row: Sequence[Any]) -> tuple[int, list[bytes]]:
        _id, last_seq, count, data, _checksum = row
        reached, most = self.reached, self._head.last_seq
        if type(last_seq) is not int or last_seq <= reached:
            raise BadRun(reached + 1, most, "their row is damaged")
        if not is_intact_row(self._head.name, row, self._unsealed):
            raise BadRun(reached + 1, max(min(last_seq, most), 1), "their checksum is wrong")
        before = last_seq - count
        if before > reached or (before < reached and self.events):
            raise BadRun(reached + 1, max(before, reached + 1), "they are missing")
        return last_seq, data.split(b"\n") if count > 1 else [data]


def is_intact_row(name: int, row: Sequence[Any], unsealed: range) -> bool:
    """Return whether a row of `PAGE` is what was stored for the session with this name."""
    id_, last_seq, count, data, checksum = row
    is_typed = type(last_seq) is int and type(count) is int and type(data) is bytes
    if not is_typed or count < 1:
        return False
    if checksum is None and id_ in unsealed:
        return bool(count == 1 or data.count(b"\n") == count - 1)
    return bool(checksum == run_checksum(name, last_seq, count, data))


RunRow = tuple[str, int, int, bytes]
"""Session, last seq, count and data."""


def rows_of(runs: Sequence[Run]) -> list[RunRow]:
    """Split runs of events into rows."""
    rows: list[RunRow] = []
    for run in runs:
        session_id, last_seq, events = run
        if len(events) == 1:  # the usual case
            rows.append((session_id, last_seq, 1, events[0]))
        else:
            rows += _rows_of_run(session_id, last_seq, events)
    return rows


def _rows_of_run(session_id: str, last_seq: int, events: list[bytes]) -> Iterator[RunRow]:
    size = sum(map(len, events))
    count = len(events) // (size // ROW_BYTES + 1) or 1
    before = last_seq - len(events)
    for start in range(0, len(events), count):
        yield from _row(session_id, before + start, events[start : start + count])


def _row(session_id: str, before: int, run: list[bytes]) -> Iterator[RunRow]:
    data, count = b"\n".join(run), len(run)
    if data.count(b"\n") == count - 1:
        yield session_id, before + count, count, data
        return
    for seq, event in enumerate(run, before + 1):  # an event contains a line break
        yield session_id, seq, 1, event


def missing(session_id: str | None, first_seq: int, last_seq: int, found: str = "") -> Damage:
    """Return the damage of events that were stored and are not there, found now or earlier."""
    reason = f"they were stored and are missing{found}"
    return Damage(
        session_id=session_id, first_seq=first_seq, last_seq=last_seq, reason=reason, is_lost=True
    )


def last_stored(connection: sqlite3.Connection, id_: int) -> int:
    """Return the last number that the events of a session have; 0 without events."""
    query = "SELECT last_seq FROM events WHERE session = ? ORDER BY last_seq DESC LIMIT 1"
    row = connection.execute(query, (id_,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else 0


def next_number(connection: sqlite3.Connection) -> int:
    """Return the number that the next session gets.

    Events whose record was damaged keep theirs. A damaged number that is far away is not followed.
    """
    number = _last_number(connection, MOST_SLOTS - 1) + 1
    return number if number < MOST_SLOTS else _last_number(connection, _MOST_ID) + 1


def _last_number(connection: sqlite3.Connection, most: int) -> int:
    found = [
        connection.execute(query, (most,)).fetchone()[0]
        for query in (
            "SELECT max(id) FROM sessions WHERE id <= ?",
            "SELECT max(session) FROM events WHERE session <= ?",
        )
    ]
    return max(0, 0, *(number for number in found if isinstance(number, int)))

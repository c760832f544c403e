"""OpenCode's store, a SQLite database in WAL mode; read only, also while OpenCode writes to it.

    session          one row for each session
    event            what happened in each session, numbered from 0; only ever added to
    event_sequence   the last number of each session
    message, part    messages and their parts as they are now

Sessions of older versions are in `message` and `part` only. The tables `permission` and `todo` are
not read: the calls that wrote them are events.

**Nothing is written.** A database that is opened read-only in the usual way still gets a WAL and an
index beside it, and its readers leave marks in that index. So it is opened in one of two ways: with
the WAL that OpenCode has open (`readonly_shm`: its index is only read), or, if there is nothing in
a WAL, as a file that does not change (`immutable`). In the second case what was read is thrown away
if OpenCode has written meanwhile.

Every function opens the database for itself: a thousand idle looks hold no lock and no file.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

from quarterdeck.agents.adapters.line_file import LONGEST

_T = TypeVar("_T")

_BUSY_SECONDS: Final = 0.5
_ATTEMPTS: Final = 40
_ATTEMPTS_IF_UNCHANGED: Final = 4
_PAUSE_SECONDS: Final = 0.02
_TICK_NANOSECONDS: Final = 20_000_000  # two writes within it may leave a file the same time
_BYTES_OF_EVENT: Final = 1024  # about: the rows would have to be read to know it
_MOST_PARTS: Final = 10_000  # of one message

_SESSIONS: Final = "SELECT id, parent_id, directory, title, time_updated FROM session"
_LAST_NUMBERS: Final = "SELECT aggregate_id, seq FROM event_sequence"
_EVENTS: Final = (
    "SELECT seq, id, type, data FROM event WHERE aggregate_id = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_NEXT_NUMBER: Final = "SELECT min(seq) FROM event WHERE aggregate_id = ? AND seq > ?"
_LAST_NUMBER: Final = "SELECT max(seq) FROM event WHERE aggregate_id = ?"
_NEW_MESSAGES: Final = (
    "SELECT id, data FROM event WHERE aggregate_id = ? AND type GLOB 'message.updated*'"
    " ORDER BY seq LIMIT 50"
)
_MESSAGES: Final = (
    "SELECT id, time_created, data FROM message WHERE session_id = ?"
    " AND (time_created, id) > (?, ?) ORDER BY time_created, id LIMIT 2"
)
_PARTS: Final = "SELECT id, time_updated, data FROM part WHERE message_id = ? ORDER BY id LIMIT ?"


class StoreFailed(OSError):
    """The store cannot be read now: it is damaged, locked, or of another kind."""


@dataclass(frozen=True)
class StoredSession:
    """A row of `session`."""

    id: str
    parent_id: str | None
    cwd: str
    title: str
    changed_at: int
    size: int
    """About how many bytes its events have."""


@dataclass(frozen=True)
class StoredEvent:
    """A row of `event`; `data` is None if it is too large to be read."""

    seq: int
    id: str
    type: str
    data: bytes | None


@dataclass(frozen=True)
class StoredMessage:
    """A row of `message` with its parts."""

    id: str
    created_at: int
    data: bytes
    parts: tuple[tuple[str, int, bytes], ...]
    """Id, time of the last change, and data of each part."""
    is_last: bool
    """Whether no other message follows."""


class Store:
    """The database at a path; methods block and raise `StoreFailed`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def version(self) -> tuple[tuple[int, int], ...]:
        """Return what changes with every write to the database."""
        return tuple(_stamp(self.path + suffix) for suffix in ("", "-wal"))

    def sessions(self) -> list[StoredSession]:
        def look(connection: sqlite3.Connection) -> list[StoredSession]:
            numbers = dict(_rows(connection, _LAST_NUMBERS))
            return [
                StoredSession(
                    id=_text(row[0]),
                    parent_id=_text(row[1]) or None,
                    cwd=_text(row[2]),
                    title=_text(row[3]),
                    changed_at=_number(row[4]),
                    size=(_number(numbers.get(row[0], -1)) + 1) * _BYTES_OF_EVENT,
                )
                for row in connection.execute(_SESSIONS)
            ]

        return self._read(look)

    def events(self, session_id: str, after: int, count: int, most_bytes: int) -> list[StoredEvent]:
        """Return events after a number: at most so many, and no more than so many bytes and one."""

        def look(connection: sqlite3.Connection) -> list[StoredEvent]:
            found: list[StoredEvent] = []
            size = 0
            for each in _events_after(connection, session_id, after, count):
                found.append(each)
                size += len(each.data or b"")
                if size > most_bytes:
                    break
            return found

        return self._read(look)

    def events_before(self, session_id: str, last: int, count: int) -> list[StoredEvent]:
        """Return the events up to a number, about the last `count`."""

        def look(connection: sqlite3.Connection) -> list[StoredEvent]:
            found: list[StoredEvent] = []
            after = max(-1, last - count)
            while after < last:
                read = list(_events_after(connection, session_id, after, last - after))
                if not read:
                    break
                found += read
                after = read[-1].seq
            return [each for each in found if each.seq <= last]

        return self._read(look)

    def last_number(self, session_id: str) -> int:
        """Return the number of the last event; -1 if there is none."""

        def look(connection: sqlite3.Connection) -> int:
            row = next(_rows(connection, _LAST_NUMBER, session_id), (None,))
            return -1 if row[0] is None else int(row[0])

        return self._read(look)

    def new_messages(self, session_id: str) -> list[tuple[str, bytes]]:
        """Return ids and data of the first events about messages."""

        def look(connection: sqlite3.Connection) -> list[tuple[str, bytes]]:
            rows = _rows(connection, _NEW_MESSAGES, session_id)
            return [(_text(row[0]), _bytes(row[1])) for row in rows]

        return self._read(look)

    def next_message(self, session_id: str, after: tuple[int, str]) -> StoredMessage | None:
        """Return the message after one of this time and id."""

        def look(connection: sqlite3.Connection) -> StoredMessage | None:
            rows = connection.execute(_MESSAGES, (session_id, *after)).fetchall()
            if not rows:
                return None
            parts = connection.execute(_PARTS, (rows[0][0].decode(), _MOST_PARTS)).fetchall()
            return StoredMessage(
                id=_text(rows[0][0]),
                created_at=_number(rows[0][1]),
                data=_bytes(rows[0][2]),
                parts=tuple((_text(row[0]), _number(row[1]), _bytes(row[2])) for row in parts),
                is_last=len(rows) == 1,
            )

        return self._read(look)

    # ---- open ------------------------------------------------------------------------------

    def _read(self, look: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `look` reads in one transaction; try again while OpenCode opens or closes.

        A process that closes the database removes the index of the WAL first and the WAL a moment
        later, so a failure counts only if nothing changes for a while.
        """
        unchanged = 0
        for number in range(_ATTEMPTS):
            if number:
                time.sleep(_PAUSE_SECONDS)
            before, has_wal = self.version(), _stamp(self.path + "-wal")[0] > 0
            try:
                with closing(_opened(self.path, has_wal=has_wal)) as connection:
                    connection.execute("BEGIN")
                    found = look(connection)
            except (sqlite3.Error, UnicodeError, ValueError, TypeError) as error:
                unchanged = unchanged + 1 if self.version() == before else 0
                if unchanged == _ATTEMPTS_IF_UNCHANGED:
                    raise StoreFailed(f"{self.path} cannot be read: {error}") from error
                continue
            if has_wal or (self.version() == before and not _is_fresh(before)):
                return found
        raise StoreFailed(f"{self.path} changes while it is read")


def _is_fresh(version: tuple[tuple[int, int], ...]) -> bool:
    """Return whether a write that follows might leave the version as it is."""
    return time.time_ns() - max(changed for _, changed in version) < _TICK_NANOSECONDS


def _opened(path: str, *, has_wal: bool) -> sqlite3.Connection:
    how = "mode=ro&readonly_shm=1" if has_wal else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(path)}?{how}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
    )
    connection.text_factory = bytes  # of any bytes: one bad row must not cost the others
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    return connection


def _stamp(path: str) -> tuple[int, int]:
    """Return size and time of a file; zeros if there is none.

    Raises:
        OSError: if there is something else in its place, such as a pipe.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - every half second
    except FileNotFoundError:
        return 0, 0
    if not stat.S_ISREG(status.st_mode):
        raise StoreFailed(f"{path} is not a file")
    return status.st_size, status.st_mtime_ns


def _rows(connection: sqlite3.Connection, query: str, *values: Any) -> Iterator[Any]:
    """Iterate over the rows of a query; none if this version has no such table."""
    try:
        yield from connection.execute(query, values)
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise


def _events_after(
    connection: sqlite3.Connection, session_id: str, after: int, count: int
) -> Iterator[StoredEvent]:
    """Iterate over events after a number; it may end early, after at least one."""
    last = after
    try:
        for row in _rows(connection, _EVENTS, session_id, after, count):
            yield (event := _event(row))
            last = event.seq
    except sqlite3.DataError:  # a row that follows is too large: the next, or the one after it
        try:
            yield _event(next(_rows(connection, _EVENTS, session_id, last, 1)))
        except sqlite3.DataError:
            row = next(_rows(connection, _NEXT_NUMBER, session_id, last))
            yield StoredEvent(int(row[0]), "", "", None)


def _event(row: tuple[Any, ...]) -> StoredEvent:
    return StoredEvent(int(row[0]), _text(row[1]), _text(row[2]), _bytes(row[3]))


def _text(value: Any) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b"" if value is None else str(value).encode()


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0

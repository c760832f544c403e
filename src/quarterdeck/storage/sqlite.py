"""The log in one SQLite file: the default of the hub.

An event is stored when its commit has returned. With `synchronous="normal"` it survives `kill -9`
of this process and the file is never damaged, but a power cut can undo the last commits. With
"full" it survives that too, at the cost of one fsync per commit.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from quarterdeck.errors import LogGap, StorageFailed
from quarterdeck.storage.contract import Batch, Group, Run, SessionMeta, encode_meta, listed_meta
from quarterdeck.storage.group_commit import ThreadedStorage
from quarterdeck.storage.lock import PRIVATE, release_lock, take_lock, unwritable
from quarterdeck.storage.sqlite_schema import (
    DAMAGED,
    Synchronous,
    check_file,
    connect_reader,
    connect_writer,
    migrate,
    transaction,
    unusable,
)

logger = logging.getLogger(__name__)

_CHECKPOINT_BYTES: Final = 8 << 20
"""A checkpoint follows about this much WAL: a longer one slows reads down."""
_COMMIT_BYTES: Final = 2 * 8_192
"""What a commit adds to the WAL beside its events: a page of events, one of sessions."""
_SWEEP_ROWS: Final = 100
"""Rows deleted at once, about 10 ms: a commit never waits longer for housekeeping."""
_ROW_BYTES: Final = 64 << 10
"""The size of a row with several events: reading one event reads its whole row."""

_UPSERT: Final = (
    "INSERT INTO sessions (id, session_id, meta, last_seq) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET"
    " last_seq = excluded.last_seq, meta = coalesce(excluded.meta, meta)"
)
_INSERT: Final = "INSERT INTO events (session, last_seq, count, data) VALUES (?, ?, ?, ?)"
_PAGE: Final = (
    "SELECT events.last_seq, count, data FROM sessions JOIN events ON session = sessions.id"
    " WHERE session_id = ? AND events.last_seq > ? AND events.last_seq > freed_seq"
    " ORDER BY events.last_seq"
)
_SWEEP: Final = (
    "DELETE FROM events WHERE id IN"
    " (SELECT id FROM events WHERE session = ? AND last_seq <= ? ORDER BY last_seq LIMIT ?)"
)
_UNSWEPT: Final = (
    "SELECT id, freed_seq FROM sessions WHERE freed_seq > 0 AND EXISTS"
    " (SELECT 1 FROM events WHERE session = sessions.id AND events.last_seq <= freed_seq)"
)
_DISK_FULL: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
_NOT_SYNCED: Final = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}


class SqliteStorage(ThreadedStorage):
    """A durable log at `path`; `synchronous="full"` also survives a power cut."""

    def __init__(self, path: str | Path, *, synchronous: Synchronous = "normal") -> None:
        super().__init__(_SqliteLog(Path(path).absolute(), synchronous))


class _SqliteLog:
    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self.path = path
        self._synchronous = synchronous
        self._lock = -1
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._heads: dict[str, tuple[int, int]] = {}
        """Id and last seq of the sessions written to since the log was opened."""
        self._next_id = 1
        self._unswept: list[tuple[int, int]] = []
        self._wal_bytes = 0
        self._broken: StorageFailed | None = None

    @property
    def is_quick(self) -> bool:
        return self._synchronous == "normal"  # fsync only in a checkpoint

    @property
    def is_untidy(self) -> bool:
        return bool(self._unswept) or self._wal_bytes > _CHECKPOINT_BYTES

    def open(self) -> None:
        self._lock = take_lock(self.path)
        try:
            self._connect()
        except BaseException:
            release_lock(self._lock)
            raise

    def commit(self, batches: Sequence[Batch]) -> list[LogGap | None]:
        if self._broken is not None:
            raise self._broken.again()
        with self._failures():
            group = Group(self._last_seq)
            gaps = [group.offer(batch) for batch in batches]
            if group.records:
                self._store(group)
        return gaps

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        with self._failures():
            events: list[bytes] = []
            for last_seq, count, data in self._reader.execute(_PAGE, (_column(session_id), after)):
                run = data.split(b"\n") if count > 1 else [data]
                events += run[max(0, after - (last_seq - count)) :]
                if len(events) >= limit:
                    break
            return events[:limit]

    def sessions(self) -> list[SessionMeta]:
        with self._failures():
            rows = self._reader.execute(
                "SELECT session_id, meta, last_seq FROM sessions ORDER BY id"
            )
            return [listed_meta(_text(name), meta, last_seq) for name, meta, last_seq in rows]

    def forget(self, session_id: str) -> None:
        with self._failures():
            head = self._head(session_id)
            if head is None:
                return
            with transaction(self._writer):
                self._writer.execute(
                    "UPDATE sessions SET freed_seq = last_seq WHERE id = ?", head[:1]
                )
        self._unswept.append(head)

    def tidy(self) -> bool:
        if not self.is_untidy:
            return False  # the usual case
        with self._failures():
            if self._unswept:
                self._sweep()
            if self._wal_bytes > _CHECKPOINT_BYTES:
                self._wal_bytes = 0
                # PASSIVE does not wait for the reader; what that blocks is copied next time.
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(self._unswept)

    def close(self) -> None:
        try:
            while self.tidy():
                pass
        except StorageFailed as error:  # sweeping resumes when the log is opened next
            logger.warning("housekeeping of the log failed", extra={"reason": str(error)})
        finally:
            self._reader.close()
            self._writer.close()  # checkpoints and removes the WAL
            release_lock(self._lock)

    def _connect(self) -> None:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
            check_file(self.path)
        except OSError as error:
            raise unwritable(self.path, error) from error
        with ExitStack() as undo:
            try:
                self._writer = connect_writer(self.path, self._synchronous)
                undo.callback(self._writer.close)
                migrate(self.path, self._writer)
                self._reader = connect_reader(self.path)
                undo.callback(self._reader.close)
                self._load()
            except sqlite3.DatabaseError as error:
                raise unusable(self.path, error) from error
            undo.pop_all()

    def _load(self) -> None:
        """Read the state from the file, never from a previous opening."""
        last_id = self._writer.execute("SELECT max(id) FROM sessions").fetchone()[0]
        self._next_id = (last_id or 0) + 1
        self._unswept = self._writer.execute(_UNSWEPT).fetchall()
        self._heads = {}
        self._broken = None

    def _store(self, group: Group) -> None:
        heads, next_id, sessions = {}, self._next_id, []
        with transaction(self._writer):
            for session_id, last_seq in group.last_seqs.items():
                head = self._head(session_id)
                if head is None:
                    head, next_id = (next_id, 0), next_id + 1
                heads[session_id] = (head[0], last_seq)
                meta = self._encoded(group.metas.get(session_id), head[0])
                sessions.append((head[0], _column(session_id), meta, last_seq))
            rows = [
                (heads[session_id][0], last_seq, count, data)
                for session_id, last_seq, count, data in _rows(group.runs)
            ]
            self._writer.executemany(_UPSERT, sessions)
            self._writer.executemany(_INSERT, rows)
        self._heads |= heads
        self._next_id = next_id
        self._wal_bytes += _COMMIT_BYTES + sum(len(data) for _, _, _, data in rows)

    def _encoded(self, meta: SessionMeta | None, id_: int) -> bytes | None:
        if meta is None:
            return None
        row = self._writer.execute("SELECT meta FROM sessions WHERE id = ?", (id_,)).fetchone()
        return encode_meta(meta, before=row[0] if row else None)

    def _last_seq(self, session_id: str) -> int:
        head = self._head(session_id)
        return 0 if head is None else head[1]

    def _head(self, session_id: str) -> tuple[int, int] | None:
        head = self._heads.get(session_id)
        if head is None:
            query = "SELECT id, last_seq FROM sessions WHERE session_id = ?"
            head = self._writer.execute(query, (_column(session_id),)).fetchone()
            if head is not None:
                self._heads[session_id] = head
        return head

    def _sweep(self) -> None:
        id_, freed_seq = self._unswept[0]
        with transaction(self._writer):
            swept = self._writer.execute(_SWEEP, (id_, freed_seq, _SWEEP_ROWS)).rowcount
        self._wal_bytes += swept * 2 * 8_192  # the pages of a small row; a large one has more
        if swept < _SWEEP_ROWS:
            self._unswept.pop(0)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Convert errors of SQLite to `StorageFailed`."""
        try:
            yield
        except sqlite3.Error as error:
            failure = _explain(self.path, error)
            if getattr(error, "sqlite_errorcode", None) in _NOT_SYNCED:
                # The kernel drops what it failed to sync: a second fsync would report success.
                self._broken = failure.again()
            raise failure from error


def _rows(runs: Sequence[Run]) -> Iterator[tuple[str, int, int, bytes]]:
    """Split runs of events into rows: session, last seq, count and data."""
    for session_id, last_seq, events in runs:
        size = sum(map(len, events))
        count = len(events) // (size // _ROW_BYTES + 1) or 1
        before = last_seq - len(events)
        for start in range(0, len(events), count):
            yield from _row(session_id, before + start, events[start : start + count])


def _row(session_id: str, before: int, run: list[bytes]) -> Iterator[tuple[str, int, int, bytes]]:
    data, count = b"\n".join(run), len(run)
    if data.count(b"\n") == count - 1:
        yield session_id, before + count, count, data
        return
    for seq, event in enumerate(run, before + 1):  # an event contains a line break
        yield session_id, seq, 1, event


def _explain(path: Path, error: sqlite3.Error) -> StorageFailed:
    code = getattr(error, "sqlite_errorcode", 0)
    reason = f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})"
    if code in _DISK_FULL:
        return StorageFailed(path, reason, "make room on its disk; storing then resumes by itself")
    if code & 0xFF in DAMAGED:
        remedy = "stop, copy it and salvage the copy with `sqlite3 FILE .recover`"
        return StorageFailed(path, reason, remedy, is_final=True)
    if code in _NOT_SYNCED:
        return StorageFailed(path, reason, "check the disk, then restart", is_final=True)
    return StorageFailed(path, reason, "check the disk, its quota and its permissions")


def _column(session_id: str) -> str | bytes:
    """Return the value of the column `session_id`: text, or bytes if it is not valid Unicode."""
    try:
        session_id.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return session_id.encode("utf-8", "surrogatepass")
    return session_id


def _text(column: str | bytes) -> str:
    return column if isinstance(column, str) else column.decode("utf-8", "surrogatepass")

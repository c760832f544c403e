"""The log in one SQLite file: the default of a runner.

An event is stored when its commit has returned. With `synchronous="normal"` it survives `kill -9`
of this process and the file is never damaged, but a power cut can undo the last commits. With
"full" it survives that too, at the cost of one fsync per commit.

Every row has a checksum (`sqlite_rows`), and a mark beside the file says how far each session was
stored (`mark`). Opening the log compares the records of all sessions with the mark; events are
checked when they are read. Damage costs its session: reading it raises `LogDamaged`, and all other
sessions work. Events that are missing at the end of a session are recorded as lost (`losses`), the
log gets a new epoch, and the session continues.

After a power cut, with "normal" and `awaits_heads`, the losses are not recorded yet: a copy of the
log may have what is missing. Until `confirm`, `unconfirmed_epoch` is the epoch before the power
cut, also for the next process. The new epoch protects the numbers either way.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from quarterdeck.errors import REPAIR, LogDamaged, LogGap, StorageFailed
from quarterdeck.storage.contract import Batch, Group, SessionMeta, encode_meta, listed_meta
from quarterdeck.storage.group_commit import ThreadedStorage
from quarterdeck.storage.integrity import (
    Damage,
    LogEpoch,
    meta_checksum,
    name_checksum,
    new_epoch,
    run_checksum,
)
from quarterdeck.storage.lock import PRIVATE, release_lock, take_lock, unwritable
from quarterdeck.storage.mark import LogMark, MarkReading, Slot
from quarterdeck.storage.sqlite_compaction import (
    catch_up,
    compact_path,
    is_equal,
    put_in_place,
    remove_copy,
    write_copy,
)
from quarterdeck.storage.sqlite_losses import (
    longer_slots,
    lost_events,
    recorded_losses,
    store_epoch,
)
from quarterdeck.storage.sqlite_rows import (
    PAGE,
    RECORDS,
    BadRun,
    Head,
    PageReader,
    intact_head,
    last_stored,
    listed_record,
    next_number,
    read_record,
    rows_of,
)
from quarterdeck.storage.sqlite_schema import (
    DAMAGED,
    Synchronous,
    Transaction,
    check_file,
    column_of,
    connect_reader,
    connect_writer,
    migrate,
    session_of,
    unusable,
)

logger = logging.getLogger(__name__)

_CHECKPOINT_BYTES: Final = 8 << 20
"""A checkpoint follows about this much WAL: a longer one slows reads down."""
_COMMIT_BYTES: Final = 2 * 8_192
"""What a commit adds to the WAL beside its events: a page of events, one of sessions."""
_SWEEP_ROWS: Final = 100
"""Rows deleted at once, about 10 ms: a commit never waits longer for housekeeping."""
_CATCH_UPS: Final = 5
_SEAL_ROWS: Final = 50
"""Rows of an older format that get their checksums at once."""

_UPSERT: Final = (
    "INSERT INTO sessions (id, session_id, meta, last_seq, checksum) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET last_seq = excluded.last_seq,"
    " meta = coalesce(excluded.meta, meta), checksum = excluded.checksum"
)
_ADVANCE: Final = "UPDATE sessions SET last_seq = ?, checksum = ? WHERE id = ?"
_INSERT: Final = (
    "INSERT INTO events (session, last_seq, count, data, checksum) VALUES (?, ?, ?, ?, ?)"
)
_SWEEP: Final = (
    "DELETE FROM events WHERE id IN"
    " (SELECT id FROM events WHERE session = ? AND last_seq <= ? ORDER BY last_seq LIMIT ?)"
)
_UNSWEPT: Final = (
    "SELECT id, freed_seq FROM sessions WHERE freed_seq > 0 AND EXISTS"
    " (SELECT 1 FROM events WHERE session = sessions.id AND events.last_seq <= freed_seq)"
)
_UNSEALED: Final = (
    "SELECT id, session, last_seq, count, data FROM events"
    " WHERE id BETWEEN ? AND ? AND checksum IS NULL ORDER BY id LIMIT ?"
)
_DISK_FULL: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
_NOT_SYNCED: Final = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}
_SEALED: Final = range(0)


class SqliteStorage(ThreadedStorage):
    """A durable log at `path`; `synchronous="full"` also survives a power cut."""

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "normal",
        awaits_heads: bool = False,
    ) -> None:
        """With `awaits_heads` its owner looks for copies after a power cut and calls `confirm`."""
        self._sqlite = _SqliteLog(Path(path).absolute(), synchronous, awaits_heads=awaits_heads)
        super().__init__(self._sqlite)

    @property
    def unconfirmed_epoch(self) -> LogEpoch | None:
        """The epoch before a power cut that may have lost events; None if there was none."""
        return self._sqlite.unconfirmed_epoch

    async def confirm(self) -> None:
        """Record what is still missing as lost: no copy has it.

        Raises:
            StorageFailed: if that cannot be stored; the next process awaits copies again.
        """
        await self._open_writer().run(self._sqlite.confirm)


class _SqliteLog:
    def __init__(self, path: Path, synchronous: Synchronous, *, awaits_heads: bool) -> None:
        self.path = path
        self.epoch = LogEpoch("")
        self.unconfirmed_epoch: LogEpoch | None = None
        self._synchronous = synchronous
        self._awaits_heads = awaits_heads and synchronous == "normal"
        self._reading = MarkReading()
        """What the mark said when the log was opened, until it is confirmed."""
        self._lock = -1
        self._mark = LogMark(path)
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._heads: dict[str, Head] = {}
        """Every session of the log."""
        self._damages: dict[tuple[str | None, int], Damage] = {}
        self._bad_records: set[str] = set()
        self._next_id = 1
        self._unswept: list[tuple[int, int]] = []
        self._unsealed, self._can_seal = _SEALED, True
        """The ids of rows of an older format that may have no checksum yet."""
        self._wal_bytes = 0
        self._was_absent = False
        self.is_compacting = False
        self._swap = threading.Lock()
        """Held while a page is read and while a copy replaces the file."""
        self._broken: StorageFailed | None = None
        self._failures = _Failures(self)

    @property
    def is_quick(self) -> bool:
        return self._synchronous == "normal"  # fsync only in a checkpoint

    @property
    def is_untidy(self) -> bool:
        return self._wal_bytes > _CHECKPOINT_BYTES or self._has_chores

    @property
    def _has_chores(self) -> bool:
        return not self.is_compacting and (bool(self._unswept) or self._has_unsealed)

    @property
    def _has_unsealed(self) -> bool:
        return self._can_seal and len(self._unsealed) > 0

    # ---- compaction ------------------------------------------------------------------------

    def begin_compaction(self) -> bool:
        """Put off the deletion of events; return False if some wait to be deleted first."""
        self.is_compacting = not self._unswept
        return self.is_compacting

    def write_compact_copy(self) -> None:
        """Write the copy, on any thread."""
        with self._failures:
            write_copy(self.path)
            for _ in range(_CATCH_UPS):
                if catch_up(self.path) < _SEAL_ROWS:
                    return

    def finish_compaction(self) -> None:
        """Put the copy in the place of the log; nothing is committed or read meanwhile."""
        with self._failures, self._swap:
            catch_up(self.path)
            if not is_equal(self.path):
                raise StorageFailed(self.path, "its copy differs", "report this; nothing changed")
            self._mark.expect(compact_path(self.path))
            self._reader.close()
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._writer.close()
            try:
                self._replace()
            finally:
                self._writer = connect_writer(self.path, self._synchronous)
                self._reader = connect_reader(self.path)
                self._mark.settle()
            self._wal_bytes = 0

    def _replace(self) -> None:
        # A WAL that is still there belongs to the old file: another program has that open.
        if Path(f"{self.path}-wal").exists():
            raise StorageFailed(
                self.path, "another program reads it", "wait for its end and try again"
            )
        put_in_place(self.path)

    def end_compaction(self) -> None:
        self.is_compacting = False
        remove_copy(self.path)

    @property
    def damages(self) -> Sequence[Damage]:
        return tuple(self._damages.values())

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
        with self._failures:
            group = Group(self._last_seq)
            gaps = [group.offer(batch) for batch in batches]
            if group.records:
                self._store(group)
        return gaps

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        with self._failures, self._swap:
            while True:
                head = self._heads.get(session_id)
                if head is None:
                    return []
                try:
                    return self._page(session_id, head, max(after, head.freed_seq), limit)
                except BadRun as error:
                    if self._heads[session_id].freed_seq != head.freed_seq:
                        continue  # its events were deleted meanwhile
                    raise self._damaged(error.damage(session_id)) from None

    def _page(self, session_id: str, head: Head, after: int, limit: int) -> list[bytes]:
        if session_id in self._bad_records:
            raise BadRun(0, 0, "its checksum is wrong")
        page = PageReader(head, after, self._unsealed)
        try:
            return page.read(self._reader.execute(PAGE, (head.id, after)), limit)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            is_damage = getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED
            if not is_damage and isinstance(error, sqlite3.Error):
                raise
            if page.events:
                return page.events[:limit]
            raise BadRun(page.reached + 1, head.last_seq, f"{error}") from error

    def _damaged(self, damage: Damage) -> LogDamaged:
        """Remember damage, and return the error for it."""
        key = (damage.session_id, damage.first_seq)
        if key not in self._damages:
            self._damages[key] = damage
            logger.error("the log is damaged", extra={"reason": damage.sentence})
        return LogDamaged(self.path, damage.session_id or "", damage.sentence)

    def sessions(self) -> list[SessionMeta]:
        with self._failures, self._swap:
            return list(self._listed())

    def _listed(self) -> Iterator[SessionMeta]:
        for row in self._reader.execute(RECORDS):
            head = self._heads.get(row[1]) if type(row[1]) is str else None
            if head is not None and head.is_of(row):  # the usual case
                yield listed_meta(row[1], row[2], head.last_seq)
                continue
            record = read_record(row)
            if record.is_intact:  # it has changed since the head was read
                yield listed_record(record)
            elif record.session_id in self._bad_records:
                yield listed_record(record._replace(head=self._heads[record.session_id]))

    def forget(self, session_id: str) -> None:
        with self._failures:
            head = self._heads.get(session_id)
            if head is None:
                return
            freed = head._replace(freed_seq=head.last_seq)
            with Transaction(self._writer):
                self._writer.execute(
                    "UPDATE sessions SET freed_seq = ?, checksum = ? WHERE id = ?",
                    (freed.freed_seq, freed.checksum, freed.id),
                )
                self._writer.execute(
                    "DELETE FROM losses WHERE session_id = ?", (column_of(session_id),)
                )
        self._heads[session_id] = freed
        self._unswept.append((freed.id, freed.freed_seq))
        for key in [key for key in self._damages if key[0] == session_id]:
            if session_id not in self._bad_records:
                del self._damages[key]  # deleted, damage included

    def tidy(self) -> bool:
        if not self.is_untidy:
            return False  # the usual case
        with self._failures:
            if self._unswept and not self.is_compacting:
                self._sweep()
            elif self._has_unsealed and not self.is_compacting:
                self._seal()
            if self._wal_bytes > _CHECKPOINT_BYTES:
                self._wal_bytes = 0
                # PASSIVE does not wait for the reader; what that blocks is copied next time.
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return self._has_chores

    def close(self) -> None:
        try:
            self.is_compacting = False
            while self._unswept:
                self.tidy()
        except StorageFailed as error:  # sweeping resumes when the log is opened next
            logger.warning("housekeeping of the log failed", extra={"reason": str(error)})
        finally:
            self._reader.close()
            self._writer.close()  # checkpoints and removes the WAL, unless another process reads
            is_synced = self._broken is None and not Path(f"{self.path}-wal").exists()
            self._mark.close(is_clean=is_synced)
            release_lock(self._lock)

    def _connect(self) -> None:
        remove_copy(self.path)  # left by a process that was killed
        self._was_absent = not self.path.exists()  # moved away: nothing is missed
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
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                raise unusable(self.path, error) from error
            undo.pop_all()

    def _load(self) -> None:
        """Read the state from the file, never from a previous opening."""
        self._heads, self._damages, self._bad_records = {}, {}, set()
        for row in self._writer.execute(RECORDS):
            head = intact_head(row)
            if head is not None:
                self._heads[session_of(row[1])] = head
                continue
            record = read_record(row)
            if record.session_id not in self._heads:
                self._add_bad_record(record.session_id, record.head)
        self._next_id = next_number(self._writer)
        self._unswept = self._writer.execute(_UNSWEPT).fetchall()
        self._broken = None
        self._begin_epoch()

    def _add_bad_record(self, session_id: str, head: Head) -> None:
        # Its numbers cannot be trusted; those of its events can.
        last_seq = last_stored(self._writer, head.id)
        self._heads[session_id] = head._replace(last_seq=last_seq, freed_seq=0)
        self._bad_records.add(session_id)
        reason = "its checksum is wrong"
        self._damaged(Damage(session_id=session_id, first_seq=0, last_seq=0, reason=reason))

    def _begin_epoch(self) -> None:
        """Compare the log with its mark; begin a new epoch if it may have gone back."""
        reading = self._mark.read()
        facts = self._writer.execute(
            "SELECT epoch, number, unsealed_from, unsealed_to FROM log"
        ).fetchone() or ("", 0, 1, 0)
        epoch, number, unsealed_from, unsealed_to = facts
        self._unsealed, self._can_seal = range(unsealed_from, unsealed_to + 1), True
        is_new = number == 0
        is_empty = is_new and not self._heads and not self._was_absent
        lost = lost_events(self._heads, reading) if is_empty or reading.epoch == epoch else []
        before = self._before(reading) if reading.epoch == epoch else None
        if is_new or lost or reading.doubt or reading.epoch != epoch:
            epoch, number = new_epoch(), max(number, reading.number) + 1
            store_epoch(self._writer, epoch, number, () if before else lost)
            if number > 1:
                why = reading.doubt or ("events are missing" if lost else "it was replaced")
                extra = {"reason": why, "epoch": epoch}
                logger.info("the log may have gone back; its readers start over", extra=extra)
        self.epoch = LogEpoch(epoch, is_first=number == 1)
        self._reading = reading if before else MarkReading()
        self.unconfirmed_epoch = before
        slots = {head.id: head.slot for head in self._heads.values()}
        slots |= longer_slots(self._heads, self._reading)  # the next process misses them, too
        self._mark.begin(epoch, number, slots.items(), before)
        for damage in recorded_losses(self._writer):
            self._damaged(damage)

    def _before(self, reading: MarkReading) -> LogEpoch | None:
        """Return the epoch whose copies may have more events than the log; None if none can."""
        if not self._awaits_heads or (reading.doubt and not reading.is_power_cut):
            return None
        if reading.before is not None or not reading.is_power_cut:
            return reading.before
        return LogEpoch(reading.epoch, is_first=reading.number == 1)

    def confirm(self) -> None:
        """Record what is still missing as lost."""
        if self.unconfirmed_epoch is None:
            return
        with self._failures:
            lost = lost_events(self._heads, self._reading)
            number = self._writer.execute("SELECT number FROM log").fetchone()[0]
            store_epoch(self._writer, self.epoch.id, number, lost)
        stored = {head.id: head.slot for head in self._heads.values()}
        longer = longer_slots(self._heads, self._reading)
        self._mark.note([(id_, stored.get(id_, Slot(0, 0))) for id_ in longer])
        self._mark.confirm()
        self.unconfirmed_epoch, self._reading = None, MarkReading()
        for damage in recorded_losses(self._writer):
            self._damaged(damage)

    def _store(self, group: Group) -> None:
        heads: dict[str, Head] = {}
        with Transaction(self._writer):
            advanced, next_id = [], self._next_id
            for session_id, last_seq in group.last_seqs.items():
                head = self._heads.get(session_id)
                if head is None or session_id in group.metas:
                    meta = group.metas.get(session_id)
                    head = self._write_record(session_id, head, next_id, meta, last_seq)
                    next_id = max(next_id, head.id + 1)
                else:  # the usual case
                    head = Head(head.id, last_seq, head.freed_seq, head.name, head.meta)
                    advanced.append((last_seq, head.checksum, head.id))
                heads[session_id] = head
            if advanced:
                self._advance(advanced, heads)
            rows = [
                (head.id, last_seq, count, data, run_checksum(head.name, last_seq, count, data))
                for session_id, last_seq, count, data in rows_of(group.runs)
                for head in (heads[session_id],)
            ]
            self._writer.executemany(_INSERT, rows)
        self._heads |= heads
        self._next_id = next_id
        self._wal_bytes += _COMMIT_BYTES + sum([len(row[3]) for row in rows])
        self._mark.note([(head.id, head.slot) for head in heads.values()])

    def _advance(self, advanced: list[tuple[int, int, int]], heads: dict[str, Head]) -> None:
        if self._writer.executemany(_ADVANCE, advanced).rowcount == len(advanced):
            return
        # A record is gone. Its events are stored; without its meta its checksum will be wrong.
        for session_id, head in heads.items():
            record = (head.id, column_of(session_id), None, head.last_seq, head.checksum)
            self._writer.execute(_UPSERT, record)

    def _write_record(
        self, session_id: str, head: Head | None, next_id: int, meta: SessionMeta | None, seq: int
    ) -> Head:
        """Write the record of a session that is new or has a new meta."""
        if head is None:
            head = Head(next_id, 0, 0, name_checksum(session_id), 0)
        line = self._encoded(meta, head.id)
        meta_sum = head.meta if line is None else meta_checksum(line)
        head = Head(head.id, seq, head.freed_seq, head.name, meta_sum)
        record = (head.id, column_of(session_id), line, seq, head.checksum)
        self._writer.execute(_UPSERT, record)
        return head

    def _encoded(self, meta: SessionMeta | None, id_: int) -> bytes | None:
        if meta is None:
            return None
        row = self._writer.execute("SELECT meta FROM sessions WHERE id = ?", (id_,)).fetchone()
        self._bad_records.discard(meta.session_id)  # the record is written anew
        self._damages.pop((meta.session_id, 0), None)
        before = row[0] if row and isinstance(row[0], bytes) else None
        return encode_meta(meta, before=before)

    def _last_seq(self, session_id: str) -> int:
        head = self._heads.get(session_id)
        return 0 if head is None else head.last_seq

    def _sweep(self) -> None:
        id_, freed_seq = self._unswept[0]
        with Transaction(self._writer):
            swept = self._writer.execute(_SWEEP, (id_, freed_seq, _SWEEP_ROWS)).rowcount
        self._wal_bytes += swept * 2 * 8_192  # the pages of a small row; a large one has more
        if swept < _SWEEP_ROWS:
            self._unswept.pop(0)

    def _seal(self) -> None:
        """Give some rows of an older format checksums; if that fails, the next start tries."""
        try:
            self._seal_some()
        except BaseException:
            self._can_seal = False
            raise

    def _seal_some(self) -> None:
        unsealed = self._unsealed
        names = {head.id: head.name for head in self._heads.values()}
        query = (unsealed.start, unsealed.stop - 1, _SEAL_ROWS)
        rows = self._writer.execute(_UNSEALED, query).fetchall()
        done = rows[-1][0] + 1 if len(rows) == _SEAL_ROWS else unsealed.stop
        with Transaction(self._writer):
            for id_, session, last_seq, count, data in rows:
                is_whole = count == 1 or data.count(b"\n") == count - 1
                checksum = run_checksum(names.get(session, 0), last_seq, count, data)
                self._writer.execute(
                    "UPDATE events SET checksum = ? WHERE id = ?",
                    (checksum if is_whole else -1, id_),
                )
            self._writer.execute("UPDATE log SET unsealed_from = ?", (done,))
        self._wal_bytes += sum(len(row[4]) + 8_192 for row in rows)
        # After the commit: a reader takes the range before it queries, so it misses no row.
        self._unsealed = range(done, unsealed.stop)

    def fail(self, error: BaseException) -> None:
        """Raise an error of SQLite or of a file as `StorageFailed`."""
        if isinstance(error, OSError):  # of a compaction
            remedy = "check the disk; the log is as it was"
            raise StorageFailed(self.path, error.strerror or str(error), remedy) from error
        if isinstance(error, UnicodeDecodeError):
            remedy = f"stop the hub and recover the intact data: {REPAIR}"
            raise StorageFailed(self.path, "it is damaged", remedy, is_final=True) from error
        if isinstance(error, sqlite3.Error):
            failure = _explain(self.path, error)
            if getattr(error, "sqlite_errorcode", None) in _NOT_SYNCED:
                # The kernel drops what it failed to sync: a second fsync would report success.
                self._broken = failure.again()
            raise failure from error


class _Failures:
    """Converts errors to `StorageFailed`; a class, because it is entered for every commit."""

    __slots__ = ("_log",)

    def __init__(self, log: _SqliteLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: object
    ) -> None:
        if error is not None:
            self._log.fail(error)


def _explain(path: Path, error: sqlite3.Error) -> StorageFailed:
    code = getattr(error, "sqlite_errorcode", 0)
    reason = f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})"
    if code in _DISK_FULL:
        return StorageFailed(
            path, reason, "free up space on its disk; storing then resumes by itself"
        )
    if code & 0xFF in DAMAGED:
        remedy = f"stop the hub and recover the intact data: {REPAIR}"
        return StorageFailed(path, reason, remedy, is_final=True)
    if code in _NOT_SYNCED:
        return StorageFailed(path, reason, "check the disk, then restart", is_final=True)
    return StorageFailed(path, reason, "check the disk, its quota and its permissions")

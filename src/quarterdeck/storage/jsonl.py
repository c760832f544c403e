"""The log in one file of JSON lines, in the format of acpjs: readable, greppable, portable.

A batch is one write and one fdatasync, so stored events survive a power cut. `kill -9` in the
middle of a write can leave the first lines of a batch that was never acknowledged, whole and in
order; a torn line is cut off when the log is opened again.

The format has no room for checksums: the running checksum of each session's events is in the mark
beside the file (`mark`), with its epoch. Opening the log reads all of it and compares. A session
that differs is damaged: reading it raises `LogDamaged`, and all others work.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeGuard

from msgspec import UNSET

from quarterdeck.errors import JsonInvalid, LogDamaged, LogGap, StorageFailed, StorageRefused
from quarterdeck.jsontext import decode_json
from quarterdeck.machine.disk_sync import sync_data
from quarterdeck.storage.contract import (
    MOST_PAGE_BYTES,
    Batch,
    Group,
    SessionMeta,
    Stored,
    encode_meta,
    listed_meta,
)
from quarterdeck.storage.group_commit import ThreadedStorage
from quarterdeck.storage.integrity import Damage, LogEpoch, new_epoch
from quarterdeck.storage.jsonl_index import EventLine, Index, Line, read_line
from quarterdeck.storage.lock import PRIVATE, release_lock, take_lock, unwritable
from quarterdeck.storage.mark import LogMark, MarkReading

logger = logging.getLogger(__name__)

_COMPACT_BYTES: Final = 1 << 20
"""Less garbage than this is not worth a rewrite of the file."""
_BUFFER_BYTES: Final = 1 << 20
_OPEN_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class JsonlStorage(ThreadedStorage):
    """A durable log at `path`. Opening it reads the whole file once."""

    def __init__(self, path: str | Path) -> None:
        self._jsonl = _JsonlLog(Path(path).absolute())
        super().__init__(self._jsonl)

    @property
    def skipped(self) -> int:
        """The number of malformed lines when the log was opened; they stay in the file."""
        return self._jsonl.skipped


class _JsonlLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        self._new_path = path.with_name(f"{path.name}.tmp")
        self._lock = -1
        self._file = -1
        self._size = 0
        """Where the stored lines end; anything after is the remains of a failed write."""
        self._has_remains = False
        self._index = Index()
        self._swap = threading.Lock()
        """Held while a page is read and while a rewritten file replaces the old one."""
        self._compact_bytes = _COMPACT_BYTES
        self._broken: StorageFailed | None = None
        self._mark = LogMark(path)
        self.epoch = LogEpoch("")
        self.damages: Sequence[Damage] = ()

    def open(self) -> None:
        self._lock = take_lock(self.path)
        try:
            self._file = os.open(self.path, _OPEN_FLAGS | os.O_CREAT, PRIVATE)
            try:
                self._load(reading := self._mark.read())
                _sync_folder(self.path.parent)
                self._begin_epoch(reading)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            release_lock(self._lock)
            raise unwritable(self.path, error) from error
        except BaseException:
            release_lock(self._lock)
            raise

    @property
    def is_quick(self) -> bool:
        return False

    @property
    def is_untidy(self) -> bool:
        return self._index.garbage_bytes > max(self._compact_bytes, self._size // 2)

    def commit(self, batches: Sequence[Batch]) -> list[LogGap | None]:
        if self._broken is not None:
            raise self._broken.again()
        group = Group(self._last_seq)
        gaps = [group.offer(batch) for batch in batches]
        if group.records:
            self._store(group)
        return gaps

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        page: list[bytes] = []
        size = 0
        with self._swap, self._failures():
            session = self._index.sessions.get(session_id)
            if session is None:
                return page
            if session.is_damaged:
                damage = next(each for each in self.damages if each.session_id == session_id)
                raise LogDamaged(self.path, session_id, damage.sentence)
            after = max(after, session.freed_seq)
            for run in session.runs_after(after):
                for line in os.pread(self._file, run.end - run.start, run.start).split(b"\n"):
                    if len(page) >= limit or size >= MOST_PAGE_BYTES:
                        return page
                    event = read_line(line)
                    if _is_next(event, session_id, after):
                        page.append(line)
                        size += len(line)
                        after = event.seq
        return page

    def sessions(self) -> list[SessionMeta]:
        known = list(self._index.sessions.items())  # one step: the writer may be adding to it
        return [listed_meta(name, session.meta, session.last_seq) for name, session in known]

    def forget(self, session_id: str) -> None:
        session = self._index.sessions.get(session_id)
        if session is None or session.freed_seq == session.last_seq:
            return
        meta = listed_meta(session_id, session.meta, session.last_seq)
        line = encode_meta(meta, freed_seq=session.last_seq, before=session.meta)
        self._write(line + b"\n")
        self._index.add_meta(session_id, line, freed_seq=session.last_seq)
        session.is_damaged = False  # deleted, damage included
        self.damages = [each for each in self.damages if each.session_id != session_id]
        self._mark.note([(session.number, session.slot)])

    def tidy(self) -> bool:
        if self.is_untidy:
            self._compact_bytes = 2 * self._index.garbage_bytes  # a failure is not retried at once
            self._compact()
            self._compact_bytes = _COMPACT_BYTES
        return False

    def close(self) -> None:
        try:
            if self._index.freed_bytes:  # deleted text does not stay in the file
                self._compact()
        except StorageFailed as error:  # tried again when the log is closed next
            logger.warning("the log was not rewritten", extra={"reason": str(error)})
        finally:
            os.close(self._file)
            self._file = -1  # a late reader must not read a reused descriptor
            self._mark.close(is_clean=self._broken is None)
            release_lock(self._lock)

    def _load(self, reading: MarkReading) -> None:
        expected = {slot.name: slot for slot in reading.slots.values()}
        index, size, tail = Index(expected), 0, b""
        self._new_path.unlink(missing_ok=True)  # left by a rewrite that was killed
        with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
            for line in file:
                if line.endswith(b"\n"):
                    index.add_line(line, size)
                    size += len(line)
                else:
                    tail = line
        if not index.understood and (index.skipped or not _may_be_torn(tail)):
            raise StorageRefused(self.path, "none of its lines is an event", "choose another path")
        self._index, self._size, self._broken = index, size, None
        if tail:
            self._repair(tail)
        self.skipped = index.skipped

    def _begin_epoch(self, reading: MarkReading) -> None:
        """Compare the log with its mark; begin a new epoch if it may have gone back."""
        self.damages = list(self._differences(reading))
        if self.damages:
            self.damages = [*self.damages, *self._unknown(reading)]
        for damage in self.damages:
            logger.error("the log is damaged", extra={"reason": damage.sentence})
        number, epoch = reading.number, reading.epoch
        if self.damages or reading.doubt:
            is_new = not self._index.sessions and not number
            number, epoch = (1 if is_new else max(number, 1) + 1), new_epoch()
        self.epoch = LogEpoch(epoch, is_first=number == 1)
        sessions = self._index.sessions.values()
        self._mark.begin(epoch, number, ((each.number, each.slot) for each in sessions))

    def _differences(self, reading: MarkReading) -> Iterator[Damage]:
        known = {each.name: (name, each) for name, each in self._index.sessions.items()}
        for slot in reading.slots.values():
            session_id, session = known.get(slot.name, (None, None))
            stored = 0 if session is None else session.last_seq
            if stored < slot.last_seq:
                first, reason = stored + 1, "they were stored and are missing"
            elif session is not None and not session.is_verified:
                session.is_damaged = True
                first, reason = session.freed_seq + 1, "their checksum is wrong"
            else:
                continue
            yield Damage(
                session_id=session_id,
                first_seq=first,
                last_seq=slot.last_seq,
                reason=reason,
                is_lost=stored < slot.last_seq,
            )

    def _unknown(self, reading: MarkReading) -> Iterator[Damage]:
        """Yield sessions that the mark lacks: a damaged line may have another session's id."""
        known = {slot.name for slot in reading.slots.values()}
        for session_id, session in self._index.sessions.items():
            if session.name not in known:
                session.is_damaged = True
                reason = "it was never stored, or its id is damaged"
                last = session.last_seq
                yield Damage(session_id=session_id, first_seq=1, last_seq=last, reason=reason)

    def _repair(self, tail: bytes) -> None:
        """End the last line if it is whole, else cut it off: the next must not be glued to it."""
        if _is_json(tail):
            self._index.add_line(tail + b"\n", self._size)
            _write_all(self._file, b"\n")
            self._size += len(tail) + 1
        else:
            self._index.skipped += 1
            os.ftruncate(self._file, self._size)
        flush_to_disk(self._file)

    def _store(self, group: Group) -> None:
        lines = [
            record.data if isinstance(record, Stored) else self._meta_line(record)
            for record in group.records
        ]
        start, text = self._size, b"\n".join([*lines, b""])
        assert text.count(b"\n") == len(lines), "an event is one line"
        self._write(text)
        # Readers see the events from here on: they are on the disk.
        for record, line in zip(group.records, lines, strict=True):
            session = self._index.session(record.session_id)
            if isinstance(record, Stored):
                session.add_event(record.seq, start, line + b"\n")
            else:
                self._index.add_meta(record.session_id, line, freed_seq=session.freed_seq)
            start += len(line) + 1
        stored = [self._index.session(session_id) for session_id in group.last_seqs]
        self._mark.note([(session.number, session.slot) for session in stored])

    def _meta_line(self, meta: SessionMeta) -> bytes:
        known = self._index.sessions.get(meta.session_id)
        if known is None:
            return encode_meta(meta)
        return encode_meta(meta, freed_seq=known.freed_seq, before=known.meta)

    def _write(self, text: bytes) -> None:
        """Append whole lines and sync them, or leave the file as it was."""
        with self._failures():
            self._remove_remains()
            self._has_remains = True
            try:
                _write_all(self._file, text)
            except OSError:
                self._remove_remains()
                raise
            try:
                flush_to_disk(self._file)
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    # The kernel drops what it failed to sync: a second fsync would report success.
                    self._broken = _broken(self.path, error)
                self._remove_remains()
                raise
            self._has_remains = False
            self._size += len(text)

    def _remove_remains(self) -> None:
        if self._has_remains:
            os.ftruncate(self._file, self._size)
            self._has_remains = False

    def _compact(self) -> None:
        """Rewrite the file without garbage and replace the old one."""
        with self._failures():
            self._new_path.unlink(missing_ok=True)
            new_file = os.open(self._new_path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, PRIVATE)
            try:
                index, size = self._copy(new_file)
                flush_to_disk(new_file)
                self._new_path.replace(self.path)
            except BaseException:
                os.close(new_file)
                self._new_path.unlink(missing_ok=True)  # it would use up a full disk
                raise
        with self._swap:
            old_file, self._file = self._file, new_file
            self._index, self._size, self._has_remains = index, size, False
        os.close(old_file)
        self._sync_name()

    def _sync_name(self) -> None:
        try:
            _sync_folder(self.path.parent)
        except OSError as error:
            # After a power cut the old file could be back, without later events.
            self._broken = _broken(self.path, error)
            raise self._broken.again() from error

    def _copy(self, new_file: int) -> tuple[Index, int]:
        index, size = Index(), 0
        with os.fdopen(new_file, "ab", buffering=_BUFFER_BYTES, closefd=False) as copy:
            for line in self._kept_lines():
                copy.write(line)
                index.add_line(line, size)
                size += len(line)
        return index, size

    def _kept_lines(self) -> Iterator[bytes]:
        """Return the lines to keep; the meta of a session goes where the session first appears."""
        seen: set[str] = set()
        with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
            for line in file:
                content = read_line(line)
                if content is None or content.session_id is UNSET:
                    yield line
                    continue
                session = self._index.session(content.session_id)
                if content.session_id not in seen and session.meta is not None:
                    yield session.meta + b"\n"
                seen.add(content.session_id)
                if isinstance(content, EventLine) and content.seq > session.freed_seq:
                    yield line

    def _last_seq(self, session_id: str) -> int:
        session = self._index.sessions.get(session_id)
        return 0 if session is None else session.last_seq

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _explain(self.path, error) from error


def flush_to_disk(file: int) -> None:
    """Sync the written data to the disk."""
    sync_data(file)


def _explain(path: Path, error: OSError) -> StorageFailed:
    reason = error.strerror or str(error)
    if error.errno in _DISK_FULL:
        return StorageFailed(
            path, reason, "free up space on its disk; storing then resumes by itself"
        )
    return StorageFailed(path, reason, "check the disk, then restart")


def _broken(path: Path, error: OSError) -> StorageFailed:
    reason = error.strerror or str(error)
    return StorageFailed(path, reason, "check the disk, then restart", is_final=True)


def _is_next(line: Line, session_id: str, after: int) -> TypeGuard[EventLine]:
    return isinstance(line, EventLine) and line.session_id == session_id and line.seq > after


def _may_be_torn(tail: bytes) -> bool:
    """Return whether a file of only `tail` can be a log whose first write was cut off."""
    return (
        not tail or read_line(tail) is not None or (tail.startswith(b'{"') and not _is_json(tail))
    )


def _is_json(line: bytes) -> bool:
    try:
        decode_json(line)
    except JsonInvalid:
        return False
    return True


def _write_all(file: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    """Make a new or renamed file survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

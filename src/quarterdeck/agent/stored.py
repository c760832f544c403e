"""One session on disk, open in this process; see `store` for the files and what they promise."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from quarterdeck.errors import StorageFailed, StorageRefused

_READ_SIZE: Final = 256 * 1024


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What `session.json` holds."""

    cwd: str
    created_at: str
    additional_directories: tuple[str, ...] = ()
    mode: str | None = None
    config: dict[str, Any] = {}
    title: str | None = None
    initial_message: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionRecord).decode


def read_record(folder: Path) -> SessionRecord:
    """Read what is known of a session.

    Raises:
        OSError: if it cannot be read.
        msgspec.DecodeError: if it is not what was written.
    """
    return _decode((folder / "session.json").read_bytes())


class StoredSession:
    """The files of one session. Whoever has it open is the only one."""

    def __init__(self, folder: Path, record: SessionRecord, log: int) -> None:
        """Only for `create` and `open`."""
        self.folder = folder
        self.record = record
        self._log = log
        self._size = _mend(log)
        self._is_torn = False
        self.memory = _read_if_there(folder / "memory")
        """What the agent asked to remember."""
        self._unsynced: set[str] = set()
        self._is_closed = False

    @classmethod
    def create(cls, folder: Path, record: SessionRecord) -> StoredSession:
        log = _open_log(folder)
        try:
            _replace(folder / "session.json", _encode(record))
            return cls(folder, record, log)
        except OSError as error:
            os.close(log)
            raise _failed(folder, error) from error

    @classmethod
    def open(cls, folder: Path) -> StoredSession:
        log = _open_log(folder)
        try:
            return cls(folder, read_record(folder), log)
        except OSError as error:
            os.close(log)
            raise _failed(folder, error) from error
        except msgspec.DecodeError as error:
            os.close(log)
            remedy = "restore session.json in it, or delete the folder"
            raise StorageRefused(folder, f"session.json is damaged ({error})", remedy) from error

    def append(self, update: bytes) -> None:
        """Add one update, as JSON on one line.

        Raises:
            StorageFailed: if it cannot be written; nothing of it is in the file then.
        """
        line = rest = update + b"\n"
        try:
            if self._is_torn:
                self._cut_off()
            while rest := rest[os.write(self._log, rest) :]:
                pass  # the disk is full, and the next attempt says so
        except OSError as error:
            self._is_torn = True
            with suppress(OSError):  # it is tried again before anything else is written
                self._cut_off()
            raise _failed(self.folder, error) from error
        self._size += len(line)
        self._unsynced.add("updates.jsonl")

    def _cut_off(self) -> None:
        """Take away what was written of a line that did not fit."""
        os.ftruncate(self._log, self._size)
        self._is_torn = False

    def updates(self) -> Iterator[list[bytes]]:
        """Read the updates that are there now, many at a time, never all at once."""
        rest, place, end = b"", 0, self._size
        while place < end:
            try:
                piece = os.pread(self._log, min(_READ_SIZE, end - place), place)
            except OSError as error:
                raise _failed(self.folder, error) from error
            if not piece:
                break
            place += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield [line for line in lines if line]

    def save(self, record: SessionRecord) -> None:
        """Replace what is known of the session.

        Raises:
            StorageFailed: if it cannot be written; the old is still there then.
        """
        self._put("session.json", _encode(record))
        self.record = record

    def remember(self, memory: bytes) -> None:
        """Replace the agent's memory.

        Raises:
            StorageFailed: if it cannot be written; the old is still there then.
        """
        self._put("memory", memory)
        self.memory = memory

    def sync(self) -> None:
        """Wait until the disk has what was written.

        Raises:
            StorageFailed: if the disk does not take it.
        """
        names, self._unsynced = self._unsynced, set()
        try:
            for name in names:
                _sync(self.folder / name)
            if names:
                _sync(self.folder)
        except OSError as error:
            self._unsynced |= names
            raise _failed(self.folder, error) from error

    def close(self) -> None:
        """Let others open it; safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._log)

    def _put(self, name: str, content: bytes) -> None:
        try:
            _replace(self.folder / name, content)
        except OSError as error:
            raise _failed(self.folder, error) from error
        self._unsynced.add(name)


def _open_log(folder: Path) -> int:
    """Open the updates for this process alone, until the descriptor is closed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        log = os.open(folder / "updates.jsonl", flags, 0o600)
    except OSError as error:
        raise _failed(folder, error) from error
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(log)
        remedy = "close it there first"
        raise StorageRefused(folder, "another program has this session open", remedy) from error
    return log


def _mend(log: int) -> int:
    """Cut off a last line that was being written when the process was killed; return the size."""
    size = os.fstat(log).st_size
    kept = size
    while kept:
        start = max(0, kept - _READ_SIZE)
        piece = os.pread(log, kept - start, start)
        newline = piece.rfind(b"\n")
        if newline >= 0:
            kept = start + newline + 1
            break
        kept = start
    if kept < size:
        os.ftruncate(log, kept)
    return kept


def _read_if_there(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole: whoever reads it sees the old or the new."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        new.replace(path)
    except OSError:
        with suppress(OSError):  # what could not be written need not stay, but does no harm either
            new.unlink()
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(folder: Path, error: OSError) -> StorageFailed:
    return StorageFailed(folder, error.strerror or str(error), "make room or mend it, then go on")

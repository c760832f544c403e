"""Sessions on disk: a folder for each, which survives the process, also `kill -9`.

    <folder>/<session id>/updates.jsonl   every update, one per line, in order; append-only, and
                                          locked by the process that has the session open
                          session.json    cwd, mode, config, title; replaced as a whole
                          memory          what the agent itself stored; replaced as a whole

When a function returns, what it wrote has left the process: `kill -9` loses nothing that a client
was shown. A power failure loses what the operating system has not written yet; `sync` waits for
the disk, and is called at the end of every turn and when a session is closed. A line that does not
fit on the disk is removed again, at the latest before the next one is written.

Folders are 0700 and files 0600. Environment values of MCP servers are never stored.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from quarterdeck.agent.checks import SESSION_ID
from quarterdeck.errors import StorageFailed, StorageRefused

_READ_SIZE: Final = 256 * 1024


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The content of `session.json`."""

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
    """Read the record of a session.

    Raises:
        OSError: if it cannot be read.
        msgspec.DecodeError: if it is damaged.
    """
    return _decode((folder / "session.json").read_bytes())


class StoredSession:
    """The files of one session, locked: no other process has it open."""

    def __init__(self, folder: Path, record: SessionRecord, log: int) -> None:
        """Created by `create` and `open` only."""
        self.folder = folder
        self.record = record
        self._log = log
        self._size = _repair(log)
        self._is_torn = False
        self.memory = _read_if_present(folder / "memory")
        """What the agent stored."""
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
            StorageFailed: if it cannot be written; then the file has no part of it.
        """
        line = rest = update + b"\n"
        try:
            if self._is_torn:
                self._remove_torn_line()
            while rest := rest[os.write(self._log, rest) :]:
                pass  # a short write: the disk is full, and the next write raises
        except OSError as error:
            self._is_torn = True
            with suppress(OSError):  # retried before the next write
                self._remove_torn_line()
            raise _failed(self.folder, error) from error
        self._size += len(line)
        self._unsynced.add("updates.jsonl")

    def _remove_torn_line(self) -> None:
        """Remove the partly written last line."""
        os.ftruncate(self._log, self._size)
        self._is_torn = False

    def updates(self) -> Iterator[list[bytes]]:
        """Read the updates stored so far, in batches of bounded size."""
        rest, position, end = b"", 0, self._size
        while position < end:
            try:
                piece = os.pread(self._log, min(_READ_SIZE, end - position), position)
            except OSError as error:
                raise _failed(self.folder, error) from error
            if not piece:
                break
            position += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield [line for line in lines if line]

    def save(self, record: SessionRecord) -> None:
        """Replace the session record.

        Raises:
            StorageFailed: if it cannot be written; then the old one is still there.
        """
        self._put("session.json", _encode(record))
        self.record = record

    def remember(self, memory: bytes) -> None:
        """Replace the agent's memory.

        Raises:
            StorageFailed: if it cannot be written; then the old one is still there.
        """
        self._put("memory", memory)
        self.memory = memory

    def sync(self) -> None:
        """Wait until everything written is on disk.

        Raises:
            StorageFailed: if the disk reports an error.
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
        """Release the lock; idempotent."""
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
    """Open and lock the updates; closing the descriptor releases the lock."""
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


def _repair(log: int) -> int:
    """Remove a last line that a killed process left incomplete; return the size."""
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


def _read_if_present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old or the new content."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        new.replace(path)
    except OSError:
        with suppress(OSError):  # a leftover `.new` file is harmless
            new.unlink()
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(folder: Path, error: OSError) -> StorageFailed:
    remedy = "free some space or repair it, then retry"
    return StorageFailed(folder, error.strerror or str(error), remedy)


ENVIRONMENT_VARIABLE: Final = "QUARTERDECK_SESSIONS"

_DELETED: Final = ".deleted-"  # no session id begins with a dot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredSessionInfo:
    """A stored session, as `session/list` reports it."""

    id: str
    record: SessionRecord
    updated_at: str
    """Time of the last recorded update, as ISO 8601 in UTC."""

    @property
    def sort_key(self) -> tuple[str, str]:
        return (self.updated_at, self.id)


class SessionStore:
    """All sessions in one folder; processes may share it, but each session is open in one.

    Its methods and those of `StoredSession` access the disk: call them in a thread, except
    `append` and `remember`, which take microseconds.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @staticmethod
    def default_folder(environ: Mapping[str, str]) -> Path:
        """Return where sessions are stored: $QUARTERDECK_SESSIONS, or a folder of the XDG state."""
        named = environ.get(ENVIRONMENT_VARIABLE)
        if named:
            return Path(named).expanduser()
        state = environ.get("XDG_STATE_HOME", "")
        base = Path(state) if Path(state).is_absolute() else Path("~/.local/state").expanduser()
        return base / "quarterdeck" / "sessions"

    def create(self, session_id: str, record: SessionRecord) -> StoredSession:
        """Create a session.

        Raises:
            StorageFailed: if it cannot be written.
        """
        folder = self._folder_of(session_id)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise self._failed(error) from error
        try:
            return StoredSession.create(folder, record)
        except StorageFailed:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def open(self, session_id: str) -> StoredSession | None:
        """Open a session to read and continue it; None if there is no such session.

        Raises:
            StorageRefused: if another process has it open, or it is damaged.
            StorageFailed: if it cannot be read.
        """
        folder = self._folder_of(session_id)
        return StoredSession.open(folder) if (folder / "session.json").exists() else None

    def list(self) -> list[StoredSessionInfo]:
        """Return all sessions, most recently used first."""
        found = [listed for each in self._folders() if (listed := _session_info(each)) is not None]
        return sorted(found, key=lambda listed: listed.sort_key, reverse=True)

    def delete(self, session_id: str) -> bool:
        """Delete a session permanently; return whether it existed.

        Raises:
            StorageRefused: if another process has it open.
            StorageFailed: if it cannot be deleted.
        """
        opened = self.open(session_id)
        if opened is None:
            return False
        folder = self._folder_of(session_id)
        try:
            # Renamed first: an interrupted deletion must not leave half a session.
            gone = folder.with_name(f"{_DELETED}{session_id}-{os.getpid()}")
            folder.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            opened.close()
        return True

    def _folder_of(self, session_id: str) -> Path:
        assert SESSION_ID.fullmatch(session_id), "session ids are validated by `checks`"
        return self.folder / session_id

    def _folders(self) -> Iterator[Path]:
        try:
            yield from (each for each in self.folder.iterdir() if SESSION_ID.fullmatch(each.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageFailed:
        remedy = f"free some space or set {ENVIRONMENT_VARIABLE} to another folder"
        return StorageFailed(error.filename or self.folder, error.strerror or str(error), remedy)


def _session_info(folder: Path) -> StoredSessionInfo | None:
    try:
        record = read_record(folder)
        used = (folder / "updates.jsonl").stat().st_mtime
    except (OSError, msgspec.DecodeError):
        logger.warning("a folder in the store is not a session", extra={"folder": str(folder)})
        return None
    moment = datetime.fromtimestamp(used, UTC).isoformat(timespec="milliseconds")
    return StoredSessionInfo(folder.name, record, moment.replace("+00:00", "Z"))

"""One session on disk, open in this process; see `store` for the files and what they promise.

PART: Sessions on disk: a folder for each, which outlives the process, also one that is killed.

    <folder>/<session id>/updates.jsonl   every update, one a line, in order; only ever appended to,
                                          and locked by the process that has the session open
                          session.json    cwd, mode, config, title; replaced as a whole
                          memory          what the agent itself remembers; replaced as a whole

When a function returns, what it wrote has left the process: `kill -9` loses nothing that a client
was shown. What the computer has not put on its disk yet is lost if the power fails; `sync` waits
for the disk, and is called at the end of every turn and when a session is closed.

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


ENVIRONMENT_VARIABLE: Final = "QUARTERDECK_SESSIONS"

_DELETED: Final = ".deleted-"  # no session id begins with a dot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredSessionInfo:
    """What a list of sessions tells of one."""

    id: str
    record: SessionRecord
    updated_at: str
    """When something was last said in it, as ISO 8601 in UTC."""

    @property
    def sort_key(self) -> tuple[str, str]:
        return (self.updated_at, self.id)


class SessionStore:
    """All sessions in one folder; several processes may share it, each session is open in one.

    Its methods and those of `StoredSession` touch the disk: except for `append` and `remember`,
    which cost microseconds, call them in a thread.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @staticmethod
    def default_folder(environ: Mapping[str, str]) -> Path:
        """Return where sessions are kept: $QUARTERDECK_SESSIONS, or a folder of the XDG state."""
        named = environ.get(ENVIRONMENT_VARIABLE)
        if named:
            return Path(named).expanduser()
        state = environ.get("XDG_STATE_HOME", "")
        base = Path(state) if Path(state).is_absolute() else Path("~/.local/state").expanduser()
        return base / "quarterdeck" / "sessions"

    def create(self, session_id: str, record: SessionRecord) -> StoredSession:
        """Begin a session.

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
        """Open a session for reading and going on; None if there is no such session.

        Raises:
            StorageRefused: if another process has it open, or it was damaged.
            StorageFailed: if it cannot be read.
        """
        folder = self._folder_of(session_id)
        return StoredSession.open(folder) if (folder / "session.json").exists() else None

    def list(self) -> list[StoredSessionInfo]:
        """Return all sessions, the one that was used last first."""
        found = [listed for each in self._folders() if (listed := _listed(each)) is not None]
        return sorted(found, key=lambda listed: listed.sort_key, reverse=True)

    def delete(self, session_id: str) -> bool:
        """Delete a session for good; tell whether it was there.

        Raises:
            StorageRefused: if another process has it open.
            StorageFailed: if it cannot be deleted.
        """
        opened = self.open(session_id)
        if opened is None:
            return False
        folder = self._folder_of(session_id)
        try:
            # Renamed first: a deletion that is cut short must not leave half a session.
            gone = folder.with_name(f"{_DELETED}{session_id}-{os.getpid()}")
            folder.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            opened.close()
        return True

    def _folder_of(self, session_id: str) -> Path:
        assert SESSION_ID.fullmatch(session_id), "ids are checked where they come in"
        return self.folder / session_id

    def _folders(self) -> Iterator[Path]:
        try:
            yield from (each for each in self.folder.iterdir() if SESSION_ID.fullmatch(each.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageFailed:
        remedy = f"make room or set {ENVIRONMENT_VARIABLE} to another folder"
        return StorageFailed(error.filename or self.folder, error.strerror or str(error), remedy)


def _listed(folder: Path) -> StoredSessionInfo | None:
    try:
        record = read_record(folder)
        used = (folder / "updates.jsonl").stat().st_mtime
    except (OSError, msgspec.DecodeError):
        logger.warning("a folder in the store is no session", extra={"folder": str(folder)})
        return None
    moment = datetime.fromtimestamp(used, UTC).isoformat(timespec="milliseconds")
    return StoredSessionInfo(folder.name, record, moment.replace("+00:00", "Z"))

"""Sessions on disk: a folder for each, which outlives the process, also one that is killed.

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

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.agent.checks import SESSION_ID
from quarterdeck.agent.stored import SessionRecord, StoredSession, read_record
from quarterdeck.errors import StorageFailed

ENVIRONMENT_VARIABLE: Final = "QUARTERDECK_SESSIONS"

_DELETED: Final = ".deleted-"  # no session id begins with a dot

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedSession:
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

    def list(self) -> list[ListedSession]:
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


def _listed(folder: Path) -> ListedSession | None:
    try:
        record = read_record(folder)
        used = (folder / "updates.jsonl").stat().st_mtime
    except (OSError, msgspec.DecodeError):
        logger.warning("a folder in the store is no session", extra={"folder": str(folder)})
        return None
    moment = datetime.fromtimestamp(used, UTC).isoformat(timespec="milliseconds")
    return ListedSession(folder.name, record, moment.replace("+00:00", "Z"))

"""A SQLite log without its free pages, written while the log is in use.

Deleted events leave free pages, which SQLite uses again but does not give back. `VACUUM` would hold
the log for as long as it takes; `auto_vacuum` would cost every commit a page more. So the log is
copied, as the JSON lines are:

1. `VACUUM INTO` writes a copy from a snapshot, on a thread, while commits continue.
2. What was committed meanwhile is added to the copy, until little is left.
3. The writer's thread adds the rest, compares both, closes the log, renames the copy and opens it.
   Only this step holds up commits, for some milliseconds, and never the event loop.

Events are only ever added while this runs: their deletion is put off (`is_compacting`), so a row id
above the last one in the copy is a row that it lacks. Killed at any point, the log is the old file
or the new one, each complete: the old one has no WAL when it is replaced.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from quarterdeck.machine.disk_sync import sync_file
from quarterdeck.storage.sqlite_schema import Transaction, connect_reader

END: Final = ".compact"
_TABLES: Final = ("sessions", "log", "losses")
_BEHIND: Final = (
    "SELECT count(*) FROM old.events WHERE id > (SELECT coalesce(max(id), 0) FROM events)"
)


def compact_path(path: Path) -> Path:
    """Return the path of the copy."""
    return path.with_name(f"{path.name}{END}")


def remove_copy(path: Path) -> None:
    """Remove what a compaction that was killed has left."""
    for end in ("", "-journal", "-wal", "-shm"):
        path.with_name(f"{path.name}{END}{end}").unlink(missing_ok=True)


def write_copy(path: Path) -> None:
    """Write the copy from a snapshot; takes as long as reading the log."""
    remove_copy(path)
    copy = compact_path(path)
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(connect_reader(path)) as reader:
        reader.execute("VACUUM INTO ?", (str(copy),))


def catch_up(path: Path) -> int:
    """Add to the copy what was committed since; return how many rows that was."""
    with closing(_open_copy(path)) as copy, Transaction(copy):
        (behind,) = copy.execute(_BEHIND).fetchone()
        copy.execute(
            "INSERT INTO events SELECT * FROM old.events"
            " WHERE id > (SELECT coalesce(max(id), 0) FROM main.events)"
        )
        for table in _TABLES:
            copy.execute(f"DELETE FROM main.{table}")  # noqa: S608 - ours
            copy.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")  # noqa: S608 - ours
        return int(behind)


def is_equal(path: Path) -> bool:
    """Return whether the copy has everything; then it is synced."""
    count = "(SELECT count(*) FROM {0}.events), (SELECT coalesce(sum(count), 0) FROM {0}.events)"
    with closing(_open_copy(path)) as copy:
        ours = copy.execute(f"SELECT {count.format('main')}").fetchone()
        theirs = copy.execute(f"SELECT {count.format('old')}").fetchone()
    if ours != theirs:
        return False
    descriptor = os.open(compact_path(path), os.O_RDWR | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
    return True


def put_in_place(path: Path) -> None:
    """Rename the copy; the log is closed and has no WAL."""
    compact_path(path).replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _open_copy(path: Path) -> sqlite3.Connection:
    copy = sqlite3.connect(f"file:{quote(str(compact_path(path)))}", uri=True, isolation_level=None)
    copy.execute("PRAGMA journal_mode=DELETE")
    copy.execute("PRAGMA synchronous=OFF")  # `is_equal` syncs it
    copy.execute("ATTACH ? AS old", (f"file:{quote(str(path))}?mode=ro",))
    return copy

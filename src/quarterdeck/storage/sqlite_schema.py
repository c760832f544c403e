"""The schema of a SQLite log, its migrations, and the checks before a file is written.

| PRAGMA | why |
| --- | --- |
| `application_id` | marks the file as ours; any other file is rejected, never written |
| `user_version` | the number of migrations applied to the file |
| `page_size` 8192 | an event of 1.5 KB stays in its page: 2.7 times as fast as 4096, 1/3 the size |
| `journal_mode` WAL | commits append to one file, and readers never wait for the writer |
| `synchronous` NORMAL | a commit is with the kernel: it survives `kill -9`; FULL: a power cut too |
| `fullfsync` with FULL | macOS: an fsync that reaches the disk and not only its cache |
| `wal_autocheckpoint` 0 | checkpoints run after callers were answered, so no caller waits for one |
| `journal_size_limit` | the WAL file is truncated after a burst |
| `busy_timeout` | the `sqlite3` tool may lock the file for a moment |
| `cache_size` | 8 MB for the writer, 2 MB for the reader, whatever the size of the log |
| `mmap_size` 0 | a bad disk raises an error; with a memory map it would be a signal |
| `secure_delete` | the text of a deleted session is overwritten, not just unlinked |
| `cell_size_check`, `trusted_schema` | a damaged or malicious file raises an error early |
| `locking_mode` NORMAL | EXCLUSIVE would block our reader; other writers are stopped by `lock` |
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from quarterdeck.errors import REPAIR, StorageRefused
from quarterdeck.storage.integrity import meta_checksum, name_checksum, record_checksum

Synchronous: TypeAlias = Literal["normal", "full"]
Migration: TypeAlias = Callable[[sqlite3.Connection], None]

APPLICATION_ID: Final = 0x51646C67  # "Qdlg"
DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
REPAIRED: Final = ".repaired"
"""The end of the name of a file that a repair has written and not yet put in its place."""
_MAGIC: Final = b"SQLite format 3\x00"
_TABLES: Final = {"sessions", "events"}
_FACTS: Final = {"log", "losses"}
"""The further tables since format 2."""
_WAL_KEPT_BYTES: Final = 64 << 20
_BUSY_MS: Final = 5_000
_SALVAGE: Final = (
    f"recover the intact data with `{REPAIR}`, restore a backup with `quarterdeck restore`,"
    " or move it away to begin an empty log"
)


def _create_tables(connection: sqlite3.Connection) -> None:
    # `id` is the order of first appearance and the short name of the session in `events`.
    # Events up to `freed_seq` are deleted; those that are still there will be swept.
    connection.execute(
        "CREATE TABLE sessions ("
        " id INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, meta BLOB,"
        " last_seq INTEGER NOT NULL, freed_seq INTEGER NOT NULL DEFAULT 0)"
    )
    # A row is a run of events of one commit, one per line, up to `last_seq`: it takes a quarter
    # of the processor time of one row per event.
    connection.execute(
        "CREATE TABLE events ("
        " id INTEGER PRIMARY KEY, session INTEGER NOT NULL, last_seq INTEGER NOT NULL,"
        " count INTEGER NOT NULL, data BLOB NOT NULL)"
    )
    connection.execute("CREATE UNIQUE INDEX runs ON events (session, last_seq)")


def _add_checksums(connection: sqlite3.Connection) -> None:
    # Of events that are there already they are computed later, by housekeeping: from
    # `unsealed_from` to `unsealed_to`. `number` counts the epochs.
    connection.execute("ALTER TABLE events ADD COLUMN checksum INTEGER")
    connection.execute("ALTER TABLE sessions ADD COLUMN checksum INTEGER")
    connection.execute(
        "CREATE TABLE log (id INTEGER PRIMARY KEY CHECK (id = 1), epoch TEXT NOT NULL,"
        " number INTEGER NOT NULL, unsealed_from INTEGER NOT NULL, unsealed_to INTEGER NOT NULL)"
    )
    connection.execute(
        "INSERT INTO log SELECT 1, '', 0, coalesce(min(id), 1), coalesce(max(id), 0) FROM events"
    )
    # What is known to be lost, until `quarterdeck repair` has reported it.
    connection.execute(
        "CREATE TABLE losses (id INTEGER PRIMARY KEY, session_id TEXT, first_seq INTEGER NOT NULL,"
        " last_seq INTEGER NOT NULL, found_at TEXT NOT NULL)"
    )
    rows = connection.execute("SELECT id, session_id, meta, last_seq, freed_seq FROM sessions")
    for id_, column, meta, last_seq, freed_seq in rows.fetchall():
        name = name_checksum(session_of(column))
        checksum = record_checksum(name, meta_checksum(meta), last_seq, freed_seq)
        connection.execute("UPDATE sessions SET checksum = ? WHERE id = ?", (checksum, id_))


MIGRATIONS: Final[tuple[Migration, ...]] = (_create_tables, _add_checksums)
"""Append only: a released migration is never changed."""


def connect_writer(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open the one connection that writes and checkpoints."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with closed_on_failure(connection):
        _set_up_writer(path, connection, synchronous)
    return connection


def _set_up_writer(path: Path, connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    connection.execute("PRAGMA page_size=8192")
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        reason = f"its file system allows only the journal mode {mode!r}"
        raise StorageRefused(path, reason, "keep the log on a local disk")
    for setting in (
        f"synchronous={synchronous}",
        f"fullfsync={int(synchronous == 'full')}",
        f"checkpoint_fullfsync={int(synchronous == 'full')}",
        "wal_autocheckpoint=0",
        f"journal_size_limit={_WAL_KEPT_BYTES}",
        "secure_delete=ON",
        "cache_size=-8192",
    ):
        connection.execute(f"PRAGMA {setting}")
    protect(connection)


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that can neither write nor checkpoint."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    with closed_on_failure(connection):
        connection.execute("PRAGMA cache_size=-2048")
        protect(connection)
    return connection


@contextmanager
def closed_on_failure(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection if setting it up fails."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def protect(connection: sqlite3.Connection) -> None:
    """Make a damaged or malicious file an error; see the table above."""
    connection.text_factory = _text
    for setting in (
        f"busy_timeout={_BUSY_MS}",
        "mmap_size=0",
        "cell_size_check=ON",
        "trusted_schema=OFF",
    ):
        connection.execute(f"PRAGMA {setting}")


def _text(value: bytes) -> str:
    # Damaged text must not fail the whole query: its checksum is wrong, and it is reported.
    return value.decode("utf-8", "surrogateescape")


def check_file(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Check the file at `path` without changing it.

    Raises:
        StorageRefused: if it is there and not a log that this version can write.
    """
    if path.with_name(f"{path.name}{REPAIRED}").exists():
        raise StorageRefused(path, "a repair of it was interrupted", f"finish it: {REPAIR}")
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if not start:
        return
    if start != _MAGIC:
        raise StorageRefused(path, "it is not a SQLite database", "choose another path")
    try:
        with closing(connect_reader(path)) as connection:
            owner, version = _pragma(connection, "application_id"), _version(connection)
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise unusable(path, error) from error
    if owner == 0 and version == 0 and not tables:
        return  # created, but the first migration was interrupted
    if owner != APPLICATION_ID:
        raise StorageRefused(path, "it belongs to another program", "choose another path")
    if version > len(migrations):
        reason = (
            f"a newer Quarterdeck wrote it (format {version}, this one knows {len(migrations)})"
        )
        raise StorageRefused(path, reason, "upgrade Quarterdeck, or choose another path")
    if version < 0:
        raise StorageRefused(path, f"it is damaged (its format is {version})", _SALVAGE)
    if not tables >= (_TABLES if version < 2 else _TABLES | _FACTS):
        raise StorageRefused(path, "it is damaged (a table is missing)", _SALVAGE)


def migrate(
    path: Path, connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Bring a log up to date, one transaction for each step.

    Raises:
        StorageRefused: if a step fails; the steps before it are kept, this one is undone.
    """
    for number in range(_version(connection) + 1, len(migrations) + 1):
        try:
            with Transaction(connection):
                migrations[number - 1](connection)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={number}")
        except sqlite3.Error as error:
            reason = f"it cannot be brought to format {number} ({error})"
            remedy = "it was not changed; free up disk space or report this, and try again"
            raise StorageRefused(path, reason, remedy) from error


class Transaction:
    """Commit when the block ends; roll back when it raises.

    A class, because it is entered for every commit: a generator takes a microsecond more.
    """

    __slots__ = ("_begin", "_connection")

    def __init__(self, connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> None:
        self._connection.execute(self._begin)

    def __exit__(self, kind: type[BaseException] | None, *_failure: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # SQLite may have rolled back by itself
                self._connection.execute("ROLLBACK")


def unusable(path: Path, error: sqlite3.DatabaseError | UnicodeDecodeError) -> StorageRefused:
    """Return the error for a file that SQLite cannot open."""
    if isinstance(error, UnicodeDecodeError):  # the message of SQLite has damaged text in it
        return StorageRefused(path, "it is damaged (its text is not UTF-8)", _SALVAGE)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
        return StorageRefused(path, f"it is damaged ({error})", _SALVAGE)
    remedy = "check its disk, its permissions, and which other programs have it open"
    return StorageRefused(path, str(error), remedy)


def column_of(session_id: str) -> str | bytes:
    """Return the value of a column `session_id`: text, or bytes if it is not valid Unicode."""
    try:
        session_id.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return session_id.encode("utf-8", "surrogatepass")
    return session_id


def session_of(column: str | bytes) -> str:
    """Return the id of a session from its column."""
    if isinstance(column, str):
        return column
    return column.decode("utf-8", "surrogatepass" if _is_wide(column) else "replace")


def _is_wide(column: bytes) -> bool:
    try:
        column.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # damaged
        return False
    return True


def _version(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

"""A small SQLite file of tables (runner.db, hub.db), written by one thread at a time.

Each feature owns the shape of its tables (`Tables`); features know nothing of each other. A commit
that returned survives a power cut: a revoked device stays revoked. The process that opens the file
holds the lock of the data directory, so there is never a second writer.

Only the stores (`PromptStore`, `DeviceStore` …) use `Database`; other code calls their methods.

Every row has a checksum (`row_sums`), and the number of changes is in a mark beside the file: both
are compared when the database is opened. A damaged one is not used, and the error names what is
wrong; `quarterdeck repair` sets the damaged rows aside.

Tables move from one file to another in two transactions, each in one file. The first copies
tables, rows and versions; the second, when the old file is opened, drops the old tables. A process
that is killed between the two finds the versions in the new file, copies nothing again and drops.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote

import anyio
from anyio import to_thread

from quarterdeck.errors import REPAIR, DatabaseFailed, StartRefused
from quarterdeck.machine.private_files import open_private
from quarterdeck.storage import row_sums
from quarterdeck.storage.contract import CompactedFile
from quarterdeck.storage.integrity import name_checksum
from quarterdeck.storage.mark import LogMark, Slot
from quarterdeck.storage.sqlite_schema import (
    DAMAGED,
    REPAIRED,
    Transaction,
    closed_on_failure,
    protect,
)

APPLICATION_ID: Final = 0x51646862  # "Qdhb"

_SALVAGE: Final = (
    f"recover the intact data with `{REPAIR}`, restore a backup with `quarterdeck restore`, or move"
    " it away: sessions are kept elsewhere, but devices must be paired again and prompts that were"
    " waiting are lost"
)
_CHANGES_SLOT: Final = 0

_T = TypeVar("_T")
Step: TypeAlias = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True)
class Tables:
    """The tables of one feature, and the steps that create and change them."""

    name: str
    """Name of the feature; also of its table, if it can be moved to another file."""
    steps: tuple[Step, ...]
    """Append only: a released step is never changed."""


SUMS: Final = Tables(row_sums.NAME, (row_sums.create_sums,))
"""A part of every database; the last to be created."""


class Database:
    """The open database; made by `open_database`."""

    def __init__(self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self.path = path
        self.mark = LogMark(path)
        self._writer = writer
        self._reader = reader
        self._writes = anyio.CapacityLimiter(1)
        self._reads = anyio.CapacityLimiter(1)

    async def read(self, look: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `look` on a thread, with a connection that cannot write.

        Raises:
            DatabaseFailed: if SQLite fails.
        """
        return await to_thread.run_sync(
            partial(self._run, self._reader, "BEGIN", look), limiter=self._reads
        )

    async def write(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `change` on a thread, in a transaction; an exception rolls it back.

        A change that has begun completes even if its caller is cancelled.

        Raises:
            DatabaseFailed: if SQLite fails.
        """
        return await to_thread.run_sync(partial(self._change, change), limiter=self._writes)

    def _change(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        changes = 0

        def counted(connection: sqlite3.Connection) -> _T:
            nonlocal changes
            before = connection.total_changes
            result = change(connection)
            if connection.total_changes != before:
                changes = row_sums.add_change(connection)
            return result

        result = self._run(self._writer, "BEGIN IMMEDIATE", counted)
        if changes:
            self.mark.note([(_CHANGES_SLOT, _slot(self.path, changes))])
        return result

    async def compact(self) -> CompactedFile:
        """Give free space back to the disk; writes wait for it.

        Raises:
            DatabaseFailed: if SQLite fails.
        """
        try:
            return await to_thread.run_sync(
                partial(_vacuum, self.path, self._writer), limiter=self._writes
            )
        except sqlite3.Error as error:
            raise _failure(self.path, error) from error

    def _run(
        self, connection: sqlite3.Connection, begin: str, run: Callable[[sqlite3.Connection], _T]
    ) -> _T:
        try:
            with Transaction(connection, begin):
                return run(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _failure(self.path, error) from error


@asynccontextmanager
async def open_database(
    path: Path,
    parts: Sequence[Tables],
    *,
    moved_from: Path | None = None,
    moved_away: Collection[str] = (),
) -> AsyncIterator[Database]:
    """Open or create the database and bring its tables up to date.

    Parts that are missing are copied from the file `moved_from`, if it has them. Parts named in
    `moved_away` may still be in the file, in any version; one of `parts` drops them.

    Raises:
        StartRefused: if a file is not ours, damaged, or written by a newer version; it is not
            changed.
    """
    database = await to_thread.run_sync(_open, path, parts, moved_from, moved_away)
    try:
        yield database
    finally:
        # No wait is unbounded: both connections are idle once their limiters are free.
        with anyio.CancelScope(shield=True):
            async with database._reads, database._writes:  # noqa: SLF001 - its other half
                await to_thread.run_sync(_close, database)


def _open(
    path: Path,
    parts: Sequence[Tables],
    moved_from: Path | None = None,
    moved_away: Collection[str] = (),
) -> Database:
    parts = (*parts, SUMS)
    is_new = not path.exists()
    open_private(path)
    with _explained(path):
        versions = _versions(path)
        if not is_new:  # one that was moved away is not missed
            _check_changes(path, is_filled=bool(versions))
        _refuse_newer(path, parts, {n: v for n, v in versions.items() if n not in moved_away})
    moved = {} if moved_from is None else _moved(moved_from, parts, versions)
    with _explained(path):
        writer = _connect(path, "rw")
        try:
            _set_up(path, writer)
            _mark(writer)
            if moved_from is not None and moved:
                _copy_parts(moved_from, moved, writer)
            _migrate(path, writer, parts)
            row_sums.keep_sums(writer)
            database = Database(path, writer, _connect(path, "ro"))
            slot = _slot(path, row_sums.count_changes(writer))
            database.mark.begin("", 0, [(_CHANGES_SLOT, slot)])
        except BaseException:
            writer.close()
            raise
        return database


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite to `StartRefused`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _unusable(path, error) from error


def _close(database: Database) -> None:
    database._reader.close()  # noqa: SLF001 - its other half
    database._writer.close()  # noqa: SLF001 - the last one to close checkpoints and removes the WAL
    database.mark.close(is_clean=True)


def _vacuum(path: Path, connection: sqlite3.Connection) -> CompactedFile:
    before = path.stat().st_size
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return CompactedFile(file=path.name, before=before, after=path.stat().st_size)


def vacuum_file(path: Path) -> CompactedFile:
    """Compact a database that no process uses.

    Raises:
        DatabaseFailed: if SQLite fails.
    """
    try:
        with closing(_connect(path, "rw")) as connection:
            return _vacuum(path, connection)
    except sqlite3.Error as error:
        raise _failure(path, error) from error


def _slot(path: Path, changes: int) -> Slot:
    return Slot(changes, name_checksum(path.name))


def _check_changes(path: Path, *, is_filled: bool) -> None:
    """Compare the number of changes with that in the mark.

    Raises:
        StartRefused: if the last changes are missing.
    """
    slot = LogMark(path).read().slots.get(_CHANGES_SLOT)
    changes = 0
    if is_filled:
        with closing(_connect(path, "ro")) as connection:
            changes = row_sums.count_changes(connection) if row_sums.has_sums(connection) else 0
    if slot is not None and slot.name == name_checksum(path.name) and slot.last_seq > changes:
        missing = slot.last_seq - changes
        what = f"the last {missing} changes" if missing > 1 else "the last change"
        reason = f"{path} lacks {what} that were stored in it: it is damaged, or an older copy"
        raise StartRefused(reason, f"to use it as it is: {REPAIR}; or restore a backup")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        _uri(path, mode), uri=True, isolation_level=None, check_same_thread=False
    )
    with closed_on_failure(connection):
        protect(connection)
        connection.execute("PRAGMA foreign_keys=ON")
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _set_up(path: Path, writer: sqlite3.Connection) -> None:
    mode = writer.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        reason = f"{path} is on a file system that allows only the journal mode {mode!r}"
        raise StartRefused(reason, "keep the data directory on a local disk")
    for setting in ("synchronous=FULL", "fullfsync=1", "secure_delete=ON"):
        writer.execute(f"PRAGMA {setting}")


def _versions(path: Path) -> dict[str, int]:
    """Return the parts of a file and their versions, without changing it."""
    if path.with_name(f"{path.name}{REPAIRED}").exists():
        raise StartRefused(f"a repair of {path} was interrupted", f"finish it: {REPAIR}")
    if path.stat().st_size == 0:
        return {}
    with closing(_connect(path, "ro")) as connection:
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if owner == 0 and not tables:
            return {}  # created, but nothing was written
        if owner != APPLICATION_ID or "parts" not in tables:
            raise StartRefused(
                f"{path} belongs to another program", "choose another data directory"
            )
        if (found := "; ".join(damage_of(connection))) != "":
            raise StartRefused(f"{path} is damaged ({found})", _SALVAGE)
        return dict(connection.execute("SELECT name, version FROM parts").fetchall())


def damage_of(connection: sqlite3.Connection) -> list[str]:
    """Return a clause for each damage of a database that has the table `parts`.

    Raises:
        sqlite3.Error: if it is so damaged that it cannot be read.
    """
    check = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if check != "ok":
        return [" ".join(str(check).split())]
    if row_sums.has_sums(connection):
        return row_sums.find_damage(connection)
    query = "SELECT count(*) FROM parts WHERE name = ?"
    if connection.execute(query, (row_sums.NAME,)).fetchone()[0]:
        return ["its checksums are missing"]
    return []  # of an older version


def _refuse_newer(path: Path, parts: Sequence[Tables], versions: Mapping[str, int]) -> None:
    known = {part.name: len(part.steps) for part in parts}
    for name, version in versions.items():
        if version > known.get(name, 0):
            reason = f"{path} was written by a newer Quarterdeck (format {name} {version})"
            raise StartRefused(reason, "upgrade Quarterdeck, or choose another data directory")


def _moved(source: Path, parts: Sequence[Tables], present: Collection[str]) -> dict[str, int]:
    """Return the parts, with their versions, that have to be copied from `source`."""
    if not source.exists():
        return {}
    with _explained(source):
        versions = _versions(source)
    wanted = {part.name for part in parts}
    _refuse_newer(source, parts, {n: v for n, v in versions.items() if n in wanted})
    return {n: v for n, v in versions.items() if n in wanted and n not in present}


def _mark(writer: sqlite3.Connection) -> None:
    """Mark the file as ours."""
    with Transaction(writer):
        writer.execute(f"PRAGMA application_id={APPLICATION_ID}")
        writer.execute(
            "CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )


def _copy_parts(source: Path, parts: Mapping[str, int], writer: sqlite3.Connection) -> None:
    """Copy tables, indexes, rows and versions as they are: all of it, or nothing."""
    writer.execute("ATTACH ? AS source", (_uri(source, "ro"),))
    try:
        with Transaction(writer):
            for name, version in parts.items():
                _copy_table(name, writer)
                writer.execute("INSERT INTO parts VALUES (?, ?)", (name, version))
            _seal(writer)
    finally:
        writer.execute("DETACH source")


def _copy_table(name: str, writer: sqlite3.Connection) -> None:
    made = writer.execute(
        "SELECT sql FROM source.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
        " ORDER BY type = 'table' DESC",
        (name,),
    ).fetchall()
    for (sql,) in made:
        writer.execute(sql)
    writer.execute(f"INSERT INTO main.{name} SELECT * FROM source.{name}")  # noqa: S608 - ours
    if any("AUTOINCREMENT" in sql for (sql,) in made):  # a number is never given twice
        writer.execute("DELETE FROM main.sqlite_sequence WHERE name = ?", (name,))
        writer.execute(
            "INSERT INTO main.sqlite_sequence SELECT * FROM source.sqlite_sequence WHERE name = ?",
            (name,),
        )


def _migrate(path: Path, writer: sqlite3.Connection, parts: Sequence[Tables]) -> None:
    versions = dict(writer.execute("SELECT name, version FROM parts").fetchall())
    for part in parts:
        for number in range(versions.get(part.name, 0) + 1, len(part.steps) + 1):
            _step(path, writer, part, number)


def _step(path: Path, writer: sqlite3.Connection, part: Tables, number: int) -> None:
    try:
        with Transaction(writer):
            part.steps[number - 1](writer)
            writer.execute("INSERT OR REPLACE INTO parts VALUES (?, ?)", (part.name, number))
            _seal(writer)
    except sqlite3.Error as error:
        reason = f"{path} cannot be brought to format {part.name} {number} ({error})"
        remedy = "it was not changed; free up disk space or report this, and try again"
        raise StartRefused(reason, remedy) from error


def _seal(writer: sqlite3.Connection) -> None:
    if row_sums.has_sums(writer):
        row_sums.seal(writer)


def _unusable(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StartRefused:
    if isinstance(error, UnicodeDecodeError):  # the message of SQLite has damaged text in it
        return StartRefused(f"{path} is damaged (its text is not UTF-8)", _SALVAGE)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
        return StartRefused(f"{path} is damaged ({error})", _SALVAGE)
    remedy = "check its disk, its permissions, and which other programs have it open"
    return StartRefused(f"{path} cannot be opened ({error})", remedy)


def _failure(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> DatabaseFailed:
    if isinstance(error, UnicodeDecodeError):
        return DatabaseFailed(path, "it is damaged", f"stop the hub and {_SALVAGE}")
    code = getattr(error, "sqlite_errorcode", 0)
    reason = f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})"
    if code == sqlite3.SQLITE_FULL:
        remedy = "free up space on its disk; storing then resumes by itself"
        return DatabaseFailed(path, reason, remedy)
    if code & 0xFF in DAMAGED:
        return DatabaseFailed(path, reason, f"stop the hub and {_SALVAGE}")
    return DatabaseFailed(path, reason, "check the disk, its quota and its permissions")

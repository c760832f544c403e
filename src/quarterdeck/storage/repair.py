"""Repairs a damaged data folder: saves what is intact, and reports exactly what is not.

Only with the folder locked, and after every file was copied as it is to `repair-<time>` in it.

**log.db** is written anew from what can be read. A session ends at its last event before the first
damage; runs of events after it, which are intact, are put into a file of their own. A session whose
record is damaged is kept with its events, closed. The new file replaces the old one, and its
readers start over (a new epoch).

**runner.db, hub.db** lose the rows that are not what was stored, and what was lost before is
accepted. A damaged device is one that has to be paired again.

Killed at any point, nothing is lost: the copy is complete before anything is changed, a new file is
complete before it gets its name (`<file>.repaired`), and a hub does not open a log while one is
waiting: running the repair again finishes it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from quarterdeck.errors import JsonInvalid, StorageRefused
from quarterdeck.machine.disk_sync import sync_file
from quarterdeck.machine.home_locks import BOTH, locked_home
from quarterdeck.storage import row_sums
from quarterdeck.storage.check import (
    FILES,
    LOG,
    FileReport,
    ScannedRun,
    check_folder,
    scan_session,
    unsealed_rows,
)
from quarterdeck.storage.contract import SessionMeta, decode_meta, encode_meta
from quarterdeck.storage.integrity import Damage, run_checksum
from quarterdeck.storage.lock import PRIVATE
from quarterdeck.storage.sqlite_rows import RECORDS, Record, read_record, sealed_record
from quarterdeck.storage.sqlite_schema import (
    REPAIRED,
    Transaction,
    connect_reader,
    connect_writer,
    migrate,
)

_BESIDE: Final = ("", "-wal", "-shm", ".mark")
_INSERT: Final = (
    "INSERT INTO events (session, last_seq, count, data, checksum) VALUES (?, ?, ?, ?, ?)"
)


class Repair(msgspec.Struct, kw_only=True, rename="camel"):
    """What a repair did."""

    backup: str
    """The folder with the files as they were; empty if nothing was damaged."""
    done: list[str] = msgspec.field(default_factory=list)
    """A sentence for each thing that was lost or changed."""


def repair_folder(home: Path) -> Repair:
    """Repair the files of a data folder that are damaged.

    Raises:
        StartRefused: if a hub uses the folder.
    """
    with locked_home(home, *BOTH):
        reports = check_folder(home)
        waiting = [name for name in FILES if _repaired(home / name).exists()]
        damaged = [each for each in reports if each.status == "damaged"]
        if not damaged and not waiting:
            return Repair(backup="")
        folder = _keep_all(home)
        repair = Repair(backup=str(folder))
        for name in waiting:
            _replace(home / name)
            repair.done.append(f"{name}: an interrupted repair was finished")
        for report in damaged:
            if report.file not in waiting:
                _repair(home / report.file, report, folder, repair)
        return repair


def _keep_all(home: Path) -> Path:
    """Copy all files as they are; return the folder."""
    folder = home / time.strftime("repair-%Y%m%d-%H%M%S")
    partial = home / "repair-partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    for name in FILES:
        for end in _BESIDE:
            source = home / f"{name}{end}"
            if source.exists():
                _copy(source, partial / source.name)
    number = 0
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.split('_')[0]}_{number}")
    partial.rename(folder)
    _sync_folder(home)
    return folder


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(PRIVATE)
    descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _repair(path: Path, report: FileReport, folder: Path, repair: Repair) -> None:
    new = path.with_name(f"{path.name}.new")
    for end in _BESIDE:
        path.with_name(f"{new.name}{end}").unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    try:
        rebuild = _rebuild_log if path.name == LOG else _rebuild_database
        done = rebuild(path, new, folder)
    except (sqlite3.Error, StorageRefused, UnicodeDecodeError) as error:
        new.unlink(missing_ok=True)
        for end in _BESIDE:
            path.with_name(f"{new.name}{end}").unlink(missing_ok=True)
            source = path.with_name(f"{path.name}{end}")
            if source.exists():
                source.unlink()  # it is in the folder
        repair.done.append(
            f"{path.name}: nothing in it can be read ({error}); a new one begins when the hub is"
            f" started, and the old one is in {folder}"
        )
        return
    new.rename(_repaired(path))
    _sync_folder(path.parent)
    _replace(path)
    repair.done += [f"{path.name}: {sentence}" for sentence in done]
    if not done:
        repair.done.append(f"{path.name}: {report.problems[0]}; nothing was lost")


def _repaired(path: Path) -> Path:
    return path.with_name(f"{path.name}{REPAIRED}")


def _replace(path: Path) -> None:
    """Put a repaired file in its place. The WAL goes first: it belongs to the old file."""
    for end in _BESIDE[1:]:
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    _repaired(path).replace(path)
    _sync_folder(path.parent)


# ---- log.db --------------------------------------------------------------------------------------


def _rebuild_log(path: Path, new: Path, folder: Path) -> list[str]:
    scratch = folder / "scratch.db"
    try:
        with closing(_reindexed(path, scratch)) as old, closing(connect_writer(new, "full")) as log:
            migrate(new, log)
            number = old.execute("SELECT coalesce(max(number), 1) FROM log").fetchone()[0]
            with Transaction(log):
                done = list(_copy_sessions(old, log, unsealed_rows(old), folder))
                # Without a mark, the log begins the next epoch when it is opened.
                log.execute("UPDATE log SET number = ?", (max(number, 1),))
            log.execute("PRAGMA journal_mode=DELETE")
    finally:
        for end in _BESIDE:
            scratch.with_name(f"{scratch.name}{end}").unlink(missing_ok=True)
    return done


def _reindexed(path: Path, scratch: Path) -> sqlite3.Connection:
    """Open a copy of a log, in the current format and with new indexes as far as possible."""
    for end in ("", "-wal"):
        source = path.with_name(f"{path.name}{end}")
        if source.exists():
            _copy(source, scratch.with_name(f"{scratch.name}{end}"))
    connection = connect_writer(scratch, "normal")
    try:
        migrate(scratch, connection)
        with suppress(sqlite3.DatabaseError):  # then they are used as they are
            connection.execute("REINDEX")
    except BaseException:
        connection.close()
        raise
    return connection


def _copy_sessions(
    old: sqlite3.Connection, writer: sqlite3.Connection, unsealed: range, folder: Path
) -> Iterator[str]:
    seen: set[str] = set()
    for row in old.execute(RECORDS).fetchall():
        record = read_record(row)
        name = record.session_id
        if name in seen:
            yield f"a second record of session {name} was left out"
            continue
        seen.add(name)
        yield from _copy_session(old, writer, record, unsealed, folder)
    lost = old.execute("SELECT session_id, first_seq, last_seq FROM losses").fetchall()
    for column, first_seq, last_seq in lost:
        whose = "a session" if column is None else f"session {column}"
        yield f"events {first_seq} to {last_seq} of {whose} are lost, as was found before"


def _copy_session(
    old: sqlite3.Connection,
    writer: sqlite3.Connection,
    record: Record,
    unsealed: range,
    folder: Path,
) -> Iterator[str]:
    head = record.head
    freed_seq = head.freed_seq if record.is_intact else 0
    reached, rest = freed_seq, 0
    bad: list[Damage] = []
    aside = folder / f"session-{head.id}-after-damage.jsonl"
    for found in scan_session(old, record, unsealed):
        if isinstance(found, Damage):
            bad.append(found)
        elif bad:
            rest += found.count
            with aside.open("ab") as file:
                file.write(found.data + b"\n")
        else:
            _copy_run(writer, head.id, head.name, found)
            reached = found.last_seq
    meta = _meta(record)
    values = sealed_record(record.session_id, head.id, meta, reached, freed_seq)
    writer.execute(
        "INSERT INTO sessions (id, session_id, meta, last_seq, freed_seq, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        values,
    )
    if not record.is_intact:
        yield f"the record of session {record.session_id} was written anew; the session is closed"
    for damage in bad:
        yield f"{damage.sentence}; the session now ends at event {reached}"
    if rest:
        yield f"{rest} intact events of session {record.session_id} after that are in {aside}"


def _copy_run(writer: sqlite3.Connection, id_: int, name: int, run: ScannedRun) -> None:
    checksum = run_checksum(name, run.last_seq, run.count, run.data)
    writer.execute(_INSERT, (id_, run.last_seq, run.count, run.data, checksum))


def _meta(record: Record) -> bytes | None:
    """Return the meta of a session; of a damaged record only if it can be one of this session."""
    if record.is_intact:
        return record.meta
    closed = SessionMeta(session_id=record.session_id, cwd="", lifecycle="closed")
    if record.meta is not None:
        try:
            found = decode_meta(record.meta)
        except (msgspec.ValidationError, JsonInvalid, UnicodeError):
            pass
        else:
            if found.session_id == record.session_id:
                closed = msgspec.structs.replace(found, lifecycle="closed")
    return encode_meta(closed)


# ---- runner.db and hub.db ------------------------------------------------------------------------


def _rebuild_database(path: Path, new: Path, _folder: Path) -> list[str]:
    """Copy all tables but the rows that are not what was stored."""
    done: list[str] = []
    with (
        closing(connect_reader(path)) as old,
        closing(sqlite3.connect(new, isolation_level=None)) as writer,
    ):
        owner = old.execute("PRAGMA application_id").fetchone()[0]
        bad = row_sums.bad_rows(old) if row_sums.has_sums(old) else {}
        schema = old.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
            " AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC"
        ).fetchall()
        with Transaction(writer):
            for _kind, _name, sql in schema:
                writer.execute(sql)
            for kind, name, _sql in schema:
                if kind == "table" and name != row_sums.NAME:
                    done += _copy_rows(old, writer, name, set(bad.get(name, ())))
            _copy_sequence(old, writer)
            if row_sums.has_sums(writer):
                row_sums.seal(writer)
            writer.execute(f"PRAGMA application_id={int(owner)}")
    return done


def _copy_rows(
    old: sqlite3.Connection, writer: sqlite3.Connection, table: str, bad: set[int]
) -> Iterator[str]:
    columns = [row[1] for row in old.execute(f'PRAGMA table_info("{table}")')]
    listed = ", ".join(f'"{each}"' for each in ("rowid", *columns))
    marks = ", ".join("?" * (len(columns) + 1))
    insert = f'INSERT INTO "{table}" ({listed}) VALUES ({marks})'  # noqa: S608 - names of our tables
    query = f'SELECT rowid, * FROM "{table}" NOT INDEXED'  # noqa: S608 - names of our tables
    try:
        for row in old.execute(query):
            if row[0] in bad:
                yield f"row {row[0]} of {table} is lost; it was {_shown(row[1:])}"
            else:
                writer.execute(insert, row)
    except sqlite3.DatabaseError as error:
        yield f"the rest of {table} cannot be read ({error})"


def _shown(values: tuple[Any, ...]) -> str:
    """Name a lost row by its first value, without secrets."""
    first = values[0] if values else ""
    return repr(first if isinstance(first, str | int) else "unreadable")[:60]


def _copy_sequence(old: sqlite3.Connection, writer: sqlite3.Connection) -> None:
    """Keep the numbers that were given: none is given twice."""
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_sequence'"
    if not old.execute(query).fetchone()[0]:
        return
    writer.execute("DELETE FROM sqlite_sequence")
    rows = old.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    writer.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", rows)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)

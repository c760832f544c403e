"""Reads everything that a data folder has stored, and names what is wrong with it.

Nothing is written, and no lock is taken: a check works while a hub runs. A file is read in one
transaction, so that what the hub commits meanwhile is not half seen; the mark is read before it, so
everything that the mark has must be in the log.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from quarterdeck.errors import JsonInvalid, QuarterdeckError, StorageRefused
from quarterdeck.jsontext import decode_json
from quarterdeck.storage import row_sums
from quarterdeck.storage.database import APPLICATION_ID, damage_of
from quarterdeck.storage.integrity import Damage, name_checksum
from quarterdeck.storage.mark import LogMark, MarkReading
from quarterdeck.storage.sqlite_rows import (
    PAGE,
    RECORDS,
    Record,
    is_intact_row,
    last_stored,
    missing,
    read_record,
)
from quarterdeck.storage.sqlite_schema import check_file, connect_reader, session_of

LOG, RUNNER, HUB = "log.db", "runner.db", "hub.db"
FILES: Final = (LOG, RUNNER, HUB)
"""The files of a data folder that are checked, backed up and repaired."""
_MOST_PROBLEMS: Final = 20


class FileReport(msgspec.Struct, kw_only=True, rename="camel"):
    """What a check found in one file."""

    file: str
    status: Literal["ok", "damaged", "absent"] = "ok"
    size: int = 0
    sessions: int = 0
    events: int = 0
    problems: list[str] = msgspec.field(default_factory=list)
    """A sentence for each."""

    def add(self, problem: str) -> None:
        self.status = "damaged"
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == _MOST_PROBLEMS:
            self.problems.append("and more")


def check_folder(home: Path) -> list[FileReport]:
    """Check the files of a data folder."""
    return [check_log(home / LOG), check_database(home / RUNNER), check_database(home / HUB)]


def check_quickly(path: Path, seconds: float) -> FileReport:
    """Check what can be checked without reading every event.

    Of a log: its structure as far as `seconds` allow, the records of all sessions, and whether
    events at their ends are missing. The other files are small, and checked as a whole.
    """
    return check_log(path, seconds) if path.name == LOG else check_database(path)


def check_log(path: Path, seconds: float | None = None) -> FileReport:
    """Check a SQLite log: structure, checksums, numbering, JSON, and the mark.

    With `seconds` events are not read, and the structure only for so long.
    """
    report = FileReport(file=path.name)
    if not path.exists():
        report.status = "absent"
        return report
    report.size = path.stat().st_size
    reading = LogMark(path).read()
    try:
        check_file(path)
        with closing(connect_reader(path)) as connection:
            connection.execute("BEGIN")
            if seconds is not None:
                _check_structure(connection, report, seconds)
            _check_log(connection, report, reading, is_quick=seconds is not None)
    except StorageRefused as error:
        report.add(error.reason)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        report.add(f"it cannot be read ({error})")
    return report


def _check_structure(connection: sqlite3.Connection, report: FileReport, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
    try:
        _add_problems(connection, report, f"PRAGMA quick_check({_MOST_PROBLEMS})")
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
    finally:
        connection.set_progress_handler(None, 0)


def _add_problems(connection: sqlite3.Connection, report: FileReport, pragma: str) -> None:
    for (found,) in connection.execute(pragma):
        if found != "ok":
            report.add(" ".join(str(found).split()))


def _check_log(
    connection: sqlite3.Connection, report: FileReport, reading: MarkReading, *, is_quick: bool
) -> None:
    if not is_quick:
        _add_problems(connection, report, f"PRAGMA integrity_check({_MOST_PROBLEMS})")
    if connection.execute("PRAGMA user_version").fetchone()[0] < 2:
        report.problems.append("an older format: it has no checksums until a hub has opened it")
        return
    unsealed = unsealed_rows(connection)
    records = [read_record(row) for row in connection.execute(RECORDS)]
    for record in records:
        report.sessions += 1
        if not record.is_intact:
            report.add(f"the record of session {record.session_id}: its checksum is wrong")
        if is_quick:
            _check_end(connection, record, report)
            continue
        for found in scan_session(connection, record, unsealed):
            if isinstance(found, Damage):
                report.add(found.sentence)
            else:
                report.events += found.count
    if not is_quick:
        _check_orphans(connection, report)
    for damage in [*missing_events(records, reading, epoch_in(connection)), *losses(connection)]:
        report.add(damage.sentence)


def _check_end(connection: sqlite3.Connection, record: Record, report: FileReport) -> None:
    """Check that the events of a session reach as far as its record says."""
    head = record.head
    reached = max(last_stored(connection, head.id), head.freed_seq)
    if record.is_intact and reached < head.last_seq:
        report.add(missing(record.session_id, reached + 1, head.last_seq).sentence)
    report.events += max(0, head.last_seq - head.freed_seq)


def _check_orphans(connection: sqlite3.Connection, report: FileReport) -> None:
    query = "SELECT count(*) FROM events WHERE session NOT IN (SELECT id FROM sessions)"
    if orphans := connection.execute(query).fetchone()[0]:
        report.add(f"{orphans} runs of events of a session without a record")


def epoch_in(connection: sqlite3.Connection) -> str:
    """Return the epoch that a log has stored."""
    row = connection.execute("SELECT epoch FROM log").fetchone()
    return row[0] if row and isinstance(row[0], str) else ""


def unsealed_rows(connection: sqlite3.Connection) -> range:
    """Return the ids of rows that may have no checksum yet."""
    row = connection.execute("SELECT unsealed_from, unsealed_to FROM log").fetchone()
    if row is None or not all(isinstance(each, int) for each in row):
        return range(0)
    return range(row[0], row[1] + 1)


def losses(connection: sqlite3.Connection) -> list[Damage]:
    """Return what was found missing earlier."""
    rows = connection.execute("SELECT session_id, first_seq, last_seq, found_at FROM losses")
    return [
        missing(None if column is None else session_of(column), first, last, f", found {at}")
        for column, first, last, at in rows
    ]


def missing_events(records: Sequence[Record], reading: MarkReading, epoch: str) -> list[Damage]:
    """Return what the mark has and the records do not."""
    if reading.epoch != epoch:
        return []  # of another log
    by_id = {record.head.id: record for record in records}
    found: list[Damage] = []
    for id_, slot in reading.slots.items():
        record = by_id.get(id_)
        if record is not None and record.head.name != slot.name:
            continue  # its record is damaged
        stored = 0 if record is None else record.head.last_seq
        if stored < slot.last_seq:
            session_id = None if record is None else record.session_id
            found.append(missing(session_id, stored + 1, slot.last_seq))
    return found


@dataclass(frozen=True)
class ScannedRun:
    """A row of events that is what was stored."""

    last_seq: int
    count: int
    data: bytes


def scan_session(
    connection: sqlite3.Connection, record: Record, unsealed: range
) -> Iterator[ScannedRun | Damage]:
    """Iterate over all runs of a session, and the damage between them, in order."""
    head = record.head
    reached = head.freed_seq if record.is_intact else 0

    def damage(last_seq: int, reason: str) -> Damage:
        return Damage(
            session_id=record.session_id, first_seq=reached + 1, last_seq=last_seq, reason=reason
        )

    try:
        for row in connection.execute(PAGE, (head.id, reached)):
            last_seq, count = row[1], row[2]
            if not isinstance(last_seq, int) or last_seq <= reached:
                continue
            if not is_intact_row(head.name, row, unsealed):
                yield damage(last_seq, "their checksum is wrong")
            else:
                if last_seq - count > reached:
                    yield damage(last_seq - count, "they are missing")
                yield from _numbered(record.session_id, ScannedRun(*row[1:4]))
            reached = last_seq
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        yield damage(max(head.last_seq, reached + 1), str(error))
        return
    if record.is_intact and reached < head.last_seq:
        yield damage(head.last_seq, "they are missing")


class _Line(msgspec.Struct, rename="camel"):
    session_id: str
    seq: int


_decode: Final = msgspec.json.Decoder(_Line).decode


def _numbered(session_id: str, run: ScannedRun) -> Iterator[ScannedRun | Damage]:
    """Yield a run if its events are JSON and have their numbers, else what is wrong."""
    lines = run.data.split(b"\n") if run.count > 1 else [run.data]
    for seq, line in enumerate(lines, run.last_seq - run.count + 1):
        if not _is_event(line, session_id, seq):
            reason = "it is not the JSON of this event"
            yield Damage(session_id=session_id, first_seq=seq, last_seq=seq, reason=reason)
            return
    yield run


def _is_event(line: bytes, session_id: str, seq: int) -> bool:
    try:
        line.decode()
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _is_odd_event(line, session_id, seq)
    return (found.session_id, found.seq) == (session_id, seq)


def _is_odd_event(line: bytes, session_id: str, seq: int) -> bool:
    """Read slowly: half a surrogate pair is JSON, but no text for a fast decoder."""
    try:
        value: Any = decode_json(line)
    except JsonInvalid:
        return False
    is_object = isinstance(value, dict)
    return is_object and (value.get("sessionId"), value.get("seq")) == (session_id, seq)


def check_database(path: Path) -> FileReport:
    """Check runner.db or hub.db: structure, checksums of rows, and the number of changes."""
    report = FileReport(file=path.name)
    if not path.exists():
        report.status = "absent"
        return report
    report.size = path.stat().st_size
    slot = LogMark(path).read().slots.get(0)
    try:
        with closing(connect_reader(path)) as connection:
            connection.execute("BEGIN")
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                report.add("it belongs to another program")
                return report
            for problem in damage_of(connection):
                report.add(problem)
            changes = row_sums.count_changes(connection) if row_sums.has_sums(connection) else 0
        if slot is not None and slot.name == name_checksum(path.name) and slot.last_seq > changes:
            report.add(f"its last {slot.last_seq - changes} changes are missing")
    except (sqlite3.Error, UnicodeDecodeError, QuarterdeckError) as error:
        report.add(f"it cannot be read ({error})")
    return report

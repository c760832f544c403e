"""Copy the files of a hub, hub.db and the logs of other machines, to PostgreSQL.

Nothing gets another number: events keep theirs, and so do commands that wait and the history. Logs
are copied first, and copying them again is harmless; then everything of hub.db in one transaction,
which only an empty database takes. So an import that was interrupted is simply started again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from anyio import to_thread

from quarterdeck.errors import CommandFailed
from quarterdeck.hub.log import Acknowledged, LogCursor, LogRun, SqliteHubLog
from quarterdeck.hub.postgres.connection import Postgres, Statements, as_bytes
from quarterdeck.hub.postgres.log import PostgresHubLog
from quarterdeck.hub.store import DATABASE, MACHINES, open_sqlite_store

PAGE: Final = 1_024
_OWNER: Final = "import"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What was copied."""

    devices: int
    machines: int
    sessions: int
    events: int


@dataclass(frozen=True)
class _Table:
    """A table of hub.db and its columns, which have the same names in PostgreSQL."""

    name: str
    columns: tuple[str, ...]
    changed: Callable[[Sequence[Any]], Sequence[Any]] = tuple
    more: tuple[str, ...] = ()
    """Columns that `changed` adds at the end."""


def _with_bytes_key(row: Sequence[Any]) -> Sequence[Any]:
    return (*row[:4], as_bytes(row[4]), *row[5:])


_TABLES: Final = (
    _Table(
        "devices",
        (
            *("id", "name", "scope", "token_hash", "next_token_hash", "created_at"),
            *("last_seen_at", "expires_at", "revoked_at", "last_address", "user_agent"),
            "machine_scopes",
        ),
    ),
    _Table(
        "device_log",
        ("id", "device_id", "what", "name", "address", "user_agent", "at", "detail"),
    ),
    _Table("device_keys", ("device_id", "public_key")),
    _Table(
        "pairings",
        (
            *("id", "short_hash", "long_hash", "name", "scope", "device_seconds"),
            *("created_at", "expires", "used_at", "device_id"),
        ),
    ),
    _Table(
        "push_subscriptions",
        ("device_id", "endpoint", "p256dh", "auth", "kinds", "problem", "created_at"),
    ),
    _Table(
        "machines",
        ("id", "name", "public_key", "joined_at", "last_seen_at", "version", "removed_at"),
        lambda row: (*row, row[1].casefold()),
        ("folded_name",),
    ),
    _Table("machine_states", ("machine_id", "state")),
    _Table("machine_sessions", ("machine_id", "session_id", "entry")),
    _Table(
        "waiting_commands",
        (
            *("id", "machine_id", "method", "session_id", "key", "params", "by"),
            *("created_at", "expires_at", "state", "problem"),
        ),
        _with_bytes_key,
    ),
)
_NUMBERED: Final = ("device_log", "waiting_commands")
"""Tables whose ids are given by the database, and never twice."""


async def import_files(postgres: Postgres, home: Path) -> Imported:
    """Copy the files of a hub that does not run.

    Raises:
        CommandFailed: if the database has devices already.
        StartRefused: if hub.db cannot be used.
        StorageRefused, StorageFailed: if the copy of a log cannot be.
        DatabaseFailed: if PostgreSQL fails.
    """
    await _refuse_filled(postgres, postgres)
    async with open_sqlite_store(home):
        pass  # its tables are those of this version now, and intact
    sessions, events = await _import_logs(PostgresHubLog(postgres), home / MACHINES, postgres)
    tables = await to_thread.run_sync(_read_tables, home / DATABASE)
    async with postgres.transaction() as statements:
        await _refuse_filled(postgres, statements)
        for table in _TABLES:
            await _insert(statements, table, tables[table.name])
        for name in _NUMBERED:
            last = next((seq for each, seq in tables["sqlite_sequence"] if each == name), 0)
            query = "SELECT setval(pg_get_serial_sequence($1, 'id'), $2::bigint + 1, false)"
            await statements.run(query, name, last)
    return Imported(
        devices=sum(row[8] is None for row in tables["devices"]),
        machines=sum(row[6] is None for row in tables["machines"]),
        sessions=sessions,
        events=events,
    )


async def _refuse_filled(postgres: Postgres, statements: Statements) -> None:
    row = await statements.row(
        "SELECT EXISTS (SELECT FROM devices) OR EXISTS (SELECT FROM machines)"
    )
    if row is not None and row[0]:
        raise CommandFailed(
            f"the database {postgres.name} has the devices of a hub already; import into an empty"
            " one"
        )


def _read_tables(path: Path) -> dict[str, list[Sequence[Any]]]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        found = {
            table.name: connection.execute(
                f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY rowid"
            ).fetchall()
            for table in _TABLES
        }
        numbers = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
        return {**found, "sqlite_sequence": numbers}


async def _insert(statements: Statements, table: _Table, rows: Sequence[Sequence[Any]]) -> None:
    columns = (*table.columns, *table.more)
    marks = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    names = ", ".join(columns)
    query = f"INSERT INTO {table.name} ({names}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
    for row in rows:
        await statements.run(query, *table.changed(row))


# ---- logs --------------------------------------------------------------------------------------


async def _import_logs(log: PostgresHubLog, folder: Path, postgres: Postgres) -> tuple[int, int]:
    """Copy the logs of all machines; return the numbers of sessions and events."""
    sessions = events = 0
    files = SqliteHubLog(folder)
    for space in await to_thread.run_sync(_spaces, folder):
        epoch = await files.open_space(space)
        try:
            await postgres.run(
                "INSERT INTO log_spaces VALUES ($1, $2, $3) ON CONFLICT (space)"
                " DO UPDATE SET epoch = excluded.epoch, is_first = excluded.is_first",
                space,
                epoch.id,
                epoch.is_first,
            )
            for session_id, last_seq in (await files.heads(space)).items():
                sessions += 1
                events += await _import_log(files, log, postgres, (space, session_id, last_seq))
        finally:
            await files.close_space(space)
    return sessions, events


def _spaces(folder: Path) -> list[str]:
    return sorted(each.parent.name for each in folder.glob("*/log.db"))


class _Numbered(msgspec.Struct):
    seq: int


async def _import_log(
    files: SqliteHubLog, log: PostgresHubLog, postgres: Postgres, key: tuple[str, str, int]
) -> int:
    space, session_id, last_seq = key
    (first,) = await files.read([LogCursor(space, session_id, 0)], 1)
    # What a machine deleted has no events, but its numbers are used.
    begin = msgspec.json.decode(first[0], type=_Numbered).seq - 1 if first else last_seq
    await postgres.run(
        "INSERT INTO log_sessions (space, session_id, owner, epoch, last_seq, freed_seq)"
        " VALUES ($1, $2, $3, 0, $4, $4) ON CONFLICT DO NOTHING",
        space,
        as_bytes(session_id),
        _OWNER,
        begin,
    )
    claim = await log.claim(space, session_id, _OWNER, take=True)
    assert claim is not None, "it was taken over"
    after = begin
    while after < last_seq:
        (page,) = await files.read([LogCursor(space, session_id, after)], PAGE)
        run = LogRun(space, session_id, claim.epoch, after + len(page), page)
        (outcome,) = await log.append([run])
        if not page or not isinstance(outcome, Acknowledged) or outcome.last_seq < run.last_seq:
            raise CommandFailed(
                f"the copy of {session_id!r} of {space} is not complete after number {after};"
                " repair it first: quarterdeck repair"
            )
        after = run.last_seq
    return last_seq - begin

"""What the hub keeps of other machines in hub.db: their last state, and commands that wait.

The state of a machine is a copy of what its runner reported: one row for each session, one for the
rest. It is shown while the machine is away, also after the hub has restarted.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.runner import Actor
from quarterdeck.runner.link import NOTHING_KNOWN, SessionEntry, StateChange
from quarterdeck.storage.database import Database, Tables

WaitingState: TypeAlias = Literal["waiting", "failed", "expired"]
KEPT_SECONDS: Final = 86_400.0
"""That a command which was not carried out is remembered, for its sender."""


class WaitingCommand(Struct, frozen=True, kw_only=True):
    """A command for a machine that is away."""

    id: int
    machine_id: str
    method: str
    session_id: str
    """As the machine spells it."""
    key: str
    params: dict[str, Any]
    """All but `by`, as the machine spells them."""
    by: Actor
    created_at: float
    expires_at: float
    state: WaitingState = "waiting"
    problem: str = ""


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE machine_states (machine_id TEXT PRIMARY KEY, state BLOB NOT NULL)"
    )
    connection.execute(
        "CREATE TABLE machine_sessions (machine_id TEXT NOT NULL, session_id BLOB NOT NULL,"
        " entry BLOB NOT NULL, PRIMARY KEY (machine_id, session_id))"
    )
    connection.execute(
        "CREATE TABLE waiting_commands (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " machine_id TEXT NOT NULL, method TEXT NOT NULL, session_id BLOB NOT NULL,"
        " key TEXT NOT NULL, params BLOB NOT NULL, by BLOB NOT NULL, created_at REAL NOT NULL,"
        " expires_at REAL NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL,"
        " UNIQUE (machine_id, session_id, method, key))"
    )


FLEET_TABLES: Final = Tables("fleet", (_create,))
_COLUMNS: Final = (
    "id, machine_id, method, session_id, key, params, by, created_at, expires_at, state, problem"
)


class FleetStore(Protocol):
    """The tables of the fleet. Every method raises `DatabaseFailed` if the database fails."""

    # ---- states ----------------------------------------------------------------------------

    async def state(self, machine_id: str) -> StateChange:
        """Return what was known of a machine last."""

    async def save_state(
        self,
        machine_id: str,
        rest: StateChange,
        changed: Mapping[str, SessionEntry],
        removed: Sequence[str],
    ) -> None:
        """Store the state of a machine: the sessions that changed, and the rest."""

    async def forget(self, machine_id: str) -> None:
        """Delete everything of a machine."""

    # ---- commands that wait ----------------------------------------------------------------

    async def add(self, command: WaitingCommand) -> WaitingCommand:
        """Store a command; the same key again returns the one that is there."""

    async def commands(self, machine_id: str) -> list[WaitingCommand]:
        """Return the commands of a machine, in the order in which they were given."""

    async def settle(self, command_id: int, state: WaitingState, problem: str) -> None:
        """Note that a command will not be carried out."""

    async def edit(self, command_id: int, params: Mapping[str, Any]) -> None: ...

    async def remove(self, command_id: int) -> None: ...


class SqliteFleetStore:
    """`FleetStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- states ----------------------------------------------------------------------------

    async def state(self, machine_id: str) -> StateChange:
        def look(connection: sqlite3.Connection) -> tuple[Any, list[Any]]:
            row = connection.execute(
                "SELECT state FROM machine_states WHERE machine_id = ?", (machine_id,)
            ).fetchone()
            entries = connection.execute(
                "SELECT entry FROM machine_sessions WHERE machine_id = ? ORDER BY rowid",
                (machine_id,),
            ).fetchall()
            return row, entries

        row, entries = await self._database.read(look)
        return joined_state(None if row is None else row[0], [entry for (entry,) in entries])

    async def save_state(
        self,
        machine_id: str,
        rest: StateChange,
        changed: Mapping[str, SessionEntry],
        removed: Sequence[str],
    ) -> None:
        rows = [(machine_id, encode_json(key), write_value(each)) for key, each in changed.items()]
        gone = [(machine_id, encode_json(key)) for key in removed]

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO machine_states VALUES (?, ?)"
                " ON CONFLICT (machine_id) DO UPDATE SET state = excluded.state",
                (machine_id, write_value(rest)),
            )
            connection.executemany(
                "INSERT INTO machine_sessions VALUES (?, ?, ?)"
                " ON CONFLICT (machine_id, session_id) DO UPDATE SET entry = excluded.entry",
                rows,
            )
            connection.executemany(
                "DELETE FROM machine_sessions WHERE machine_id = ? AND session_id = ?", gone
            )

        await self._database.write(change)

    async def forget(self, machine_id: str) -> None:
        def change(connection: sqlite3.Connection) -> None:
            for table in ("machine_states", "machine_sessions", "waiting_commands"):
                connection.execute(
                    f"DELETE FROM {table} WHERE machine_id = ?",  # noqa: S608
                    (machine_id,),
                )

        await self._database.write(change)

    # ---- commands that wait ----------------------------------------------------------------

    async def add(self, command: WaitingCommand) -> WaitingCommand:
        def change(connection: sqlite3.Connection) -> WaitingCommand:
            connection.execute(
                "INSERT INTO waiting_commands (machine_id, method, session_id, key, params, by,"
                " created_at, expires_at, state, problem) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (
                    command.machine_id,
                    command.method,
                    encode_json(command.session_id),
                    command.key,
                    encode_json(command.params),
                    write_value(command.by),
                    command.created_at,
                    command.expires_at,
                    command.state,
                    command.problem,
                ),
            )
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM waiting_commands WHERE machine_id = ?"  # noqa: S608
                " AND session_id = ? AND method = ? AND key = ?",
                (
                    command.machine_id,
                    encode_json(command.session_id),
                    command.method,
                    command.key,
                ),
            ).fetchone()
            return read_command(row)

        return await self._database.write(change)

    async def commands(self, machine_id: str) -> list[WaitingCommand]:
        query = f"SELECT {_COLUMNS} FROM waiting_commands WHERE machine_id = ? ORDER BY id"  # noqa: S608
        rows = await self._database.read(
            lambda connection: connection.execute(query, (machine_id,)).fetchall()
        )
        return [read_command(row) for row in rows]

    async def settle(self, command_id: int, state: WaitingState, problem: str) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE waiting_commands SET state = ?, problem = ?, expires_at = ? WHERE id = ?",
                (state, problem, time.time() + KEPT_SECONDS, command_id),
            )
        )

    async def edit(self, command_id: int, params: Mapping[str, Any]) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE waiting_commands SET params = ? WHERE id = ?",
                (encode_json(params), command_id),
            )
        )

    async def remove(self, command_id: int) -> None:
        await self._database.write(
            lambda connection: connection.execute(
                "DELETE FROM waiting_commands WHERE id = ?", (command_id,)
            )
        )


def joined_state(rest: bytes | None, entries: Sequence[bytes]) -> StateChange:
    """Return the state of a machine from its rows; what cannot be read is left out."""
    known = NOTHING_KNOWN if rest is None else _read(rest, StateChange)
    sessions = (_read(entry, SessionEntry) for entry in entries)
    return msgspec.structs.replace(
        known or NOTHING_KNOWN, sessions=tuple(each for each in sessions if each is not None)
    )


def write_value(value: Any) -> bytes:
    """Return a value as it is stored."""
    return encode_json(msgspec.to_builtins(value))


def _read(data: bytes, kind: type[Any]) -> Any:
    """Return what was stored; None if another version stored what this one cannot read."""
    try:
        return msgspec.convert(decode_json(data), kind)
    except (JsonInvalid, msgspec.ValidationError):
        return None


def read_command(row: Sequence[Any]) -> WaitingCommand:
    """Return the command of a row, whose columns are in the order of its fields."""
    id_, machine_id, method, session_id, key, params, by, created, expires, state, problem = row
    return WaitingCommand(
        id=id_,
        machine_id=machine_id,
        method=method,
        session_id=decode_json(session_id),
        key=key,
        params=decode_json(params),
        by=msgspec.convert(decode_json(by), Actor),
        created_at=created,
        expires_at=expires,
        state=state,
        problem=problem,
    )

"""What runner.db keeps of adopted programs: which are followed, and how far sessions were read.

The log is what counts: each event of a foreign session carries the cursor after it. A row here only
says from which event on the log has to be searched for the last cursor, so it may be old.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.runner.schema import column_of, id_of_column
from quarterdeck.storage.database import Database

_FOLLOW: Final = (
    "INSERT INTO adopted_programs VALUES (?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET mode = excluded.mode"
)
_SAVE: Final = (
    "INSERT INTO foreign_positions VALUES (?, ?, ?, ?, ?) ON CONFLICT (session_id)"
    " DO UPDATE SET name = excluded.name, cursor = excluded.cursor, at = excluded.at,"
    " seq = excluded.seq"
)

AdoptionMode = Literal["live", "past"]
"""live: sessions that run, or change from now on; past: all of them."""


class AdoptedProgram(Struct, frozen=True):
    """A program whose sessions are followed."""

    name: str
    mode: AdoptionMode
    since: int
    """When that began, in milliseconds since 1970."""


class Position(Struct, frozen=True):
    """How far a foreign session was read, as of the event `seq` of its log."""

    session_id: str
    cursor: Mapping[str, Any]
    at: int = 0
    """When the last update happened."""
    seq: int = 0


class AdoptionStore:
    """Every method raises `DatabaseFailed` if SQLite fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def programs(self) -> list[AdoptedProgram]:
        query = "SELECT name, mode, since FROM adopted_programs ORDER BY since, name"
        rows = await self._database.read(lambda connection: connection.execute(query).fetchall())
        return [AdoptedProgram(*row) for row in rows]

    async def follow(self, program: AdoptedProgram) -> None:
        """Store that a program is followed; the time of one that already is stays."""
        row = (program.name, program.mode, program.since)
        await self._database.write(lambda connection: connection.execute(_FOLLOW, row))

    async def forget(self, name: str) -> None:
        """Store that a program is not followed any more; positions stay."""
        query = "DELETE FROM adopted_programs WHERE name = ?"
        await self._database.write(lambda connection: connection.execute(query, (name,)))

    async def positions(self, name: str) -> dict[str, Position]:
        query = "SELECT session_id, cursor, at, seq FROM foreign_positions WHERE name = ?"

        def look(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(query, (name,)).fetchall()

        rows = await self._database.read(look)
        found = [
            Position(id_of_column(session_id), decode_json(cursor), at, seq)
            for session_id, cursor, at, seq in rows
        ]
        return {each.session_id: each for each in found}

    async def save(self, name: str, positions: Sequence[Position]) -> None:
        rows = [
            (column_of(each.session_id), name, encode_json(each.cursor).decode(), each.at, each.seq)
            for each in positions
        ]
        await self._database.write(lambda connection: connection.executemany(_SAVE, rows))


def forget_position(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove the position of a deleted session, inside a transaction."""
    query = "DELETE FROM foreign_positions WHERE session_id = ?"
    connection.execute(query, (column_of(session_id),))

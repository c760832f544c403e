"""How far each log was exported: rows of runner.db."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from quarterdeck.runner.schema import column_of, id_of_column
from quarterdeck.storage.database import Database

_BEGUN: Final = ""
"""The row that says that the export has begun: no session has this id."""


class TelemetryProgress:
    """By session, the number of the event up to which its turns were exported."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, heads: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers; at the first time, sessions begin where they are now.

        Raises:
            DatabaseFailed: if SQLite does.
        """

        def begin(connection: sqlite3.Connection) -> dict[str, int]:
            rows = connection.execute("SELECT session_id, seq FROM telemetry_progress").fetchall()
            if not rows:
                _put(connection, {**heads, _BEGUN: 0})
                return dict(heads)
            return {id_of_column(column): seq for column, seq in rows}

        return await self._database.write(begin)

    async def record(self, numbers: Mapping[str, int]) -> None:
        """Store how far logs were exported.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        await self._database.write(lambda connection: _put(connection, numbers))


def _put(connection: sqlite3.Connection, numbers: Mapping[str, int]) -> None:
    connection.executemany(
        "INSERT INTO telemetry_progress VALUES (?, ?)"
        " ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq",
        [(column_of(session_id), seq) for session_id, seq in numbers.items()],
    )


def forget_progress(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove the row of a deleted session, inside a transaction."""
    column = column_of(session_id)
    connection.execute("DELETE FROM telemetry_progress WHERE session_id = ?", (column,))

"""`SessionLabels`: what people set on a session: a title, and whether it is archived.

Many agents have neither titles nor archives, and a session that is closed has no agent at all. So
the runner keeps both in runner.db, for every session. A title that a person gave counts more than
one that the agent sends later.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.runner.schema import column_of, id_of_column
from quarterdeck.storage.database import Database

_STORE: Final = (
    "INSERT INTO session_labels VALUES (?, ?, ?) ON CONFLICT (session_id)"
    " DO UPDATE SET title = excluded.title, is_archived = excluded.is_archived"
)


class SessionLabel(Struct, frozen=True):
    """What people set on one session."""

    title: str | None = None
    """None if the agent's, or the first prompt, is the title."""
    is_archived: bool = False


_NONE: Final = SessionLabel()


class SessionLabels:
    """The labels of all sessions, in memory and in runner.db."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._labels: dict[str, SessionLabel] = {}

    async def load(self) -> None:
        """Read what is stored.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        query = "SELECT session_id, title, is_archived FROM session_labels"
        rows = await self._database.read(lambda connection: connection.execute(query).fetchall())
        self._labels = {
            id_of_column(session_id): SessionLabel(title, bool(is_archived))
            for session_id, title, is_archived in rows
        }

    def get(self, session_id: str) -> SessionLabel:
        return self._labels.get(session_id, _NONE)

    async def set_title(self, session_id: str, title: str | None) -> None:
        """Store a title; None leaves it to the agent.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        await self._store(session_id, replace(self.get(session_id), title=title))

    async def set_archived(self, session_id: str, *, is_archived: bool) -> None:
        """Store whether a session is archived.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        await self._store(session_id, replace(self.get(session_id), is_archived=is_archived))

    def forget(self, session_id: str) -> None:
        """Drop the label of a session that is deleted; the store removes its row."""
        self._labels.pop(session_id, None)

    async def _store(self, session_id: str, label: SessionLabel) -> None:
        row = (column_of(session_id), label.title, int(label.is_archived))
        await self._database.write(lambda connection: connection.execute(_STORE, row))
        self._labels[session_id] = label


def forget_label(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove the stored label of a session, inside a transaction."""
    connection.execute("DELETE FROM session_labels WHERE session_id = ?", (column_of(session_id),))

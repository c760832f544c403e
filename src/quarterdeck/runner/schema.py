"""The tables of runner.db; append steps, never change one that was released.

A part has one table, of the same name: that is how it is copied from an older hub.db.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from quarterdeck.storage.database import Tables


def now() -> str:
    """Return the time as the hub's tables have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"


def column_of(session_id: str) -> str | bytes:
    """Return an id as a column; agents choose ids, and half a surrogate pair is no text."""
    try:
        session_id.encode()
    except UnicodeEncodeError:
        return session_id.encode("utf-8", "surrogatepass")
    return session_id


def id_of_column(column: str | bytes) -> str:
    return column if isinstance(column, str) else column.decode("utf-8", "surrogatepass")


def _agents(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE agents (name TEXT PRIMARY KEY, definition TEXT NOT NULL,"
        " stored_at TEXT NOT NULL)"
    )


def _prompts(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,"
        " key TEXT NOT NULL, digest BLOB NOT NULL, blocks TEXT NOT NULL,"
        " is_urgent INTEGER NOT NULL,"
        " state TEXT NOT NULL, after_seq INTEGER, seq INTEGER, stop_reason TEXT, error TEXT,"
        " by TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,"
        " UNIQUE (session_id, key))"
    )
    connection.execute(
        "CREATE INDEX prompts_open ON prompts (session_id, state)"
        " WHERE state IN ('queued', 'running')"
    )


def _decisions(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE decisions (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " request_id TEXT NOT NULL UNIQUE, session_id TEXT, agent TEXT, digest TEXT NOT NULL,"
        " asked TEXT NOT NULL, state TEXT NOT NULL, outcome TEXT, kind TEXT, by TEXT, key TEXT,"
        " is_delivered INTEGER NOT NULL DEFAULT 0, asked_at TEXT NOT NULL, decided_at TEXT)"
    )
    connection.execute("CREATE INDEX decisions_open ON decisions (state) WHERE state = 'pending'")
    connection.execute("CREATE INDEX decisions_of_session ON decisions (session_id, id)")


def _decision_index(connection: sqlite3.Connection) -> None:
    """Make the table an index over the log: what was delivered is what the log has."""
    connection.execute("ALTER TABLE decisions DROP COLUMN is_delivered")


def _decision_request(connection: sqlite3.Connection) -> None:
    """Name the columns as the events and the API do."""
    connection.execute("ALTER TABLE decisions RENAME COLUMN asked TO request")
    connection.execute("ALTER TABLE decisions RENAME COLUMN asked_at TO requested_at")


def _decision_mismatch(connection: sqlite3.Connection) -> None:
    """Add what an agent did after an approval that differs from what was shown."""
    connection.execute("ALTER TABLE decisions ADD COLUMN mismatch TEXT")


def _decision_call(connection: sqlite3.Connection) -> None:
    """Add what was shown of a request: the command or the paths, and the risk."""
    connection.execute("ALTER TABLE decisions ADD COLUMN call TEXT")


def _decision_progress(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE decision_progress (session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL)"
    )


def _context_policies(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE context_policies (session_id TEXT PRIMARY KEY, policy TEXT NOT NULL,"
        " set_by TEXT NOT NULL, set_at TEXT NOT NULL)"
    )


def _session_labels(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE session_labels (session_id TEXT PRIMARY KEY, title TEXT,"
        " is_archived INTEGER NOT NULL)"
    )


def _adopted_programs(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE adopted_programs (name TEXT PRIMARY KEY, mode TEXT NOT NULL,"
        " since INTEGER NOT NULL)"
    )


def _foreign_positions(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE foreign_positions (session_id TEXT PRIMARY KEY, name TEXT NOT NULL,"
        " cursor TEXT NOT NULL, at INTEGER NOT NULL, seq INTEGER NOT NULL)"
    )


def _telemetry_progress(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE telemetry_progress (session_id TEXT PRIMARY KEY, seq INTEGER NOT NULL)"
    )


RUNNER_TABLES: Final = (
    Tables("agents", (_agents,)),
    Tables("prompts", (_prompts,)),
    Tables(
        "decisions",
        (_decisions, _decision_index, _decision_request, _decision_mismatch, _decision_call),
    ),
    Tables("decision_progress", (_decision_progress,)),
    Tables("context_policies", (_context_policies,)),
    Tables("session_labels", (_session_labels,)),
    Tables("adopted_programs", (_adopted_programs,)),
    Tables("foreign_positions", (_foreign_positions,)),
    Tables("telemetry_progress", (_telemetry_progress,)),
)

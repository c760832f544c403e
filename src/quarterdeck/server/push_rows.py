"""Subscriptions as hub.db has them: one of each device."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from quarterdeck.server.database import Tables
from quarterdeck.server.handling import Answer
from quarterdeck.server.tables import now


class PushKinds(Answer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device wants to hear of."""

    approvals: bool = True
    questions: bool = True
    finished: bool = True
    failed: bool = True


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages of a device go."""

    device_id: str
    endpoint: str
    p256dh: str
    auth: str
    kinds: PushKinds
    problem: str | None = None


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE push_subscriptions (device_id TEXT PRIMARY KEY, endpoint TEXT NOT NULL,"
        " p256dh TEXT NOT NULL, auth TEXT NOT NULL, kinds TEXT NOT NULL, problem TEXT,"
        " created_at TEXT NOT NULL)"
    )


PUSH_TABLES: Final = (Tables("push", (_create,)),)
_COLUMNS: Final = "device_id, endpoint, p256dh, auth, kinds, problem"


def put(connection: sqlite3.Connection, wanted: Subscription) -> None:
    # A browser has one subscription: whoever comes with it now is who it belongs to.
    connection.execute("DELETE FROM push_subscriptions WHERE endpoint = ?", (wanted.endpoint,))
    kinds = msgspec.json.encode(wanted.kinds).decode()
    connection.execute(
        "INSERT OR REPLACE INTO push_subscriptions"
        " (device_id, endpoint, p256dh, auth, kinds, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (wanted.device_id, wanted.endpoint, wanted.p256dh, wanted.auth, kinds, now()),
    )


def get(connection: sqlite3.Connection, device_id: str) -> Subscription | None:
    query = f"SELECT {_COLUMNS} FROM push_subscriptions WHERE device_id = ?"  # noqa: S608
    row = connection.execute(query, (device_id,)).fetchone()
    return None if row is None else _read(row)


def every(connection: sqlite3.Connection) -> list[Subscription]:
    query = f"SELECT {_COLUMNS} FROM push_subscriptions ORDER BY device_id"  # noqa: S608
    return [_read(row) for row in connection.execute(query)]


def set_kinds(connection: sqlite3.Connection, device_id: str, kinds: PushKinds) -> bool:
    changed = connection.execute(
        "UPDATE push_subscriptions SET kinds = ? WHERE device_id = ?",
        (msgspec.json.encode(kinds).decode(), device_id),
    )
    return changed.rowcount > 0


def set_problem(connection: sqlite3.Connection, device_id: str, problem: str | None) -> None:
    connection.execute(
        "UPDATE push_subscriptions SET problem = ? WHERE device_id = ?", (problem, device_id)
    )


def remove(connection: sqlite3.Connection, device_id: str, endpoint: str | None = None) -> None:
    """Forget a device's subscription; with an endpoint, only if it is still that one."""
    connection.execute(
        "DELETE FROM push_subscriptions WHERE device_id = ? AND endpoint = COALESCE(?, endpoint)",
        (device_id, endpoint),
    )


def _read(row: tuple[str, str, str, str, str, str | None]) -> Subscription:
    device_id, endpoint, p256dh, auth, kinds, problem = row
    return Subscription(
        device_id=device_id,
        endpoint=endpoint,
        p256dh=p256dh,
        auth=auth,
        kinds=msgspec.json.decode(kinds, type=PushKinds),
        problem=problem,
    )

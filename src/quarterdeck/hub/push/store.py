"""The push subscriptions in hub.db, one for each device: `PushStore`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never

import msgspec

from quarterdeck.hub.api.endpoint import ApiResponse
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage.database import Database, Tables

PushKind: TypeAlias = Literal[
    "permissions", "elicitations", "finished", "failed", "device", "mismatch", "test"
]


class PushKinds(ApiResponse, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kinds of messages that a device wants."""

    permissions: bool = True
    elicitations: bool = True
    finished: bool = True
    failed: bool = True

    def wants(self, kind: PushKind) -> bool:
        """Return whether messages of a kind are sent; what is about safety cannot be turned off."""
        match kind:
            case "permissions":
                return self.permissions
            case "elicitations":
                return self.elicitations
            case "finished":
                return self.finished
            case "failed":
                return self.failed
            case "device" | "mismatch" | "test":
                return True
            case _:
                assert_never(kind)


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The push subscription of a device."""

    device_id: str
    endpoint: str
    p256dh: str
    auth: str
    kinds: PushKinds
    problem: str | None = None
    """Why the last delivery failed; None: it succeeded."""


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE push_subscriptions (device_id TEXT PRIMARY KEY, endpoint TEXT NOT NULL,"
        " p256dh TEXT NOT NULL, auth TEXT NOT NULL, kinds TEXT NOT NULL, problem TEXT,"
        " created_at TEXT NOT NULL)"
    )


def _name_kinds(connection: sqlite3.Connection) -> None:
    """Name the kinds of messages as the API names requests."""
    rows = connection.execute("SELECT device_id, kinds FROM push_subscriptions").fetchall()
    for device_id, text in rows:
        kinds = msgspec.json.decode(text, type=dict[str, bool])
        named = {_EARLIER_NAMES.get(name, name): is_wanted for name, is_wanted in kinds.items()}
        connection.execute(
            "UPDATE push_subscriptions SET kinds = ? WHERE device_id = ?",
            (msgspec.json.encode(named).decode(), device_id),
        )


_EARLIER_NAMES: Final = {"approvals": "permissions", "questions": "elicitations"}
PUSH_TABLES: Final = (Tables("push", (_create, _name_kinds)),)
_COLUMNS: Final = "device_id, endpoint, p256dh, auth, kinds, problem"


class PushStore(Protocol):
    """The push subscriptions of all devices. Every method raises `DatabaseFailed`."""

    async def put(self, subscription: Subscription) -> None:
        """Store the subscription of a device in place of its earlier one."""

    async def get(self, device_id: str) -> Subscription | None: ...

    async def all(self) -> list[Subscription]: ...

    async def set_kinds(self, device_id: str, kinds: PushKinds) -> bool:
        """Store which messages a device wants; return whether it has a subscription."""

    async def set_problem(self, device_id: str, problem: str | None) -> None:
        """Store why the last delivery failed; None: it succeeded."""

    async def remove(self, device_id: str, endpoint: str | None = None) -> None:
        """Remove a device's subscription; with `endpoint`, only if it still has that one."""


class SqlitePushStore:
    """`PushStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, subscription: Subscription) -> None:
        kinds = msgspec.json.encode(subscription.kinds).decode()
        row = (
            subscription.device_id,
            subscription.endpoint,
            subscription.p256dh,
            subscription.auth,
            kinds,
            iso_seconds(time.time()),
        )

        def change(connection: sqlite3.Connection) -> None:
            # A browser has one subscription: it belongs to the device that sent it last.
            connection.execute(
                "DELETE FROM push_subscriptions WHERE endpoint = ?", (subscription.endpoint,)
            )
            connection.execute(
                "INSERT OR REPLACE INTO push_subscriptions"
                " (device_id, endpoint, p256dh, auth, kinds, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )

        await self._database.write(change)

    async def get(self, device_id: str) -> Subscription | None:
        query = f"SELECT {_COLUMNS} FROM push_subscriptions WHERE device_id = ?"  # noqa: S608

        def read(connection: sqlite3.Connection) -> Subscription | None:
            row = connection.execute(query, (device_id,)).fetchone()
            return None if row is None else read_subscription(row)

        return await self._database.read(read)

    async def all(self) -> list[Subscription]:
        query = f"SELECT {_COLUMNS} FROM push_subscriptions ORDER BY device_id"  # noqa: S608

        def read(connection: sqlite3.Connection) -> list[Subscription]:
            return [read_subscription(row) for row in connection.execute(query)]

        return await self._database.read(read)

    async def set_kinds(self, device_id: str, kinds: PushKinds) -> bool:
        text = msgspec.json.encode(kinds).decode()

        def change(connection: sqlite3.Connection) -> bool:
            query = "UPDATE push_subscriptions SET kinds = ? WHERE device_id = ?"
            return connection.execute(query, (text, device_id)).rowcount > 0

        return await self._database.write(change)

    async def set_problem(self, device_id: str, problem: str | None) -> None:
        def change(connection: sqlite3.Connection) -> None:
            query = "UPDATE push_subscriptions SET problem = ? WHERE device_id = ?"
            connection.execute(query, (problem, device_id))

        await self._database.write(change)

    async def remove(self, device_id: str, endpoint: str | None = None) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM push_subscriptions"
                " WHERE device_id = ? AND endpoint = COALESCE(?, endpoint)",
                (device_id, endpoint),
            )

        await self._database.write(change)


def read_subscription(row: Sequence[Any]) -> Subscription:
    """Return the subscription of a row, whose columns are in the order of its fields."""
    device_id, endpoint, p256dh, auth, kinds, problem = row
    return Subscription(
        device_id=device_id,
        endpoint=endpoint,
        p256dh=p256dh,
        auth=auth,
        kinds=msgspec.json.decode(kinds, type=PushKinds),
        problem=problem,
    )

"""The devices in hub.db and their history: `DeviceStore`, one method per transaction.

A device is never deleted, only marked as revoked; its token is stored as a hash. The history says
when and where a device was paired, seen at a new address, changed, renewed, revoked or expired, in
the same transaction as the change itself, and which calls in its name were refused or could not be
verified.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from quarterdeck.hub.auth.device import OWNER, Device, Scope
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.storage.database import Database, Tables

# ---- history -----------------------------------------------------------------------------------

KEPT: Final = 2_000
"""Events in the history; older ones are deleted."""
SHOWN: Final = 200
"""Events that the API returns."""
KEPT_OF_OWN: Final = 30
"""Events of one kind that a device causes by itself, any number of times: older ones are deleted,
so that no device can push the others' events, or its own refused calls, out of the history."""
DeviceEventKind: TypeAlias = Literal[
    "paired",
    "new-address",
    "changed",
    "token-renewed",
    "revoked",
    "expired",
    "refused-agent",
    "unverified",
    "config-changed",
    "machine-joined",
    "machine-renamed",
    "machine-removed",
    "machine-refused",
]
"""Three are about a call in the name of the device: it was refused, since a process of an agent
made it (`refused-agent`); its process could not be verified (`unverified`); or, for the owner,
rules or agents in hub.toml changed (`config-changed`). The last four are about another machine,
whose id and name take the place of the device's.
"""
OWN_KINDS: Final = (
    "new-address",
    "token-renewed",
    "refused-agent",
    "unverified",
    "machine-refused",
)


def _create_history(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE device_log (id INTEGER PRIMARY KEY AUTOINCREMENT, device_id TEXT NOT NULL,"
        " what TEXT NOT NULL, name TEXT NOT NULL, address TEXT, user_agent TEXT, at TEXT NOT NULL)"
    )


def _add_detail(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE device_log ADD COLUMN detail TEXT")


DEVICE_LOG_TABLES: Final = Tables("device_log", (_create_history, _add_detail))


@dataclass(frozen=True, slots=True)
class Sighting:
    """The address and the User-Agent of a request."""

    address: str | None = None
    user_agent: str | None = None


UNKNOWN: Final = Sighting()


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event in the history of a device."""

    device_id: str
    what: DeviceEventKind
    name: str
    """The name of the device at that time."""
    address: str | None
    user_agent: str | None
    at: str
    detail: str | None = None
    """What was tried, and by which process."""


def event_of(what: DeviceEventKind, device: Device, at: str) -> DeviceEvent:
    """Return the event for a change of a device."""
    return DeviceEvent(
        device_id=device.id,
        what=what,
        name=device.name,
        address=device.last_address,
        user_agent=device.user_agent,
        at=at,
    )


def store_event(connection: sqlite3.Connection, event: DeviceEvent) -> None:
    """Add an event to the history, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO device_log (device_id, what, name, address, user_agent, at, detail)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(event),
    )
    if event.what in OWN_KINDS:
        connection.execute(
            "DELETE FROM device_log WHERE device_id = ?1 AND what = ?2 AND id <= (SELECT id"
            " FROM device_log WHERE device_id = ?1 AND what = ?2"
            " ORDER BY id DESC LIMIT 1 OFFSET ?3)",
            (event.device_id, event.what, KEPT_OF_OWN),
        )
    connection.execute(
        "DELETE FROM device_log WHERE id <= (SELECT max(id) FROM device_log) - ?", (KEPT,)
    )


def recent_events(connection: sqlite3.Connection) -> list[DeviceEvent]:
    """Return the newest events of the history, newest first."""
    rows = connection.execute(
        "SELECT device_id, what, name, address, user_agent, at, detail FROM device_log"
        " ORDER BY id DESC LIMIT ?",
        (SHOWN,),
    )
    names = DeviceEvent.__struct_fields__
    return [DeviceEvent(**dict(zip(names, row, strict=True))) for row in rows]


def known_addresses(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the addresses at which each device was seen."""
    known: dict[str, set[str]] = {}
    rows = connection.execute(
        "SELECT DISTINCT device_id, address FROM device_log WHERE address IS NOT NULL"
    )
    for device_id, address in rows:
        known.setdefault(device_id, set()).add(address)
    return known


# ---- devices -----------------------------------------------------------------------------------

_COLUMNS: Final = (
    "id, name, scope, created_at, last_seen_at, expires_at, last_address, user_agent,"
    " machine_scopes"
)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE devices ("
        " id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,"
        " token_hash BLOB NOT NULL UNIQUE, created_at TEXT NOT NULL, last_seen_at TEXT,"
        " expires_at TEXT, revoked_at TEXT)"
    )


def _add_sightings(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE devices ADD COLUMN last_address TEXT")
    connection.execute("ALTER TABLE devices ADD COLUMN user_agent TEXT")
    connection.execute("ALTER TABLE devices ADD COLUMN next_token_hash BLOB")


def _add_machine_scopes(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE devices ADD COLUMN machine_scopes TEXT")


DEVICE_TABLES: Final = Tables("devices", (_create, _add_sightings, _add_machine_scopes))


class StoredDevices(msgspec.Struct, frozen=True):
    """The devices that are not revoked, and the addresses they were seen at."""

    devices: list[tuple[bytes, bytes | None, Device]]
    """Each with the hash of its token, and of the one that replaces it."""
    addresses: dict[str, set[str]]


class DeviceStore(Protocol):
    """All devices and their history. Every method raises `DatabaseFailed` if the database fails."""

    async def load(self, owner_hash: bytes, at: str) -> StoredDevices:
        """Replace the hash of the owner's token, then return the devices that may connect.

        The owner has no token: the hash is that of none.
        """

    async def events(self) -> list[DeviceEvent]:
        """Return the newest events of the history, newest first."""

    async def record(self, event: DeviceEvent) -> None:
        """Add an event to the history."""

    async def add(self, device: Device, token_hash: bytes) -> None:
        """Store a new device that was not paired with a code."""

    async def set_next_token(self, device_id: str, token_hash: bytes) -> None:
        """Store the token that replaces a device's token once it is used."""

    async def use_next_token(self, device_id: str, token_hash: bytes, event: DeviceEvent) -> None:
        """Replace a device's token."""

    async def change(
        self,
        device_id: str,
        *,
        name: str | None,
        scope: Scope | None,
        machine_scopes: Mapping[str, Scope] | None = None,
        at: str,
    ) -> Device | None:
        """Change the name or the scopes of a device; return None if there is none."""

    async def note_seen(self, device: Device, event: DeviceEvent | None) -> None:
        """Store when and where a device was seen."""

    async def end(self, device_id: str, at: str, event: DeviceEvent | None) -> bool:
        """Revoke a device; return whether it was not revoked before."""


class SqliteDeviceStore:
    """`DeviceStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, owner_hash: bytes, at: str) -> StoredDevices:
        def change(connection: sqlite3.Connection) -> StoredDevices:
            connection.execute(
                "INSERT INTO devices (id, name, scope, token_hash, created_at)"
                " VALUES (?, 'this computer', 'admin', ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET token_hash = excluded.token_hash",
                (OWNER, owner_hash, at),
            )
            rows = connection.execute(
                f"SELECT token_hash, next_token_hash, {_COLUMNS} FROM devices"  # noqa: S608
                " WHERE revoked_at IS NULL"
            )
            devices = [(row[0], row[1], _device(row[2:])) for row in rows]
            return StoredDevices(devices, known_addresses(connection))

        return await self._database.write(change)

    async def events(self) -> list[DeviceEvent]:
        return await self._database.read(recent_events)

    async def record(self, event: DeviceEvent) -> None:
        await self._database.write(lambda connection: store_event(connection, event))

    async def add(self, device: Device, token_hash: bytes) -> None:
        await self._database.write(lambda connection: add_device(connection, device, token_hash))

    async def set_next_token(self, device_id: str, token_hash: bytes) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE devices SET next_token_hash = ? WHERE id = ?", (token_hash, device_id)
            )

        await self._database.write(change)

    async def use_next_token(self, device_id: str, token_hash: bytes, event: DeviceEvent) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE devices SET token_hash = ?, next_token_hash = NULL WHERE id = ?",
                (token_hash, device_id),
            )
            store_event(connection, event)

        await self._database.write(change)

    async def change(
        self,
        device_id: str,
        *,
        name: str | None,
        scope: Scope | None,
        machine_scopes: Mapping[str, Scope] | None = None,
        at: str,
    ) -> Device | None:
        limits = None if machine_scopes is None else encode_json(dict(machine_scopes)).decode()

        def change(connection: sqlite3.Connection) -> Device | None:
            connection.execute(
                "UPDATE devices SET name = coalesce(?, name), scope = coalesce(?, scope),"
                " machine_scopes = coalesce(?, machine_scopes)"
                " WHERE id = ? AND revoked_at IS NULL",
                (name, scope, limits, device_id),
            )
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM devices"  # noqa: S608
                " WHERE id = ? AND revoked_at IS NULL",
                (device_id,),
            ).fetchone()
            if row is None:
                return None
            device = _device(row)
            store_event(connection, event_of("changed", device, at))
            return device

        return await self._database.write(change)

    async def note_seen(self, device: Device, event: DeviceEvent | None) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE devices SET last_seen_at = ?, last_address = ?, user_agent = ?"
                " WHERE id = ?",
                (device.last_seen_at, device.last_address, device.user_agent, device.id),
            )
            if event is not None:
                store_event(connection, event)

        await self._database.write(change)

    async def end(self, device_id: str, at: str, event: DeviceEvent | None) -> bool:
        def change(connection: sqlite3.Connection) -> bool:
            ended = connection.execute(
                "UPDATE devices SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                (at, device_id),
            )
            if ended.rowcount == 1 and event is not None:
                store_event(connection, event)
            return ended.rowcount == 1

        return await self._database.write(change)


def add_device(connection: sqlite3.Connection, device: Device, token_hash: bytes) -> None:
    """Store a device that was just paired, inside the transaction that used its code."""
    marks = ", ".join("?" for _ in Device.__struct_fields__)
    connection.execute(
        f"INSERT INTO devices (token_hash, {_COLUMNS}) VALUES (?, {marks})",  # noqa: S608
        (token_hash, *msgspec.structs.astuple(device)[:-1], _limits(device.machine_scopes)),
    )
    store_event(connection, event_of("paired", device, device.created_at))


def _device(row: tuple[Any, ...]) -> Device:
    *facts, limits = row
    known: dict[str, Scope] = {} if limits is None else decode_json(limits)
    return Device(**dict(zip(Device.__struct_fields__, (*facts, known), strict=True)))


def _limits(machine_scopes: Mapping[str, Scope]) -> str | None:
    return encode_json(dict(machine_scopes)).decode() if machine_scopes else None

"""The history of devices in hub.db: paired, seen at a new address, changed, revoked, expired."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from quarterdeck.server.database import Tables
from quarterdeck.server.device import Device

KEPT: Final = 2_000
"""Entries; the oldest go."""
SHOWN: Final = 200
Happening: TypeAlias = Literal[
    "paired", "new-address", "changed", "token-renewed", "revoked", "expired"
]


def _create_history(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE device_log (id INTEGER PRIMARY KEY AUTOINCREMENT, device_id TEXT NOT NULL,"
        " what TEXT NOT NULL, name TEXT NOT NULL, address TEXT, user_agent TEXT, at TEXT NOT NULL)"
    )


DEVICE_LOG_TABLES: Final = Tables("device_log", (_create_history,))


@dataclass(frozen=True, slots=True)
class Sighting:
    """From where a device was heard, and what it said it is."""

    address: str | None = None
    user_agent: str | None = None


NOWHERE: Final = Sighting()


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happened to a device."""

    device_id: str
    what: Happening
    name: str
    """What the device was called then."""
    address: str | None
    user_agent: str | None
    """What it says itself."""
    at: str


def event_of(what: Happening, device: Device, at: str) -> DeviceEvent:
    """Return the entry for something that happens to a device."""
    return DeviceEvent(
        device_id=device.id,
        what=what,
        name=device.name,
        address=device.last_address,
        user_agent=device.user_agent,
        at=at,
    )


def store_event(connection: sqlite3.Connection, event: DeviceEvent) -> None:
    """Add an entry, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO device_log (device_id, what, name, address, user_agent, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(event),
    )
    connection.execute(
        "DELETE FROM device_log WHERE id <= (SELECT max(id) FROM device_log) - ?", (KEPT,)
    )


def recent_events(connection: sqlite3.Connection) -> list[DeviceEvent]:
    """Return the newest entries, the newest first."""
    rows = connection.execute(
        "SELECT device_id, what, name, address, user_agent, at FROM device_log"
        " ORDER BY id DESC LIMIT ?",
        (SHOWN,),
    )
    names = DeviceEvent.__struct_fields__
    return [DeviceEvent(**dict(zip(names, row, strict=True))) for row in rows]


def known_addresses(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return from where each device was heard."""
    known: dict[str, set[str]] = {}
    rows = connection.execute(
        "SELECT DISTINCT device_id, address FROM device_log WHERE address IS NOT NULL"
    )
    for device_id, address in rows:
        known.setdefault(device_id, set()).add(address)
    return known

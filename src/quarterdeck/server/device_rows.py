"""Devices as hub.db has them."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from quarterdeck.server.database import Tables
from quarterdeck.server.device import Device
from quarterdeck.server.device_log import DeviceEvent, store_event

COLUMNS: Final = "id, name, scope, created_at, last_seen_at, expires_at, last_address, user_agent"


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


DEVICE_TABLES: Final = Tables("devices", (_create, _add_sightings))


def store_seen(device: Device, event: DeviceEvent | None, connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE devices SET last_seen_at = ?, last_address = ?, user_agent = ? WHERE id = ?",
        (device.last_seen_at, device.last_address, device.user_agent, device.id),
    )
    if event is not None:
        store_event(connection, event)


def store_end(
    connection: sqlite3.Connection, device_id: str, at: str, event: DeviceEvent | None
) -> bool:
    """Shut a device out; return whether it was not yet."""
    ended = connection.execute(
        "UPDATE devices SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (at, device_id)
    )
    if ended.rowcount == 1 and event is not None:
        store_event(connection, event)
    return ended.rowcount == 1


def device_of_row(row: tuple[Any, ...]) -> Device:
    return Device(**dict(zip(Device.__struct_fields__, row, strict=True)))

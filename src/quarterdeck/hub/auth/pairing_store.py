"""The pairings in hub.db: `PairingStore`, one method per transaction.

Only the hashes of codes are stored. `use` marks a code as used and stores the new device in one
transaction, so a code that fifty concurrent requests send creates one device.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Protocol

import msgspec

from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.auth.device_keys import add_device_key
from quarterdeck.hub.auth.device_store import Sighting, add_device
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage.database import Database, Tables

KEPT_SECONDS: Final = 7 * 86_400.0
"""How long a pairing stays in the table after it has expired."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pending pairing of one new device."""

    id: str
    name: str
    """The name of the device if it does not send one."""
    scope: Scope
    created_at: str
    expires_at: str


class PairingSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored with a pairing and never shown."""

    short_hash: bytes
    long_hash: bytes
    expires: float
    device_seconds: float | None


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """How a new device will prove who it is."""

    token_hash: bytes
    """With a key, the hash of a token that does not exist."""
    key: bytes | None
    """A public key, as a point; None: it has a token."""


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE pairings ("
        " id TEXT PRIMARY KEY, short_hash BLOB NOT NULL UNIQUE, long_hash BLOB NOT NULL UNIQUE,"
        " name TEXT NOT NULL, scope TEXT NOT NULL, device_seconds REAL, created_at TEXT NOT NULL,"
        " expires REAL NOT NULL, used_at TEXT, device_id TEXT)"
    )


PAIRING_TABLES: Final = Tables("pairings", (_create,))


class PairingStore(Protocol):
    """All pairings. Every method raises `DatabaseFailed` if the database fails."""

    async def add(self, pairing: Pairing, secrets: PairingSecrets, now: float) -> None:
        """Store a new pairing, and remove those that expired long ago."""

    async def usable(self, now: float) -> list[Pairing]:
        """Return the pairings that can still be used, oldest first."""

    async def cancel(self, pairing_id: str, now: float) -> bool:
        """Remove a pairing; return whether it could still be used."""

    async def cancel_all(self, now: float) -> None:
        """Remove every pairing that could still be used."""

    async def use(
        self,
        code_hash: bytes,
        now: float,
        *,
        device_id: str,
        name: str,
        sighting: Sighting,
        credential: NewCredential,
    ) -> Device | None:
        """Use a code and store the new device; return None if the code is not valid."""


class SqlitePairingStore:
    """`PairingStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, pairing: Pairing, secrets: PairingSecrets, now: float) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM pairings WHERE expires < ?", (now - KEPT_SECONDS,))
            connection.execute(
                "INSERT INTO pairings VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
                (
                    pairing.id,
                    secrets.short_hash,
                    secrets.long_hash,
                    pairing.name,
                    pairing.scope,
                    secrets.device_seconds,
                    pairing.created_at,
                    secrets.expires,
                ),
            )

        await self._database.write(change)

    async def usable(self, now: float) -> list[Pairing]:
        def query(connection: sqlite3.Connection) -> list[Pairing]:
            rows = connection.execute(
                "SELECT id, name, scope, created_at, expires FROM pairings"
                " WHERE used_at IS NULL AND expires > ? ORDER BY created_at, id",
                (now,),
            )
            return [
                Pairing(id=i, name=n, scope=s, created_at=c, expires_at=iso_seconds(e))
                for i, n, s, c, e in rows
            ]

        return await self._database.read(query)

    async def cancel(self, pairing_id: str, now: float) -> bool:
        def change(connection: sqlite3.Connection) -> bool:
            closed = connection.execute(
                "DELETE FROM pairings WHERE id = ? AND used_at IS NULL AND expires > ?",
                (pairing_id, now),
            )
            return closed.rowcount == 1

        return await self._database.write(change)

    async def cancel_all(self, now: float) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM pairings WHERE used_at IS NULL AND expires > ?", (now,))

        await self._database.write(change)

    async def use(
        self,
        code_hash: bytes,
        now: float,
        *,
        device_id: str,
        name: str,
        sighting: Sighting,
        credential: NewCredential,
    ) -> Device | None:
        def change(connection: sqlite3.Connection) -> Device | None:
            row = connection.execute(
                "SELECT id, name, scope, device_seconds FROM pairings"
                " WHERE (short_hash = ? OR long_hash = ?) AND used_at IS NULL AND expires > ?",
                (code_hash, code_hash, now),
            ).fetchone()
            if row is None:
                return None
            pairing_id, given_name, scope, device_seconds = row
            connection.execute(
                "UPDATE pairings SET used_at = ?, device_id = ? WHERE id = ?",
                (iso_seconds(now), device_id, pairing_id),
            )
            device = Device(
                id=device_id,
                name=name or given_name,
                scope=scope,
                created_at=iso_seconds(now),
                expires_at=None if device_seconds is None else iso_seconds(now + device_seconds),
                last_address=sighting.address,
                user_agent=sighting.user_agent,
            )
            add_device(connection, device, credential.token_hash)
            if credential.key is not None:
                add_device_key(connection, device.id, credential.key)
            return device

        return await self._database.write(change)

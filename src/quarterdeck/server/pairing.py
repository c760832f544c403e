"""How a new device gets in: a code that works once, for a short time.

A pairing has two codes. The short one is read from a screen and typed; the long one travels in a
link or a QR code and cannot be guessed. The database has only their hashes. A code is used up in
the same transaction that stores the new device, so fifty requests at once make one device.

Wrong, used, cancelled and expired codes get the same answer.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from dataclasses import dataclass
from typing import Final

import msgspec

from quarterdeck.server.attempts import Attempts, Budget
from quarterdeck.server.clock import Now, written
from quarterdeck.server.database import HubDatabase, Tables
from quarterdeck.server.device import Device, Scope
from quarterdeck.server.device_log import Sighting
from quarterdeck.server.devices import Devices, clean_name, new_device_id
from quarterdeck.server.secrets import digest

LIFETIME_SECONDS: Final = 600.0
LONGEST_SECONDS: Final = 86_400.0
SHORT_LENGTH: Final = 8
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without 0, 1, I, L, O and U: 30 characters, so eight of them are one of 6.5 * 10^11 codes."""
_LONG_LENGTH: Final = 43
_EACH: Final = Budget(tries=10, seconds=30)
_TOGETHER: Final = Budget(tries=50, seconds=10)
"""At most 110 guesses in the ten minutes of a code: the odds are 1 in 6 * 10^9."""
_KEPT_SECONDS: Final = 7 * 86_400.0


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE pairings ("
        " id TEXT PRIMARY KEY, short_hash BLOB NOT NULL UNIQUE, long_hash BLOB NOT NULL UNIQUE,"
        " name TEXT NOT NULL, scope TEXT NOT NULL, device_seconds REAL, created_at TEXT NOT NULL,"
        " expires REAL NOT NULL, used_at TEXT, device_id TEXT)"
    )


PAIRING_TABLES: Final = Tables("pairings", (_create,))


class Pairing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A door that is open for one device."""

    id: str
    name: str
    """What the device will be called if it does not say."""
    scope: Scope
    created_at: str
    expires_at: str


@dataclass(frozen=True)
class Codes:
    """What opens it: told once, to whoever made the pairing."""

    short: str
    """As it is shown: XXXX-XXXX."""
    long: str


@dataclass(frozen=True)
class Paired:
    """A device that has just come in, and its token: told once."""

    device: Device
    token: str


@dataclass(frozen=True)
class TooMany:
    """Too many wrong codes; nothing was looked at."""

    seconds: float


class Pairings:
    """All pairings of a hub."""

    def __init__(self, database: HubDatabase, devices: Devices, *, now: Now = time.time) -> None:
        self._database = database
        self._devices = devices
        self._now = now
        self._attempts = Attempts(_EACH, _TOGETHER)

    async def create(
        self,
        *,
        scope: Scope,
        name: str = "",
        seconds: float = LIFETIME_SECONDS,
        device_seconds: float | None = None,
    ) -> tuple[Pairing, Codes]:
        """Open a door for one device; with `device_seconds` it may stay only so long."""
        now = self._now()
        pairing = Pairing(
            id=f"pair_{secrets.token_hex(8)}",
            name=clean_name(name) or "new device",
            scope=scope,
            created_at=written(now),
            expires_at=written(now + seconds),
        )
        short = "".join(secrets.choice(ALPHABET) for _ in range(SHORT_LENGTH))
        long = secrets.token_urlsafe(32)
        hashes = (digest(short), digest(long))
        row = (pairing.id, *hashes, pairing.name, scope, device_seconds, pairing.created_at)

        def store(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM pairings WHERE expires < ?", (now - _KEPT_SECONDS,))
            connection.execute(
                "INSERT INTO pairings VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)",
                (*row, now + seconds),
            )

        await self._database.write(store)
        return pairing, Codes(f"{short[:4]}-{short[4:]}", long)

    async def open_ones(self) -> list[Pairing]:
        """Return those that still can be used."""
        now = self._now()

        def look(connection: sqlite3.Connection) -> list[Pairing]:
            rows = connection.execute(
                "SELECT id, name, scope, created_at, expires FROM pairings"
                " WHERE used_at IS NULL AND expires > ? ORDER BY created_at, id",
                (now,),
            )
            return [
                Pairing(id=i, name=n, scope=s, created_at=c, expires_at=written(e))
                for i, n, s, c, e in rows
            ]

        return await self._database.read(look)

    async def cancel(self, pairing_id: str) -> bool:
        """Close the door; return whether it was open."""
        now = self._now()

        def store(connection: sqlite3.Connection) -> bool:
            closed = connection.execute(
                "DELETE FROM pairings WHERE id = ? AND used_at IS NULL AND expires > ?",
                (pairing_id, now),
            )
            return closed.rowcount == 1

        return await self._database.write(store)

    async def pair(
        self, code: str, *, name: str, address: str, user_agent: str | None = None
    ) -> Paired | TooMany | None:
        """Use a code up; None if it is not one, or not any more."""
        wanted = canonical(code)
        is_guessable = len(wanted) != _LONG_LENGTH
        wait = self._attempts.take(address, self._now(), is_guessable=is_guessable)
        if wait > 0:
            return TooMany(wait)
        sighting = Sighting(address or None, user_agent)
        paired = await self._use(digest(wanted), clean_name(name), sighting)
        if paired is not None:
            self._devices.remember(paired.device, paired.token)
            self._attempts.give_back(address, is_guessable=is_guessable)
        return paired

    async def _use(self, code_hash: bytes, name: str, sighting: Sighting) -> Paired | None:
        now = self._now()

        def store(connection: sqlite3.Connection) -> Paired | None:
            row = connection.execute(
                "SELECT id, name, scope, device_seconds FROM pairings"
                " WHERE (short_hash = ? OR long_hash = ?) AND used_at IS NULL AND expires > ?",
                (code_hash, code_hash, now),
            ).fetchone()
            if row is None:
                return None
            pairing_id, given_name, scope, device_seconds = row
            device_id = new_device_id()
            connection.execute(
                "UPDATE pairings SET used_at = ?, device_id = ? WHERE id = ?",
                (written(now), device_id, pairing_id),
            )
            expires_at = None if device_seconds is None else written(now + device_seconds)
            device = Device(
                id=device_id,
                name=name or given_name,
                scope=scope,
                created_at=written(now),
                expires_at=expires_at,
                last_address=sighting.address,
                user_agent=sighting.user_agent,
            )
            return Paired(device, self._devices.admit(connection, device))

        return await self._database.write(store)


def canonical(code: str) -> str:
    """Return a code as it was made: people type lower case, blanks and dashes."""
    plain = code.strip()
    if len(plain) == _LONG_LENGTH:
        return plain
    return "".join(plain.replace("-", "").split()).upper()

"""Who may come in: devices, the hashes of their tokens, and what they have open right now.

The table is small and only this process writes it, so all of it is kept in memory: a wrong token
costs a hash and no query. What changes is stored first and then takes effect.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio
from msgspec.structs import replace

from quarterdeck.errors import HubDatabaseFailed
from quarterdeck.server.clock import Now, seconds_of, written
from quarterdeck.server.database import HubDatabase, Tables
from quarterdeck.server.device import OWNER, Device, Scope
from quarterdeck.server.secrets import digest, make_token

logger = logging.getLogger(__name__)

SEEN_SECONDS: Final = 60.0
"""`last_seen_at` is stored when it is older than this: not a write for every request."""
NAME_LENGTH: Final = 80

_COLUMNS: Final = "id, name, scope, created_at, last_seen_at, expires_at"
_Row: TypeAlias = tuple[str, str, Scope, str, str | None, str | None]


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE devices ("
        " id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,"
        " token_hash BLOB NOT NULL UNIQUE, created_at TEXT NOT NULL, last_seen_at TEXT,"
        " expires_at TEXT, revoked_at TEXT)"
    )


DEVICE_TABLES: Final = Tables("devices", (_create,))


class Connection:
    """One request or WebSocket of a device, as long as it lasts."""

    def __init__(self, seconds_left: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds_left)


class Devices:
    """All devices that may come in."""

    def __init__(self, database: HubDatabase, *, now: Now = time.time) -> None:
        self._database = database
        self._now = now
        self._by_hash: dict[bytes, Device] = {}
        self._hashes: dict[str, bytes] = {}
        self._live: dict[str, set[Connection]] = {}
        self._stored_seen: dict[str, float] = {}

    async def load(self, token: str) -> None:
        """Read the table; `token` is the owner's."""
        created_at = written(self._now())

        def store_owner(connection: sqlite3.Connection) -> list[tuple[bytes, Device]]:
            connection.execute(
                "INSERT INTO devices (id, name, scope, token_hash, created_at)"
                " VALUES (?, 'this computer', 'admin', ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET token_hash = excluded.token_hash",
                (OWNER, digest(token), created_at),
            )
            rows = connection.execute(
                f"SELECT token_hash, {_COLUMNS} FROM devices WHERE revoked_at IS NULL"  # noqa: S608
            )
            return [(row[0], _device(row[1:])) for row in rows]

        for token_hash, device in await self._database.write(store_owner):
            self._remember(device, token_hash)

    async def authenticate(self, token: str) -> Device | None:
        """Return whose token it is; None if it is nobody's, or not any more."""
        token_hash = digest(token)
        device = self._by_hash.get(token_hash)
        if device is None or self.seconds_left(device) <= 0:
            return None
        await self._note_seen(device)
        return self._by_hash.get(token_hash)  # it may have changed while that was stored

    def seconds_left(self, device: Device) -> float:
        if device.expires_at is None:
            return float("inf")
        return seconds_of(device.expires_at) - self._now()

    @property
    def all(self) -> list[Device]:
        """Those that may come in, the oldest first."""
        devices = (device for device in self._by_hash.values() if self.seconds_left(device) > 0)
        return sorted(devices, key=lambda device: (device.created_at, device.id))

    def get(self, device_id: str) -> Device | None:
        token_hash = self._hashes.get(device_id)
        return None if token_hash is None else self._by_hash[token_hash]

    async def change(
        self, device_id: str, *, name: str | None = None, scope: Scope | None = None
    ) -> Device | None:
        """Rename a device or change what it may do; with less, what it has open is cut."""

        def store(connection: sqlite3.Connection) -> Device | None:
            connection.execute(
                "UPDATE devices SET name = coalesce(?, name), scope = coalesce(?, scope)"
                " WHERE id = ? AND revoked_at IS NULL",
                (name, scope, device_id),
            )
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM devices WHERE id = ? AND revoked_at IS NULL",  # noqa: S608
                (device_id,),
            ).fetchone()
            return None if row is None else _device(row)

        stored = await self._database.write(store)
        before = self.get(device_id)
        if stored is None or before is None:
            return None
        changed = replace(before, name=stored.name, scope=stored.scope)
        self._by_hash[self._hashes[device_id]] = changed
        if not changed.may(before.scope):
            self._cut(device_id)
        return changed

    async def revoke(self, device_id: str, *, sparing: Connection | None = None) -> bool:
        """Shut a device out and cut all it has open but `sparing`; return whether there was one."""
        revoked_at = written(self._now())

        def store(connection: sqlite3.Connection) -> bool:
            revoked = connection.execute(
                "UPDATE devices SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                (revoked_at, device_id),
            )
            return revoked.rowcount == 1

        was_stored = await self._database.write(store)
        token_hash = self._hashes.pop(device_id, None)
        if token_hash is not None:
            del self._by_hash[token_hash]
        self._cut(device_id, sparing)
        if was_stored:
            logger.info("device revoked", extra={"device": device_id})
        return was_stored

    @contextmanager
    def connection(self, device: Device) -> Iterator[Connection]:
        """Register something that ends when the device is revoked or expires."""
        connection = Connection(self.seconds_left(device))
        live = self._live.setdefault(device.id, set())
        live.add(connection)
        try:
            if device.id not in self._hashes:  # revoked since it was let in
                connection.scope.cancel()
            yield connection
        finally:
            live.discard(connection)
            if not live and self._live.get(device.id) is live:
                del self._live[device.id]

    def live_count(self, device_id: str) -> int:
        """How many requests and WebSockets of a device are open."""
        return len(self._live.get(device_id, ()))

    def admit(self, connection: sqlite3.Connection, device: Device) -> str:
        """Store a new device, inside the caller's transaction; return its token.

        It may come in once the caller has said `remember`, after the commit.
        """
        token = make_token()
        connection.execute(
            f"INSERT INTO devices (token_hash, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (digest(token), *_row(device)),
        )
        return token

    def remember(self, device: Device, token: str) -> None:
        self._remember(device, digest(token))
        logger.info("device paired", extra={"device": device.id, "scope": device.scope})

    def _remember(self, device: Device, token_hash: bytes) -> None:
        self._by_hash[token_hash] = device
        self._hashes[device.id] = token_hash

    def _cut(self, device_id: str, sparing: Connection | None = None) -> None:
        for connection in self._live.get(device_id, set()) - {sparing}:
            connection.scope.cancel()

    async def _note_seen(self, device: Device) -> None:
        now = self._now()
        seen = replace(device, last_seen_at=written(now))
        self._by_hash[self._hashes[device.id]] = seen
        if now - self._stored_seen.get(device.id, 0.0) < SEEN_SECONDS:
            return
        self._stored_seen[device.id] = now
        try:
            await self._database.write(partial(_store_seen, seen))
        except HubDatabaseFailed as error:  # a full disk must not shut everybody out
            logger.warning("last seen was not stored", extra={"reason": str(error)})


def _store_seen(device: Device, connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE devices SET last_seen_at = ? WHERE id = ?", (device.last_seen_at, device.id)
    )


def new_device_id() -> str:
    return f"dev_{secrets.token_hex(8)}"


def clean_name(name: str) -> str:
    """Return a name for a device that is fit to be shown on one line."""
    plain = "".join(each if each.isprintable() else " " for each in name)
    return " ".join(plain.split())[:NAME_LENGTH].strip()


def _row(device: Device) -> _Row:
    seen = device.last_seen_at
    return device.id, device.name, device.scope, device.created_at, seen, device.expires_at


def _device(row: _Row) -> Device:
    id_, name, scope, created_at, last_seen_at, expires_at = row
    return Device(
        id=id_,
        name=name,
        scope=scope,
        created_at=created_at,
        last_seen_at=last_seen_at,
        expires_at=expires_at,
    )

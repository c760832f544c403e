"""Devices, their history, their keys and pairings in PostgreSQL; see `hub.auth`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quarterdeck.hub.auth.device import OWNER, Device, Scope
from quarterdeck.hub.auth.device_store import (
    KEPT,
    KEPT_OF_OWN,
    OWN_KINDS,
    SHOWN,
    DeviceEvent,
    Sighting,
    StoredDevices,
    event_of,
)
from quarterdeck.hub.auth.pairing_store import (
    KEPT_SECONDS,
    NewCredential,
    Pairing,
    PairingSecrets,
)
from quarterdeck.hub.postgres.connection import Postgres, Row, Statements
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol.timestamps import iso_seconds

_COLUMNS: Final = (
    "id, name, scope, created_at, last_seen_at, expires_at, last_address, user_agent,"
    " machine_scopes"
)
_EVENT_COLUMNS: Final = "device_id, what, name, address, user_agent, at, detail"


async def store_event(statements: Statements, event: DeviceEvent) -> None:
    """Add an event to the history, inside the caller's transaction."""
    await statements.run(
        f"INSERT INTO device_log ({_EVENT_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        *msgspec.structs.astuple(event),
    )
    if event.what in OWN_KINDS:
        await statements.run(
            "DELETE FROM device_log WHERE device_id = $1 AND what = $2 AND id <= (SELECT id"
            " FROM device_log WHERE device_id = $1 AND what = $2"
            " ORDER BY id DESC LIMIT 1 OFFSET $3)",
            event.device_id,
            event.what,
            KEPT_OF_OWN,
        )
    await statements.run(
        "DELETE FROM device_log WHERE id <= (SELECT max(id) FROM device_log) - $1::bigint", KEPT
    )


async def _add_device(statements: Statements, device: Device, token_hash: bytes) -> None:
    await statements.run(
        f"INSERT INTO devices (token_hash, {_COLUMNS})"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        token_hash,
        *msgspec.structs.astuple(device)[:-1],
        _limits(device.machine_scopes) if device.machine_scopes else None,
    )
    await store_event(statements, event_of("paired", device, device.created_at))


class PostgresDeviceStore:
    """`DeviceStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def load(self, owner_hash: bytes, at: str) -> StoredDevices:
        async with self._postgres.transaction() as statements:
            await statements.run(
                "INSERT INTO devices (id, name, scope, token_hash, created_at)"
                " VALUES ($1, 'this computer', 'admin', $2, $3)"
                " ON CONFLICT (id) DO UPDATE SET token_hash = excluded.token_hash",
                OWNER,
                owner_hash,
                at,
            )
            rows = await statements.rows(
                f"SELECT token_hash, next_token_hash, {_COLUMNS} FROM devices"
                " WHERE revoked_at IS NULL ORDER BY number"
            )
            seen = await statements.rows(
                "SELECT DISTINCT device_id, address FROM device_log WHERE address IS NOT NULL"
            )
        addresses: dict[str, set[str]] = {}
        for device_id, address in seen:
            addresses.setdefault(device_id, set()).add(address)
        return StoredDevices([(row[0], row[1], _device(row[2:])) for row in rows], addresses)

    async def events(self) -> list[DeviceEvent]:
        rows = await self._postgres.rows(
            f"SELECT {_EVENT_COLUMNS} FROM device_log ORDER BY id DESC LIMIT $1",
            SHOWN,
        )
        names = DeviceEvent.__struct_fields__
        return [DeviceEvent(**dict(zip(names, row, strict=True))) for row in rows]

    async def record(self, event: DeviceEvent) -> None:
        async with self._postgres.transaction() as statements:
            await store_event(statements, event)

    async def add(self, device: Device, token_hash: bytes) -> None:
        async with self._postgres.transaction() as statements:
            await _add_device(statements, device, token_hash)

    async def set_next_token(self, device_id: str, token_hash: bytes) -> None:
        await self._postgres.run(
            "UPDATE devices SET next_token_hash = $1 WHERE id = $2", token_hash, device_id
        )

    async def use_next_token(self, device_id: str, token_hash: bytes, event: DeviceEvent) -> None:
        async with self._postgres.transaction() as statements:
            await statements.run(
                "UPDATE devices SET token_hash = $1, next_token_hash = NULL WHERE id = $2",
                token_hash,
                device_id,
            )
            await store_event(statements, event)

    async def change(
        self,
        device_id: str,
        *,
        name: str | None,
        scope: Scope | None,
        machine_scopes: Mapping[str, Scope] | None = None,
        at: str,
    ) -> Device | None:
        limits = None if machine_scopes is None else _limits(machine_scopes)
        async with self._postgres.transaction() as statements:
            row = await statements.row(
                "UPDATE devices SET name = coalesce($1, name), scope = coalesce($2, scope),"
                " machine_scopes = coalesce($3, machine_scopes)"
                f" WHERE id = $4 AND revoked_at IS NULL RETURNING {_COLUMNS}",
                name,
                scope,
                limits,
                device_id,
            )
            if row is None:
                return None
            device = _device(row)
            await store_event(statements, event_of("changed", device, at))
            return device

    async def note_seen(self, device: Device, event: DeviceEvent | None) -> None:
        async with self._postgres.transaction() as statements:
            await statements.run(
                "UPDATE devices SET last_seen_at = $1, last_address = $2, user_agent = $3"
                " WHERE id = $4",
                device.last_seen_at,
                device.last_address,
                device.user_agent,
                device.id,
            )
            if event is not None:
                await store_event(statements, event)

    async def end(self, device_id: str, at: str, event: DeviceEvent | None) -> bool:
        async with self._postgres.transaction() as statements:
            ended = await statements.run(
                "UPDATE devices SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL",
                at,
                device_id,
            )
            if ended and event is not None:
                await store_event(statements, event)
            return ended == 1


class PostgresDeviceKeyStore:
    """`DeviceKeyStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def load(self) -> dict[str, bytes]:
        rows = await self._postgres.rows("SELECT device_id, public_key FROM device_keys")
        return {device_id: key for device_id, key in rows}  # noqa: C416 - a row is no pair


class PostgresPairingStore:
    """`PairingStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def add(self, pairing: Pairing, secrets: PairingSecrets, now: float) -> None:
        async with self._postgres.transaction() as statements:
            await statements.run("DELETE FROM pairings WHERE expires < $1", now - KEPT_SECONDS)
            await statements.run(
                "INSERT INTO pairings VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL, NULL)",
                pairing.id,
                secrets.short_hash,
                secrets.long_hash,
                pairing.name,
                pairing.scope,
                secrets.device_seconds,
                pairing.created_at,
                secrets.expires,
            )

    async def usable(self, now: float) -> list[Pairing]:
        rows = await self._postgres.rows(
            "SELECT id, name, scope, created_at, expires FROM pairings"
            " WHERE used_at IS NULL AND expires > $1 ORDER BY created_at, id",
            now,
        )
        return [
            Pairing(id=i, name=n, scope=s, created_at=c, expires_at=iso_seconds(e))
            for i, n, s, c, e in rows
        ]

    async def cancel(self, pairing_id: str, now: float) -> bool:
        cancelled = await self._postgres.run(
            "DELETE FROM pairings WHERE id = $1 AND used_at IS NULL AND expires > $2",
            pairing_id,
            now,
        )
        return cancelled == 1

    async def cancel_all(self, now: float) -> None:
        await self._postgres.run("DELETE FROM pairings WHERE used_at IS NULL AND expires > $1", now)

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
        async with self._postgres.transaction() as statements:
            # The row is locked: of any number of hubs, one finds it unused.
            row = await statements.row(
                "UPDATE pairings SET used_at = $1, device_id = $2"
                " WHERE (short_hash = $3 OR long_hash = $3) AND used_at IS NULL AND expires > $4"
                " RETURNING name, scope, device_seconds",
                iso_seconds(now),
                device_id,
                code_hash,
                now,
            )
            if row is None:
                return None
            given_name, scope, device_seconds = row
            device = Device(
                id=device_id,
                name=name or given_name,
                scope=scope,
                created_at=iso_seconds(now),
                expires_at=None if device_seconds is None else iso_seconds(now + device_seconds),
                last_address=sighting.address,
                user_agent=sighting.user_agent,
            )
            await _add_device(statements, device, credential.token_hash)
            if credential.key is not None:
                await statements.run(
                    "INSERT INTO device_keys VALUES ($1, $2)", device.id, credential.key
                )
            return device


def _device(row: Row) -> Device:
    *facts, limits = row
    known: dict[str, Scope] = {} if limits is None else decode_json(limits)
    return Device(**dict(zip(Device.__struct_fields__, (*facts, known), strict=True)))


def _limits(machine_scopes: Mapping[str, Scope]) -> str:
    text: Any = encode_json(dict(machine_scopes)).decode()
    return str(text)

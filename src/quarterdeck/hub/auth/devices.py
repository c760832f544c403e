"""`Devices`: all paired devices, their keys or the hashes of their tokens, and their connections.

The table is small and only this process writes it, so all of it is in memory: a wrong token costs a
hash and no query. Every change is stored first and then takes effect; only its end takes effect
first (`revocations`), so that a device can be revoked on a full disk. A browser has a key and
signs (`request_signatures`); a program has a token. No device has both.

A device ends in one of two ways: it is revoked, or it expires (at its own time, or because it was
not seen for long). Both cancel its open connections. A new token replaces the old one when it is
used for the first time, not when it is made: the response that carries it may be lost.

Subscribers (`subscribe`) receive "paired", "new-address" and what `record` stores; the other
changes are only stored.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import anyio
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace
from starlette.types import Scope as AsgiScope

from quarterdeck.errors import DatabaseFailed
from quarterdeck.http.fair_listener import network_of
from quarterdeck.http.origins import LOOPBACK, is_loopback
from quarterdeck.http.p256 import public_key
from quarterdeck.hub.auth.device import OWNER, UNUSED_SECONDS, Device, Scope
from quarterdeck.hub.auth.device_keys import DeviceKeyStore
from quarterdeck.hub.auth.device_store import (
    UNKNOWN,
    DeviceEvent,
    DeviceEventKind,
    DeviceStore,
    Sighting,
    event_of,
)
from quarterdeck.hub.auth.revocations import Revocations
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.hub.auth.trusted_time import TrustedTime
from quarterdeck.protocol.timestamps import Now, iso_seconds, seconds_of
from quarterdeck.storage.reserve import Reserve

logger = logging.getLogger(__name__)

SEEN_SECONDS: Final = 60.0
"""`last_seen_at` is stored when it is older than this, to avoid a write per request."""
NAME_LENGTH: Final = 80

USER_AGENT_LENGTH: Final = 200
NETWORKS: Final = 1_000
"""Networks of one device that are remembered, to report a new one."""

DeviceSubscriber: TypeAlias = Callable[[DeviceEventKind, Device], None]


class DeviceConnection:
    """One open request or WebSocket of a device."""

    def __init__(self, seconds_left: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds_left)


class Devices:
    """All devices that are neither revoked nor expired."""

    def __init__(
        self,
        store: DeviceStore,
        key_store: DeviceKeyStore,
        *,
        now: Now = time.time,
        steady: Now | None = None,
        unused_seconds: float = UNUSED_SECONDS,
        reserve: Reserve | None = None,
    ) -> None:
        """`now` and `steady` are the clocks of `TrustedTime`.

        `reserve` holds revocations while the disk is full.
        """
        self._store = store
        self._key_store = key_store
        self._revocations = Revocations(store, reserve)
        self._time = TrustedTime(now, steady)
        self._now = self._time.now
        self._unused_seconds = unused_seconds or float("inf")
        self._devices: dict[str, Device] = {}
        self._ids: dict[bytes, str] = {}
        self._hashes: dict[str, set[bytes]] = {}  # two while a token is being renewed
        self._next: dict[str, bytes] = {}
        self._keys: dict[str, ec.EllipticCurvePublicKey] = {}
        self._live: dict[str, set[DeviceConnection]] = {}
        self._stored_seen: dict[str, float] = {}
        self._networks: dict[str, set[str]] = {}
        self._subscribers: list[DeviceSubscriber] = []

    def subscribe(self, subscriber: DeviceSubscriber) -> None:
        """Call `subscriber` for devices that are paired, seen at a new address, or recorded."""
        self._subscribers.append(subscriber)

    async def load(self) -> None:
        """Load the stored devices; the owner has no token, and one of an earlier version ends."""
        await self._revocations.load()
        stored = await self._store.load(digest(make_token()), iso_seconds(self._now()))
        keys = await self._key_store.load()
        self._networks = {
            device_id: set(map(_network_of, addresses))
            for device_id, addresses in stored.addresses.items()
        }
        for token_hash, next_hash, device in stored.devices:
            if device.id in self._revocations.unstored:
                continue
            if device.id in keys:
                self._add_with_key(device, keys[device.id])
                continue
            self._add(device, token_hash)
            if next_hash is not None:
                self._add_next(device.id, next_hash)

    async def authenticate(self, token: str, sighting: Sighting = UNKNOWN) -> Device | None:
        """Return the device of a token; None if there is none, or it has ended."""
        token_hash = digest(token)
        device = await self.seen(self._ids.get(token_hash, ""), sighting)
        if device is None:
            return None
        if self._next.get(device.id) == token_hash:
            await self._use_next(device.id)
        # It may have changed while that was stored.
        return self._devices.get(self._ids.get(token_hash, ""))

    def key(self, device_id: str) -> ec.EllipticCurvePublicKey | None:
        """Return the public key of a device; None if it has a token, or there is no such device."""
        return self._keys.get(device_id)

    def is_named(self, *, token: str | None, device_id: str | None) -> bool:
        """Return whether there is a device with this token, or a browser with this id."""
        if token is not None:
            return digest(token) in self._ids
        return device_id in self._keys

    async def seen(self, device_id: str, sighting: Sighting = UNKNOWN) -> Device | None:
        """Record a request of a device that has proved who it is; None if it has ended."""
        device = self._devices.get(device_id)
        if device is None:
            return None
        if self._has_expired(device):
            await self._expire(device)
            return None
        await self._record_sighting(device, sighting)
        return self._devices.get(device_id)

    def seconds_left(self, device: Device) -> float:
        if device.expires_at is None:
            return float("inf")
        return seconds_of(device.expires_at) - self._now()

    def _has_expired(self, device: Device) -> bool:
        """Whether it has reached its end, or was not seen for long."""
        if self.seconds_left(device) <= 0:
            return True
        if device.id == OWNER or self.live_count(device.id):
            return False
        seen = seconds_of(device.last_seen_at or device.created_at)
        return self._now() - seen > self._unused_seconds

    @property
    def all(self) -> list[Device]:
        """The devices that can connect, oldest first."""
        devices = (device for device in self._devices.values() if not self._has_expired(device))
        return sorted(devices, key=lambda device: (device.created_at, device.id))

    def get(self, device_id: str) -> Device | None:
        return self._devices.get(device_id)

    async def events(self) -> list[DeviceEvent]:
        """Return the newest events of the history, newest first."""
        return await self._store.events()

    async def record(self, what: DeviceEventKind, device: Device, detail: str | None) -> None:
        """Add an event about a device to the history, and report it to subscribers."""
        await self._store.record(replace(self._event(what, device), detail=detail))
        self._publish(what, device)

    async def create(
        self, name: str, scope: Scope, *, seconds: float | None = None
    ) -> tuple[Device, str]:
        """Create a device for a program; return it with its token, which is not stored."""
        now = self._now()
        device = Device(
            id=new_device_id(),
            name=clean_name(name) or "program",
            scope=scope,
            created_at=iso_seconds(now),
            expires_at=None if seconds is None else iso_seconds(now + seconds),
        )
        token = make_token()
        await self._store.add(device, digest(token))
        self.add(device, token)
        return device, token

    async def renew_token(self, device_id: str) -> str:
        """Return a new token for a device; the old one works until the new one is used."""
        token = make_token()
        next_hash = digest(token)
        await self._store.set_next_token(device_id, next_hash)
        self._add_next(device_id, next_hash)
        return token

    async def _use_next(self, device_id: str) -> None:
        """Replace the old token by the new one, and close what was opened with the old one."""
        device, next_hash = self._devices[device_id], self._next[device_id]
        event = self._event("token-renewed", device)
        await self._store.use_next_token(device_id, next_hash, event)
        if self._next.get(device_id) == next_hash:
            del self._next[device_id]
            for old in self._hashes[device_id] - {next_hash}:
                del self._ids[old]
            self._hashes[device_id] = {next_hash}
            self._close_connections(device_id)
            logger.info("token renewed", extra={"device": device_id})

    async def change(
        self,
        device_id: str,
        *,
        name: str | None = None,
        scope: Scope | None = None,
        machine_scopes: Mapping[str, Scope] | None = None,
    ) -> Device | None:
        """Change the name or the scopes of a device; smaller scopes close its connections."""
        stored = await self._store.change(
            device_id,
            name=name,
            scope=scope,
            machine_scopes=machine_scopes,
            at=iso_seconds(self._now()),
        )
        before = self.get(device_id)
        if stored is None or before is None:
            return None
        changed = replace(
            before, name=stored.name, scope=stored.scope, machine_scopes=stored.machine_scopes
        )
        self._devices[device_id] = changed
        if not changed.may(before.scope) or changed.machine_scopes != before.machine_scopes:
            self._close_connections(device_id)
        return changed

    async def revoke(self, device_id: str, *, except_for: DeviceConnection | None = None) -> bool:
        """Revoke a device and close its connections but one; return whether there was a device."""
        return await self._end(device_id, "revoked", except_for)

    def unstored_revocation(self, device_id: str) -> str | None:
        """Return what is wrong if the revocation of a device is not stored yet."""
        return self._revocations.problem(device_id)

    async def sweep(self) -> None:
        """Store when devices were last seen, and end those that have expired."""
        await self._revocations.retry()
        for device_id in tuple(self._devices):
            if self.live_count(device_id):
                self._touch(device_id)
            device = self._devices.get(
                device_id
            )  # it may have changed while another one was stored
            if device is None:
                continue
            if self._has_expired(device):
                await self._expire(device)
                continue
            seen = seconds_of(device.last_seen_at or device.created_at)
            if seen - self._stored_seen.get(device_id, seen) >= SEEN_SECONDS:
                await self._store_seen(device)

    async def _expire(self, device: Device) -> None:
        """End a device for good: a longer `unused_seconds` does not bring it back.

        Only if the clock can be trusted; until then the device is rejected.
        """
        if self._time.is_settled:
            await self._end(device.id, "expired")

    async def _end(
        self, device_id: str, what: DeviceEventKind, except_for: DeviceConnection | None = None
    ) -> bool:
        device = self._devices.pop(device_id, None)
        if device is None:
            return False
        for token_hash in self._hashes.pop(device_id, ()):
            del self._ids[token_hash]
        self._keys.pop(device_id, None)
        self._next.pop(device_id, None)
        self._close_connections(device_id, except_for)
        await self._revocations.add(self._event(what, device))
        logger.info("device %s", what, extra={"device": device_id})
        return True

    @contextmanager
    def connection(self, device: Device) -> Iterator[DeviceConnection]:
        """Register a connection, which is cancelled when the device is revoked or expires."""
        connection = DeviceConnection(self.seconds_left(device))
        live = self._live.setdefault(device.id, set())
        live.add(connection)
        try:
            if device.id not in self._devices:  # revoked since it was authenticated
                connection.scope.cancel()
            yield connection
        finally:
            live.discard(connection)
            self._touch(device.id)
            if not live and self._live.get(device.id) is live:
                del self._live[device.id]

    def _touch(self, device_id: str) -> None:
        """Set the time a connected device was last seen to now; the next sweep stores it."""
        device = self._devices.get(device_id)
        if device is not None:
            self._devices[device_id] = replace(device, last_seen_at=iso_seconds(self._now()))

    def live_count(self, device_id: str) -> int:
        """Return how many requests and WebSockets of a device are open."""
        return len(self._live.get(device_id, ()))

    def add(self, device: Device, token: str) -> None:
        """Add a device with a token that was just paired and stored."""
        self._add(device, digest(token))
        self._announce(device)

    def add_with_key(self, device: Device, key: bytes) -> None:
        """Add a device with a key that was just paired and stored."""
        self._add_with_key(device, key)
        self._announce(device)

    def _announce(self, device: Device) -> None:
        facts = {"device": device.id, "scope": device.scope, "address": device.last_address}
        logger.info("device paired", extra=facts)
        if device.last_address is not None:
            self._is_new_address(device.id, device.last_address)
        self._publish("paired", device)

    def _add(self, device: Device, token_hash: bytes) -> None:
        self._devices[device.id] = device
        self._ids[token_hash] = device.id
        self._hashes[device.id] = {token_hash}

    def _add_with_key(self, device: Device, key: bytes) -> None:
        self._devices[device.id] = device
        self._keys[device.id] = public_key(key)

    def _add_next(self, device_id: str, next_hash: bytes) -> None:
        before = self._next.get(device_id)
        if before is not None:  # never used
            self._hashes[device_id].discard(before)
            del self._ids[before]
        self._next[device_id] = next_hash
        self._ids[next_hash] = device_id
        self._hashes[device_id].add(next_hash)

    def _event(self, what: DeviceEventKind, device: Device) -> DeviceEvent:
        return event_of(what, device, iso_seconds(self._now()))

    def _publish(self, what: DeviceEventKind, device: Device) -> None:
        for subscriber in self._subscribers:
            subscriber(what, device)

    def _close_connections(
        self, device_id: str, except_for: DeviceConnection | None = None
    ) -> None:
        for connection in self._live.get(device_id, set()) - {except_for}:
            connection.scope.cancel()

    async def _record_sighting(self, device: Device, sighting: Sighting) -> None:
        now = self._now()
        seen = replace(
            device,
            last_seen_at=iso_seconds(now),
            last_address=sighting.address or device.last_address,
            user_agent=sighting.user_agent or device.user_agent,
        )
        self._devices[device.id] = seen
        is_new = self._is_new_address(device.id, sighting.address)
        if now - self._stored_seen.get(device.id, 0.0) < SEEN_SECONDS and not is_new:
            return
        await self._store_seen(seen, self._event("new-address", seen) if is_new else None)
        if is_new:
            facts = {"device": device.id, "address": sighting.address}
            logger.info("device seen at a new address", extra=facts)
            self._publish("new-address", seen)

    async def _store_seen(self, device: Device, event: DeviceEvent | None = None) -> None:
        self._stored_seen[device.id] = self._now()
        try:
            await self._store.note_seen(device, event)
        except DatabaseFailed as error:  # a full disk must not lock out every device
            logger.warning("last seen was not stored", extra={"reason": str(error)})

    def _is_new_address(self, device_id: str, address: str | None) -> bool:
        """Whether a device was in another network before; at most `NETWORKS` are remembered."""
        known = self._networks.setdefault(device_id, set())
        if address is None or _network_of(address) in known:
            return False
        if len(known) >= NETWORKS:
            known.clear()
        known.add(_network_of(address))
        return True


def _network_of(address: str) -> str:
    """Return what counts as one place; a program can use any of 16 million loopback addresses."""
    return LOOPBACK if is_loopback(address) else network_of(address)


def new_device_id() -> str:
    return f"dev_{secrets.token_hex(8)}"


def clean_name(name: str, length: int = NAME_LENGTH) -> str:
    """Return a device's name on one line, without control characters."""
    plain = "".join(each if each.isprintable() else " " for each in name)
    return " ".join(plain.split())[:length].strip()


def sighting_of(scope: AsgiScope) -> Sighting:
    """Return the address and the User-Agent of a request."""
    client = scope.get("client")
    agents = [value for name, value in scope["headers"] if name.lower() == b"user-agent"]
    user_agent = clean_name(agents[0].decode("latin-1"), USER_AGENT_LENGTH) if agents else ""
    return Sighting(address=client[0] if client else None, user_agent=user_agent or None)

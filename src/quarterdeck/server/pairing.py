"""Pairing: a new device joins with a code that works once, for a short time.

A pairing has two codes. The short one is read from a screen and typed; the long one travels in a
link or a QR code and cannot be guessed. The store has only their hashes.

Wrong, used, cancelled and expired codes get the same answer.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Final

from quarterdeck.protocol.timestamps import Now, iso_seconds
from quarterdeck.server.attempts import Attempts, Budget
from quarterdeck.server.device import Device, Scope
from quarterdeck.server.device_log import Sighting
from quarterdeck.server.devices import Devices, clean_name, new_device_id
from quarterdeck.server.pairing_store import Pairing, PairingSecrets, PairingStore
from quarterdeck.server.secrets import digest, make_token

LIFETIME_SECONDS: Final = 600.0
LONGEST_SECONDS: Final = 86_400.0
SHORT_LENGTH: Final = 8
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without 0, 1, I, L, O and U: 30 characters, so eight of them are one of 6.5 * 10^11 codes."""
_LONG_LENGTH: Final = 43
_EACH: Final = Budget(tries=10, seconds=30)
_TOGETHER: Final = Budget(tries=50, seconds=10)
"""At most 110 guesses in the ten minutes of a code: the odds are 1 in 6 * 10^9."""


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

    def __init__(self, store: PairingStore, devices: Devices, *, now: Now = time.time) -> None:
        self._store = store
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
        """Make a pairing for one device, which expires after `device_seconds` if they are given."""
        now = self._now()
        pairing = Pairing(
            id=f"pair_{secrets.token_hex(8)}",
            name=clean_name(name) or "new device",
            scope=scope,
            created_at=iso_seconds(now),
            expires_at=iso_seconds(now + seconds),
        )
        short = "".join(secrets.choice(ALPHABET) for _ in range(SHORT_LENGTH))
        long = secrets.token_urlsafe(32)
        stored = PairingSecrets(
            short_hash=digest(short),
            long_hash=digest(long),
            expires=now + seconds,
            device_seconds=device_seconds,
        )
        await self._store.add(pairing, stored, now)
        return pairing, Codes(f"{short[:4]}-{short[4:]}", long)

    async def open_ones(self) -> list[Pairing]:
        """Return those that can still be used."""
        return await self._store.usable(self._now())

    async def cancel(self, pairing_id: str) -> bool:
        """Cancel a pairing; return whether it could still be used."""
        return await self._store.cancel(pairing_id, self._now())

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
        token = make_token()
        device = await self._store.use(
            code_hash,
            self._now(),
            device_id=new_device_id(),
            name=name,
            sighting=sighting,
            token_hash=digest(token),
        )
        return None if device is None else Paired(device, token)


def canonical(code: str) -> str:
    """Return a code as it was made: people type lower case, blanks and dashes."""
    plain = code.strip()
    if len(plain) == _LONG_LENGTH:
        return plain
    return "".join(plain.replace("-", "").split()).upper()

"""Pairing: a new device gets a token with a code that works once, for a short time.

    pairing   created by a device with scope admin, or by `quarterdeck up`
    codes     a short one to type (XXXX-XXXX), a long one for a link or a QR code
    use       POST /api/pair with either code: the pairing is used up, the device has its token,
              or, if it is a browser, has registered its key

Codes end with the hub: a program that takes the port of a stopped hub may be sent one, and could
use it when the hub is back. A hub that replaces itself and keeps its sockets keeps them.

Only hashes of the codes are stored. Wrong, used, cancelled and expired codes get the same error, so
a response does not reveal whether a code was ever valid.

The long code has 256 random bits and cannot be guessed. The short one has 30^8 values, so attempts
are limited by token buckets: one per address (an IPv6 /64 counts as one address) and one for all
addresses together, which a botnet cannot multiply. An attempt is paid for before the code is
checked, and refunded if it was right; fifty concurrent requests therefore cannot exceed the budget.
A long code that is valid is never refused, and wrong ones are charged to buckets of their own:
wrong codes, also from the same address (a proxy, a shared network), cannot keep others from pairing
by link. Buckets are kept for the last few thousand addresses; an address that was dropped
starts with a full bucket, and the shared one still holds.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from io import StringIO
from typing import Final

import segno

from quarterdeck.http.fair_listener import network_of
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.auth.devices import Devices, clean_name, new_device_id
from quarterdeck.hub.auth.pairing_store import NewCredential, Pairing, PairingSecrets, PairingStore
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.protocol.timestamps import Now, iso_seconds

LIFETIME_SECONDS: Final = 600.0
LONGEST_SECONDS: Final = 86_400.0
SHORT_LENGTH: Final = 8
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without 0, 1, I, L, O and U; eight of the 30 characters make 6.5 * 10^11 codes."""
_LONG_LENGTH: Final = 43

# ---- attempts ----------------------------------------------------------------------------------

_KNOWN_ADDRESSES: Final = 4_096


@dataclass(frozen=True)
class Budget:
    """A token bucket: its size, and the seconds until one attempt is refilled."""

    attempts: int
    seconds: float


_PER_ADDRESS: Final = Budget(attempts=10, seconds=30)
_SHARED: Final = Budget(attempts=50, seconds=10)
"""At most 110 guesses in the ten minutes of a code: a chance of 1 in 6 * 10^9."""


class _Bucket:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spent = 0.0
        self._at = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until an attempt is available."""
        refilled = max(0.0, now - self._at) / self._budget.seconds
        self._spent, self._at = max(0.0, self._spent - refilled), now
        return max(0.0, self._spent - self._budget.attempts + 1) * self._budget.seconds

    def spend(self) -> None:
        self._spent += 1

    def refund(self) -> None:
        self._spent = max(0.0, self._spent - 1)


class Attempts:
    """The budgets of attempts to guess a code. Pure: the caller passes the time in."""

    def __init__(self, per_address: Budget, shared: Budget) -> None:
        self._per_address = per_address
        self._addresses: OrderedDict[tuple[str, bool], _Bucket] = OrderedDict()
        self._shared = _Bucket(shared)

    def take(self, address: str, now: float, *, is_guessable: bool) -> float:
        """Pay for an attempt and return 0; or pay nothing and return the seconds to wait."""
        bucket = self._bucket(address, is_guessable=is_guessable)
        wait = bucket.wait(now)
        if is_guessable:
            wait = max(wait, self._shared.wait(now))
        if wait > 0:
            return wait
        bucket.spend()
        if is_guessable:
            self._shared.spend()
        return 0.0

    def refund(self, address: str, *, is_guessable: bool) -> None:
        """Refund an attempt whose code was right."""
        self._bucket(address, is_guessable=is_guessable).refund()
        if is_guessable:
            self._shared.refund()

    def _bucket(self, address: str, *, is_guessable: bool) -> _Bucket:
        key = (network_of(address), is_guessable)
        bucket = self._addresses.setdefault(key, _Bucket(self._per_address))
        self._addresses.move_to_end(key)
        if len(self._addresses) > _KNOWN_ADDRESSES:
            self._addresses.popitem(last=False)
        return bucket


# ---- pairings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Codes:
    """The codes of a pairing, returned once, to the device that created it."""

    short: str
    """In the form XXXX-XXXX."""
    long: str


@dataclass(frozen=True)
class Paired:
    """A device that was just paired, and its token, which is returned only once."""

    device: Device
    token: str | None
    """None for a device with a key."""


@dataclass(frozen=True)
class TooManyAttempts:
    """Too many wrong codes; this one was not checked."""

    seconds: float


class Pairings:
    """All pairings of a hub."""

    def __init__(self, store: PairingStore, devices: Devices, *, now: Now = time.time) -> None:
        self._store = store
        self._devices = devices
        self._now = now
        self._attempts = Attempts(_PER_ADDRESS, _SHARED)
        self._links: dict[bytes, float] = {}
        """Hashes of long codes that were made by this process, and when they expire."""

    async def create(
        self,
        *,
        scope: Scope,
        name: str = "",
        seconds: float = LIFETIME_SECONDS,
        device_seconds: float | None = None,
    ) -> tuple[Pairing, Codes]:
        """Create a pairing for one device, which expires after `device_seconds` if given."""
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
        self._links = {each: expires for each, expires in self._links.items() if expires > now}
        self._links[stored.long_hash] = stored.expires
        return pairing, Codes(f"{short[:4]}-{short[4:]}", long)

    async def usable(self) -> list[Pairing]:
        """Return the pairings that can still be used."""
        return await self._store.usable(self._now())

    async def cancel(self, pairing_id: str) -> bool:
        """Cancel a pairing; return whether it could still be used."""
        return await self._store.cancel(pairing_id, self._now())

    async def end_all(self) -> None:
        """End the codes of an earlier start of the hub."""
        await self._store.cancel_all(self._now())

    async def pair(
        self,
        code: str,
        *,
        name: str,
        address: str,
        user_agent: str | None = None,
        key: bytes | None = None,
    ) -> Paired | TooManyAttempts | None:
        """Use a code; return None if it is not valid, for whatever reason.

        With a public `key` the device gets no token: it signs its requests.
        """
        code = canonical(code)
        sighting = Sighting(address or None, user_agent)
        if digest(code) in self._links:
            paired = await self._use(digest(code), clean_name(name), sighting, key)
            self._links.pop(digest(code), None)
            return paired
        is_guessable = len(code) != _LONG_LENGTH
        wait = self._attempts.take(address, self._now(), is_guessable=is_guessable)
        if wait > 0:
            return TooManyAttempts(wait)
        paired = await self._use(digest(code), clean_name(name), sighting, key)
        if paired is not None:
            self._attempts.refund(address, is_guessable=is_guessable)
        return paired

    async def _use(
        self, code_hash: bytes, name: str, sighting: Sighting, key: bytes | None
    ) -> Paired | None:
        token = make_token()  # a device with a key never learns it
        device = await self._store.use(
            code_hash,
            self._now(),
            device_id=new_device_id(),
            name=name,
            sighting=sighting,
            credential=NewCredential(token_hash=digest(token), key=key),
        )
        if device is None:
            return None
        if key is not None:
            self._devices.add_with_key(device, key)
            return Paired(device, None)
        self._devices.add(device, token)
        return Paired(device, token)


def canonical(code: str) -> str:
    """Return a code as it was created: people type lower case, spaces and dashes."""
    plain = code.strip()
    if len(plain) == _LONG_LENGTH:
        return plain
    return "".join(plain.replace("-", "").split()).upper()


# ---- link and QR code --------------------------------------------------------------------------

_QUIET: Final = 2  # modules around the code; the standard has four, phones read two
_HALVES: Final = {
    (True, True): "█",
    (True, False): "▀",
    (False, True): "▄",
    (False, False): " ",
}


def pairing_link(origin: str, long_code: str, pin: str | None = None) -> str:
    """Return the link that pairs a browser.

    The code is in the fragment, which browsers do not send: it is in no request, log or Referer.
    The page sends it in a body and removes it from the address. The `pin` of the hub's own
    certificate is for programs, which accept no other certificate then.
    """
    return f"{origin}/#pair={long_code}" + ("" if pin is None else f"&pin={pin}")


@dataclass(frozen=True)
class PairingLink:
    """A pairing link, taken apart."""

    origin: str
    code: str
    pin: str | None


def read_pairing_link(link: str) -> PairingLink | None:
    """Take a pairing link apart; return None if it is none."""
    origin, _, fragment = link.strip().partition("#")
    values = dict(each.partition("=")[::2] for each in fragment.split("&"))
    if not origin.startswith(("http://", "https://")) or not values.get("pair"):
        return None
    return PairingLink(origin.rstrip("/"), values["pair"], values.get("pin") or None)


def qr_text(link: str) -> str:
    """Return the link as a QR code of half blocks, two rows per line.

    Light modules are drawn, dark ones are left blank: correct on a dark terminal, inverted on a
    light one, which phones read too.
    """
    rows = [bytes(row) for row in segno.make_qr(link, error="l").matrix_iter(border=_QUIET)]
    if len(rows) % 2:
        rows.append(bytes(len(rows[0])))
    text = StringIO()
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        line = (_HALVES[not top, not bottom] for top, bottom in zip(upper, lower, strict=True))
        text.write("".join(line) + "\n")
    return text.getvalue()

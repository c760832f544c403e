"""Pairing: a new device joins with a code that works once, for a short time.

A pairing has two codes. The short one is read from a screen and typed; the long one travels in a
link or a QR code and cannot be guessed. The store has only their hashes.

Wrong, used, cancelled and expired codes get the same answer.

How a pairing is shown: a link, and the link as a QR code for a terminal.

How often codes may be tried: a budget for each address, and one for all of them together.

Pure: the caller tells the time. An address that is not known has a full budget, so forgetting one
when there are too many gives it new tries; the budget of all together still holds then.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from io import StringIO
from typing import Final

import segno

from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.auth.devices import Devices, clean_name, new_device_id
from quarterdeck.hub.auth.pairing_store import Pairing, PairingSecrets, PairingStore
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.protocol.timestamps import Now, iso_seconds

_KNOWN_ADDRESSES: Final = 4_096
_IPV6_NETWORK: Final = 64  # what one customer of a provider has to choose addresses from


@dataclass(frozen=True)
class Budget:
    """So many tries at once, and a new one after some seconds."""

    tries: int
    seconds: float


class _Bucket:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._spent = 0.0
        self._at = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until there is a try to spend."""
        refilled = max(0.0, now - self._at) / self._budget.seconds
        self._spent, self._at = max(0.0, self._spent - refilled), now
        return max(0.0, self._spent - self._budget.tries + 1) * self._budget.seconds

    def spend(self) -> None:
        self._spent += 1

    def give_back(self) -> None:
        self._spent = max(0.0, self._spent - 1)


class Attempts:
    """Tries that are paid for before the code is looked at, and given back if it was right."""

    def __init__(self, each: Budget, together: Budget) -> None:
        self._each = each
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()
        self._together = _Bucket(together)

    def take(self, address: str, now: float, *, is_guessable: bool) -> float:
        """Pay for a try; return 0, or the seconds to wait, with nothing paid.

        What cannot be guessed does not count for all together: nobody can keep others from
        pairing with the long code by trying short ones.
        """
        bucket = self._bucket(address)
        wait = bucket.wait(now)
        if is_guessable:
            wait = max(wait, self._together.wait(now))
        if wait > 0:
            return wait
        bucket.spend()
        if is_guessable:
            self._together.spend()
        return 0.0

    def give_back(self, address: str, *, is_guessable: bool) -> None:
        """The code was right."""
        self._bucket(address).give_back()
        if is_guessable:
            self._together.give_back()

    def _bucket(self, address: str) -> _Bucket:
        key = _network(address)
        bucket = self._addresses.setdefault(key, _Bucket(self._each))
        self._addresses.move_to_end(key)
        if len(self._addresses) > _KNOWN_ADDRESSES:
            self._addresses.popitem(last=False)
        return bucket


def _network(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, _IPV6_NETWORK), strict=False))
    return str(ip)


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


_QUIET: Final = 2  # modules around the code; four by the book, two are read by every phone


def pairing_link(origin: str, long_code: str) -> str:
    """Return the link that lets a browser in.

    The code is behind "#": browsers keep that part to themselves, so it is in no request, no log
    and no Referer; the page sends it as a body and takes it out of the address.
    """
    return f"{origin}/#pair={long_code}"


def qr_text(link: str) -> str:
    """Return the link as a QR code made of half blocks, two rows of it to a line.

    Light modules are drawn and dark ones left out: that is right on a dark terminal, and phones
    read the inverse that a light one shows.
    """
    rows = [bytes(row) for row in segno.make_qr(link, error="l").matrix_iter(border=_QUIET)]
    if len(rows) % 2:
        rows.append(bytes(len(rows[0])))
    text = StringIO()
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        line = (_HALVES[not top, not bottom] for top, bottom in zip(upper, lower, strict=True))
        text.write("".join(line) + "\n")
    return text.getvalue()


_HALVES: Final = {
    (True, True): "█",
    (True, False): "▀",
    (False, True): "▄",
    (False, False): " ",
}

"""How often codes may be tried: a budget for each address, and one for all of them together.

Pure: the caller tells the time. An address that is not known has a full budget, so forgetting one
when there are too many gives it new tries; the budget of all together still holds then.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

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

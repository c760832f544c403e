"""What one relay, one hub and one address may have of a relay.

Each limit has a rule for "full": a relay closes what exceeds it, and nothing else suffers.

    undecided     connections that have not sent a whole hello: the oldest one is closed, of the
                  same address if that has more than its share. A hub or a phone sends its first
                  bytes at once, so it is not the one that is closed.
    of an address more open connections than its share: the new one is closed
                  More new connections than its rate: the new one is closed.
    of a hub      more clients than its share, or too many new ones at once: the new one is closed;
                  more bytes than its share: its clients are read more slowly
    of the relay  more connections than there are files: the new one is closed
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_ADDRESSES: Final = 4_096


@dataclass(frozen=True, kw_only=True)
class RelayLimits:
    """The limits of a relay; the defaults suit a small server and some hundred hubs."""

    hubs: int = 2_048
    connections: int = 16_384
    """Of all clients and hubs together."""
    undecided: int = 512
    undecided_per_address: int = 64
    connections_per_address: int = 512
    """Many phones share one address of their provider."""
    hubs_per_address: int = 64
    clients_per_hub: int = 256
    waiting_per_hub: int = 64
    """Clients that wait until the hub takes them."""
    new_per_second: float = 50.0
    """New clients of one hub."""
    new_per_address: float = 15.0
    """New clients of one address, per second: some addresses must not use up a hub's share."""
    bytes_per_second: float = 32 << 20
    """Of one hub, both directions together."""
    hello_seconds: float = 10.0
    """From connecting to the end of the hello."""
    take_seconds: float = 10.0
    """For a hub to take a client."""
    away_seconds: float = 8.0
    """For a hub that was just connected to come back, while its clients wait."""


class Budget:
    """An allowance that refills over time, such as bytes per second; it can be overdrawn."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, *, seconds: float = 2.0) -> None:
        """Allow `rate` per second, and as much at once as `seconds` bring."""
        self._rate = rate
        self._most = self._left = rate * seconds
        self._at = 0.0

    def spend(self, amount: float, now: float) -> float:
        """Spend it; return the seconds until the budget is not overdrawn, 0.0 if it is not now."""
        self._refill(now)
        self._left -= amount
        return -self._left / self._rate if self._left < 0 else 0.0

    def admits(self, now: float) -> bool:
        """Spend one, if there is one; what is refused costs nothing."""
        self._refill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _refill(self, now: float) -> None:
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now


_T = TypeVar("_T")


class Undecided(Generic[_T]):
    """Connections of which it is not known yet what they are, by address, oldest first."""

    def __init__(self, most: int, most_of_address: int) -> None:
        self._most = most
        self._most_of_address = most_of_address
        self._all: dict[_T, str] = {}
        self._by_address: dict[str, dict[_T, None]] = {}

    def add(self, connection: _T, address: str) -> _T | None:
        """Add one; return another one that has to be closed for it."""
        self._all[connection] = address
        of_address = self._by_address.setdefault(address, {})
        of_address[connection] = None
        if len(of_address) > self._most_of_address:
            return next(iter(of_address))
        return next(iter(self._all)) if len(self._all) > self._most else None

    def discard(self, connection: _T) -> None:
        address = self._all.pop(connection, None)
        if address is not None:
            of_address = self._by_address[address]
            del of_address[connection]
            if not of_address:
                del self._by_address[address]

    def __len__(self) -> int:
        return len(self._all)


class AddressBudgets:
    """A budget for each of the last few thousand addresses."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._budgets: OrderedDict[str, Budget] = OrderedDict()

    def admits(self, address: str, now: float) -> bool:
        """Spend one of an address; return whether it could."""
        budget = self._budgets.pop(address, None) or Budget(self._rate)
        self._budgets[address] = budget
        if len(self._budgets) > _ADDRESSES:
            self._budgets.popitem(last=False)
        return budget.admits(now)


class Shares:
    """How many things each address has."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Take one more, if the address may have it."""
        if self._counts[address] >= self._most:
            return False
        self._counts[address] += 1
        return True

    def give_back(self, address: str) -> None:
        self._counts[address] -= 1
        if self._counts[address] <= 0:
            del self._counts[address]

"""Two connections whose bytes pass to each other, with the back-pressure of TCP.

The hot path of a relay: one call for each segment that arrives. A side that reads slowly makes the
other one's transport pause, so that a relay buffers at most what asyncio buffers for one write.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from typing_extensions import override

from quarterdeck.relay.limits import Budget

_HALF_CLOSED_SECONDS: Final = 60.0
"""For the other direction, after one side has sent everything."""
_LAST_SECONDS: Final = 30.0


class Joinable(Protocol):
    """A connection that is to be joined; its old protocol learns when it is lost."""

    transport: asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None: ...


class HubTraffic:
    """What all joined connections of one hub have in common."""

    __slots__ = ("budget",)

    def __init__(self, budget: Budget) -> None:
        self.budget = budget


class _Side(asyncio.Protocol):
    """One of two joined connections."""

    other: _Side

    def __init__(self, origin: Joinable, traffic: HubTraffic) -> None:
        self.transport = origin.transport
        self._origin = origin
        self._budget = traffic.budget
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._is_full = False
        """Whether the other side has to read first."""
        self._has_ended = False

    @override
    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)
        seconds = self._budget.spend(len(data), self._loop.time())
        if seconds and self._pause is None:
            self.transport.pause_reading()
            self._pause = self._loop.call_later(seconds, self._on_budget)

    def _on_budget(self) -> None:
        self._pause = None
        self._read_again()

    def _read_again(self) -> None:
        if self._pause is None and not self._is_full and not self.transport.is_closing():
            self.transport.resume_reading()

    @override
    def pause_writing(self) -> None:
        other = self.other
        other._is_full = True  # noqa: SLF001 - of the same pair
        if not other.transport.is_closing():
            other.transport.pause_reading()

    @override
    def resume_writing(self) -> None:
        other = self.other
        other._is_full = False  # noqa: SLF001 - of the same pair
        other._read_again()  # noqa: SLF001 - of the same pair

    @override
    def eof_received(self) -> bool:
        self._has_ended = True
        other = self.other
        if other._has_ended or other.transport.is_closing():  # noqa: SLF001 - of the same pair
            return False  # both directions have ended: asyncio closes it
        other.transport.write_eof()
        self._loop.call_later(_HALF_CLOSED_SECONDS, self.transport.close)
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._pause is not None:
            self._pause.cancel()
        other = self.other.transport
        if not other.is_closing():
            other.close()
            # One that does not read its last bytes must not keep them here.
            self._loop.call_later(_LAST_SECONDS, other.abort)
        self._origin.connection_lost(exc)


def join(first: Joinable, second: Joinable, traffic: HubTraffic) -> None:
    """Pass the bytes of each to the other from now on."""
    one, two = _Side(first, traffic), _Side(second, traffic)
    one.other, two.other = two, one
    first.transport.set_protocol(one)
    second.transport.set_protocol(two)

"""One timer for all streams of a server: keeps quiet ones alive, closes those that do not read.

Proxies and phones drop connections that carry nothing for a while, so a stream that has sent
nothing for `quiet_ticks` ticks is woken to send a comment. A stream whose write has waited for its
client for `stalled_ticks` ticks is cancelled: its events are in a log, from which the client can
resume.

The timer is shared because one for each write would cost as much as the write: a tick is an
addition for each connection, and a write sets one attribute.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

TICK_SECONDS: Final = 5.0
QUIET_TICKS: Final = 2  # the next tick finds it quiet for 10 to 15 seconds
STALLED_TICKS: Final = 12  # a minute


class LiveConnection:
    """One stream: sleeps until it has something to send, is cancelled when it is stuck."""

    __slots__ = ("_future", "_is_due", "is_stuck", "quiet", "scope", "server_ends", "stalled")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.quiet = 0
        """For how many ticks nothing was sent."""
        self.stalled: int | None = None
        """For how many ticks a write has been waiting."""
        self.is_stuck = False
        """Whether it was cancelled because its client does not read."""
        self.server_ends = False
        """Whether it was cancelled because the server ends."""
        self._future: asyncio.Future[None] | None = None
        self._is_due = False

    def wake(self) -> None:
        self._is_due = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until woken; a wake-up since the last return counts."""
        if not self._is_due:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._is_due = False

    def end(self) -> None:
        """Cancel it because the server ends."""
        self.server_ends = True
        self.scope.cancel()


class KeepAlive:
    """The timer; it runs while there is a connection."""

    def __init__(
        self,
        tick_seconds: float = TICK_SECONDS,
        *,
        quiet_ticks: int = QUIET_TICKS,
        stalled_ticks: int | None = STALLED_TICKS,
    ) -> None:
        """Tick for connections; None never cancels one whose client does not read."""
        self.tick_seconds = tick_seconds
        self.quiet_ticks = quiet_ticks
        self.stalled_ticks = stalled_ticks
        self._connections: set[LiveConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: LiveConnection) -> None:
        self._connections.add(connection)
        if self._has_ended:
            connection.end()
        if self._timer is None:
            self._schedule()

    def remove(self, connection: LiveConnection) -> None:
        self._connections.discard(connection)
        if not self._connections and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def is_quiet(self, connection: LiveConnection) -> bool:
        """Return whether a comment is due."""
        return connection.quiet >= self.quiet_ticks

    def end(self) -> None:
        """Cancel every connection, and each that is added later: the server ends."""
        self._has_ended = True
        for connection in tuple(self._connections):
            connection.end()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick_seconds, self._tick)

    def _tick(self) -> None:
        self._schedule()
        for connection in tuple(self._connections):
            self._tick_one(connection)

    def _tick_one(self, connection: LiveConnection) -> None:
        connection.quiet += 1
        if connection.stalled is None:
            if self.is_quiet(connection):
                connection.wake()
            return
        connection.stalled += 1
        if self.stalled_ticks is not None and connection.stalled > self.stalled_ticks:
            connection.is_stuck = True
            connection.scope.cancel()

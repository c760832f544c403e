"""One timer for all connections: who says nothing is kept alive, who takes nothing is let go.

A timer for each write would cost as much as the write.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

TICK_SECONDS: Final = 5.0
QUIET_TICKS: Final = (
    2  # without a word: the next is a sign of life, 10 to 15 seconds after the last
)
STALLED_TICKS: Final = 12  # that a write may wait for its reader: a minute


class Follower:
    """One connection: sleeps until there is something to do, and is dropped if it is stuck."""

    __slots__ = ("_future", "_is_due", "dismissed", "dropped", "quiet", "scope", "stalled")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.quiet = 0
        self.stalled: int | None = None
        """For how many ticks a write has been waiting."""
        self.dropped = False
        """Whether it was let go because it did not take what it was sent."""
        self.dismissed = False
        """Whether it was let go because the hub ends."""
        self._future: asyncio.Future[None] | None = None
        self._is_due = False

    def wake(self) -> None:
        self._is_due = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Sleep until woken, since the last time this returned."""
        if not self._is_due:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._is_due = False

    @property
    def is_too_quiet(self) -> bool:
        """Whether it is time for a sign of life."""
        return self.quiet >= QUIET_TICKS

    def dismiss(self) -> None:
        self.dismissed = True
        self.scope.cancel()

    def tick(self) -> None:
        self.quiet += 1
        if self.stalled is not None:
            self.stalled += 1
            if self.stalled > STALLED_TICKS:
                self.dropped = True
                self.scope.cancel()
        elif self.quiet >= QUIET_TICKS:
            self.wake()


class Pulse:
    """Ticks while somebody follows."""

    def __init__(self, tick_seconds: float = TICK_SECONDS) -> None:
        self.tick_seconds = tick_seconds
        self._followers: set[Follower] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, follower: Follower) -> None:
        self._followers.add(follower)
        if self._has_ended:
            follower.dismiss()
        if self._timer is None:
            self._schedule()

    def remove(self, follower: Follower) -> None:
        self._followers.discard(follower)
        if not self._followers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Let everybody go, also who comes yet: the hub ends."""
        self._has_ended = True
        for follower in tuple(self._followers):
            follower.dismiss()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick_seconds, self._tick)

    def _tick(self) -> None:
        self._schedule()
        for follower in tuple(self._followers):
            follower.tick()

"""What was sent to one client, numbered, as far back as it is kept. No input or output.

kept        the newest messages up to both limits, taken by a reader or not: a message that was
            written to a socket may still have been lost with it
taken       what the current reader has been given
behind      half of what may be kept waits to be taken; senders wait then, for a while
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

_BATCH: Final = 64 * 1024  # bytes that a reader is given at once


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept for a client."""

    messages: int = 100_000
    # More than the kernel holds of a connection (4 MiB to send, 6 MiB received): all of it may be
    # lost when the connection breaks.
    size: int = 16 * 1024 * 1024


class EventBuffer:
    """Messages of one client, numbered from 1."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._events: dict[int, tuple[bytes, int]] = {}  # number → message, size up to its end
        self._first = 1
        self._next = 1
        self._size_put = 0  # of all there ever were
        self._size_dropped = 0
        self._size_taken = 0
        self.position = 1
        """The next number a reader is given."""
        self._changed = anyio.Event()

    @property
    def first(self) -> int:
        """The number of the oldest message that is kept."""
        return self._first

    @property
    def last(self) -> int:
        """The number of the newest message."""
        return self._next - 1

    @property
    def is_behind(self) -> bool:
        waiting = self._next - self.position
        size = self._size_put - self._size_taken
        return waiting * 2 >= self._limits.messages or size * 2 >= self._limits.size

    def put(self, message: bytes) -> None:
        """Add a message; the oldest go if there are too many."""
        self._size_put += len(message)
        self._events[self._next] = (message, self._size_put)
        self._next += 1
        while self._is_too_much():
            _, self._size_dropped = self._events.pop(self._first)
            self._first += 1
        self.wake()

    def seek(self, position: int) -> int:
        """Give the next reader what comes from `position` on; return how many were dropped."""
        dropped = max(0, self._first - position)
        self.position = min(max(position, self._first), self._next)
        before = self._events.get(self.position - 1)
        self._size_taken = self._size_dropped if before is None else before[1]
        return dropped

    def take(self) -> list[tuple[int, bytes]]:
        """Give the reader what comes next, a batch at a time; nothing if it has all.

        A reader that was overtaken by the limits has to `seek` first.
        """
        taken: list[tuple[int, bytes]] = []
        size = 0
        while self.position < self._next and size < _BATCH:
            message, self._size_taken = self._events[self.position]
            taken.append((self.position, message))
            size += len(message)
            self.position += 1
        if taken:
            self.wake()
        return taken

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    def _is_too_much(self) -> bool:
        count = self._next - self._first
        if count <= 1:
            return False
        is_heavy = self._size_put - self._size_dropped > self._limits.size
        return count > self._limits.messages or is_heavy

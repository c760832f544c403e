"""Messages to be written: in order, bounded, many to one write.

A sender that can wait awaits `room` before `put`, so the outbox exceeds `high_water` by at most one
message per sender. `put` itself never waits, for senders that cannot.
"""

from __future__ import annotations

import anyio

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire.framing import Framing, frame

HIGH_WATER = 1024 * 1024  # bytes; beyond it senders wait for the peer to read


class Outbox:
    """The messages between senders and the writer.

    After `fail`, `put` raises `ConnectionClosed` with the reason.
    """

    def __init__(self, *, high_water: int = HIGH_WATER) -> None:
        self.framing = Framing.LINES
        self._high_water = high_water
        self._messages: list[bytes] = []
        self._size = 0
        self._filled = anyio.Event()
        self._emptied = anyio.Event()
        self._failure: Exception | None = None
        self._is_ending = False

    @property
    def is_full(self) -> bool:
        return self._size >= self._high_water

    @property
    def size(self) -> int:
        """Bytes that wait for the writer."""
        return self._size

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def put(self, payload: bytes) -> None:
        """Add one encoded message and wake the writer."""
        self.add(payload)
        self._filled.set()

    def add(self, payload: bytes) -> None:
        """Add one encoded message without waking the writer; the caller calls `take_now` next."""
        if self._failure is not None:
            raise ConnectionClosed(str(self._failure))
        self._messages.append(frame(payload, self.framing))
        self._size += len(payload)

    def put_back(self, rest: bytes) -> None:
        """Return unwritten bytes to the front."""
        self._messages.insert(0, rest)
        self._size += len(rest)
        self._filled.set()

    async def room(self) -> None:
        """Wait until there is room for a message."""
        # Checked again after each wake-up: of a hundred senders only as many continue as fit.
        while self.is_full and self._failure is None:
            await self._emptied.wait()

    async def take(self) -> bytes:
        """Wait for messages and return all of them; `b""` after `end` once all are taken."""
        while not self._messages:
            if self._is_ending or self._failure is not None:
                return b""
            self._filled = anyio.Event()
            await self._filled.wait()
        return self.take_now()

    def take_now(self) -> bytes:
        """Return all messages as one piece to write."""
        data = b"".join(self._messages)
        self._messages.clear()
        if self.is_full:
            self._emptied.set()
            self._emptied = anyio.Event()
        self._size = 0
        return data

    def end(self) -> None:
        """Stop the writer once it has taken what is left."""
        self._is_ending = True
        self._filled.set()

    def fail(self, failure: Exception) -> None:
        """Drop what waits and wake the writer and all senders: the peer no longer reads."""
        self._failure = failure  # a later one has a better reason
        self._messages.clear()
        self._size = 0
        self._filled.set()
        self._emptied.set()

"""What is to be written, in order, bounded, and many messages to one write."""

from __future__ import annotations

import anyio

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire.framing import Framing, frame

HIGH_WATER = 1024 * 1024  # senders wait beyond this; a peer that does not read costs us no more


class Outbox:
    """Messages on their way to the writer.

    `put` never waits and never refuses; whoever can wait calls `room` first. After `fail` it raises
    `ConnectionClosed` with the reason that `fail` was given.
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
        """Bytes that wait to be taken."""
        return self._size

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def put(self, payload: bytes) -> None:
        """Add one encoded message and wake the writer."""
        self.add(payload)
        self._filled.set()

    def add(self, payload: bytes) -> None:
        """Add one encoded message for somebody who calls `take_now` right after."""
        if self._failure is not None:
            raise ConnectionClosed(str(self._failure))
        self._messages.append(frame(payload, self.framing))
        self._size += len(payload)

    def put_back(self, rest: bytes) -> None:
        """Return what could not be written at once, ahead of all that came since."""
        self._messages.insert(0, rest)
        self._size += len(rest)
        self._filled.set()

    async def room(self) -> None:
        """Wait until the peer has taken enough for one more message."""
        # Re-checked after each wake-up: of a hundred waiting senders only as many go on as fit.
        while self.is_full and self._failure is None:
            await self._emptied.wait()

    async def take(self) -> bytes:
        """Return all that waits, as one piece to write; `b""` after `end` once all is taken."""
        while not self._messages:
            if self._is_ending or self._failure is not None:
                return b""
            self._filled = anyio.Event()
            await self._filled.wait()
        return self.take_now()

    def take_now(self) -> bytes:
        """Return all that waits, as one piece to write."""
        data = b"".join(self._messages)
        self._messages.clear()
        if self.is_full:
            self._emptied.set()
            self._emptied = anyio.Event()
        self._size = 0
        return data

    def end(self) -> None:
        """No more will be put: let the writer take what is left and stop."""
        self._is_ending = True
        self._filled.set()

    def fail(self, failure: Exception) -> None:
        """The peer takes no more: drop what waits and tell everyone."""
        self._failure = failure  # a later one knows more
        self._messages.clear()
        self._size = 0
        self._filled.set()
        self._emptied.set()

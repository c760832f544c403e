"""A pair of transports within one process, joined by bounded buffers."""

from __future__ import annotations

import anyio

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire.transports.base import OnBytes

BUFFER = 64 * 1024  # the capacity of a Linux pipe: tests get the same back-pressure


class _Pipe:
    """One direction. The writer waits while `limit` bytes are unread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._changed = anyio.Event()
        self.writer_closed = False
        self.reader_closed = False

    def wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def write_now(self, data: bytes) -> int:
        if self.reader_closed or self.writer_closed:
            raise ConnectionClosed("the other side no longer reads")
        piece = data[: max(0, self._limit - self._size)]
        if piece:
            self._parts.append(piece)
            self._size += len(piece)
            self.wake()
        return len(piece)

    async def write(self, data: bytes) -> None:
        while data := data[self.write_now(data) :]:
            await self._changed.wait()

    async def read(self) -> bytes:
        while not self._parts:
            if self.writer_closed or self.reader_closed:
                return b""
            await self._changed.wait()
        data = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self.wake()
        return data


class MemoryTransport:
    """One end of a pair; see `memory_pair`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def pump(self, on_bytes: OnBytes) -> None:
        while data := await self.receive():
            if (hold := on_bytes(data)) is not None:
                await hold.wait()

    async def receive(self) -> bytes:
        """Return the next bytes, or `b""` once the other side has closed."""
        data = await self._incoming.read()
        await anyio.lowlevel.checkpoint()  # a busy pair must not starve other tasks
        return data

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        await self._outgoing.write(data)

    def send_now(self, data: bytes) -> int:
        return self._outgoing.write_now(data)

    async def aclose(self) -> None:
        self._incoming.reader_closed = True
        self._outgoing.writer_closed = True
        self._incoming.wake()
        self._outgoing.wake()

    async def explain_refusal(self) -> str:
        return "the other side no longer reads"

    async def explain_end(self) -> str:
        return "the other side closed the connection"


def memory_pair(buffer: int = BUFFER) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two transports; what is sent into one is received from the other."""
    there, back = _Pipe(buffer), _Pipe(buffer)
    return MemoryTransport(back, there), MemoryTransport(there, back)

"""One end of a link on a socket: batches out, batches in, each in one step of the event loop.

What is sent in one step is written as one batch, at its end. What arrives is handed to the owner by
a plain function as soon as a batch is complete, in order. Nothing waits here: a peer that does not
read is disconnected when too much has piled up (INV-8); it connects again and reads what it missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, Protocol

from msgspec import Struct
from typing_extensions import override

from quarterdeck.errors import LinkBroken
from quarterdeck.http.unix_sockets import BACKLOG, check_listener, connected, listening_unix
from quarterdeck.runner.link.frames import MOST_BATCH, BatchReader, Message, encode_batch
from quarterdeck.runner.link.messages import encode_message

logger = logging.getLogger(__name__)

MOST_BUFFERED: Final = 256 << 20
"""Bytes that a peer may leave unread: the results of its own calls, mostly."""
MOST_UNREAD: Final = 8 << 20
"""Bytes that a hub may leave unread before a runner reads no more of its calls."""
MOST_ACCEPTED: Final = 2
"""Connections in one turn of the event loop: who connects is checked, which takes half a
millisecond, and an agent that connects again and again must not keep the runner from its work."""
CLOSE_SECONDS: Final = 2.0
"""For a peer to read the last of what was sent to it."""
LINK_MESSAGE_BYTES: Final = 1 << 20
"""Of one message of a WebSocket; a larger batch is cut into several."""


@dataclass(frozen=True, kw_only=True)
class RunnerAddress:
    """Where a runner on another machine is reached."""

    url: str
    """wss://…"""
    token: str
    tls: SSLContext


class LinkEnd(Protocol):
    """Who has one end of a link."""

    def on_batch(self, batch: list[Message]) -> None:
        """Handle what the other side said in one step.

        Raises:
            LinkBroken: if it is not allowed; the link ends.
        """

    def on_lost(self, reason: str) -> None:
        """The link has ended; called once."""


class LinkSocket(asyncio.Protocol):
    """A connected socket of a link."""

    def __init__(self, make_end: Callable[[LinkSocket], LinkEnd]) -> None:
        self._make_end = make_end
        self._end: LinkEnd | None = None
        self._reader = BatchReader()
        self.received = 0
        """Bytes of the other side, so far: it is alive while they become more."""
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[Message] = []
        self._reason = "the other side closed it"

    # ---- out -------------------------------------------------------------------------------

    def send(self, message: Struct, body: bytes = b"") -> None:
        """Send a message with the others of this step."""
        if self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append((encode_message(message), body))

    def close(self, reason: str) -> None:
        """Send what is there and end the link."""
        if self._transport is not None:
            self._reason = reason
            self._flush()
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._abort)

    def abort(self, reason: str) -> None:
        """End the link; what the other side did not read is lost."""
        self._reason = reason
        self._abort()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def limit_batches(self, most: int = MOST_BATCH) -> None:
        """Accept only batches of so many bytes, from the next one on."""
        self._reader.most = most

    def soon(self, work: Callable[[], None]) -> None:
        """Call a function at the end of this step, before what it sends is written."""
        asyncio.get_running_loop().call_soon(work)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def raw(self) -> Any:
        """The socket itself."""
        return None if self._transport is None else self._transport.get_extra_info("socket")

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None:
            batch = encode_batch(self._outgoing)
            self._outgoing.clear()
            if self._transport.get_write_buffer_size() > MOST_BUFFERED:
                self._reason = "it did not read what was sent"
                self._transport.abort()
            else:
                self._transport.write(batch)

    # ---- in, called by the event loop ------------------------------------------------------

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._end = self._make_end(self)

    @override
    def data_received(self, data: bytes) -> None:
        assert self._end is not None
        self.received += len(data)
        try:
            for batch in self._reader.feed(data):
                self._end.on_batch(batch)
        except LinkBroken as error:
            logger.debug("a link was ended", extra={"reason": str(error)})
            self.close(str(error))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._outgoing.clear()
        if self._end is not None:
            self._end.on_lost(str(exc) if exc is not None else self._reason)


class ServedSocket(LinkSocket):
    """The runner's end: reads no further calls while their results are not read.

    A hub always reads, so the two cannot wait for each other.
    """

    @override
    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(high=MOST_UNREAD)
        super().connection_made(transport)

    @override
    def pause_writing(self) -> None:
        self.pause_reading()

    @override
    def resume_writing(self) -> None:
        self.resume_reading()


class MessageTransport:
    """What a `LinkSocket` uses of an asyncio transport, over messages of a WebSocket.

    `send` sends one message, `close` closes the WebSocket, `abort` ends it at once.
    """

    def __init__(
        self,
        link: LinkSocket,
        *,
        send: Callable[[bytes], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        abort: Callable[[], None],
    ) -> None:
        self._link = link
        self._send = send
        self._close = close
        self._abort = abort
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._high = float("inf")
        self._is_full = False
        self._filled = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = False

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def write(self, data: bytes) -> None:
        self._queue.append(data)
        self._size += len(data)
        self._filled.set()
        if self._size > self._high and not self._is_full:
            self._is_full = True
            self._link.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._size

    def close(self) -> None:
        self._is_closing = True
        self._may_read.set()
        self._filled.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self._is_closing = True
        self._abort()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_extra_info(self, _name: str) -> Any:
        return None

    async def send_all(self) -> None:
        """Send what is written, until it is closed.

        Raises:
            OSError: or an error of the WebSocket, if it has ended.
        """
        while True:
            while self._queue:
                data = self._queue.popleft()
                for start in range(0, len(data), LINK_MESSAGE_BYTES):
                    await self._send(data[start : start + LINK_MESSAGE_BYTES])
                self._size -= len(data)
                if self._is_full and self._size <= self._high / 4:
                    self._is_full = False
                    self._link.resume_writing()
            if self._is_closing:
                await self._close()
                return
            self._filled.clear()
            await self._filled.wait()

    async def receive(self, data: bytes) -> None:
        """Hand a message over, when the link reads."""
        await self._may_read.wait()
        if not self._is_closing:
            self._link.data_received(data)


async def connect_unix(path: Path, make_end: Callable[[LinkSocket], LinkEnd]) -> LinkSocket:
    """Connect to the socket at a path, if no other program listens there.

    Raises:
        ConnectionAbortedError: if another program does; nothing was read or sent.
        OSError: if no process accepts it.
    """
    connection = connected(path, seconds=0)
    loop = asyncio.get_running_loop()
    try:
        check_listener(connection)
        _, link = await loop.create_unix_connection(lambda: LinkSocket(make_end), sock=connection)
    except BaseException:
        connection.close()
        raise
    return link


@asynccontextmanager
async def serving_unix(
    path: Path, make_end: Callable[[LinkSocket], LinkEnd]
) -> AsyncIterator[None]:
    """Accept links at a path while the body runs.

    Raises:
        StartRefused: if another process listens there, or the path cannot be used.
    """
    loop = asyncio.get_running_loop()
    with listening_unix(path) as listener:
        listener.settimeout(0)
        server = await loop.create_unix_server(
            lambda: ServedSocket(make_end), sock=listener, backlog=MOST_ACCEPTED
        )
        listener.listen(BACKLOG)  # the loop has set it to what it accepts in one turn
        try:
            yield
        finally:
            server.close()

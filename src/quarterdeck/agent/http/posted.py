"""Messages that clients post: their bodies, and the input of a `wire.Connection` made of them."""

from __future__ import annotations

from typing import Final

import anyio

from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.asgi import (
    BodyCutOff,
    BodyLimits,
    BodyRejected,
    DrainLimits,
    Message,
    Receive,
    Send,
    drain,
    read_body,
)
from quarterdeck.http.headers import PLAIN_HEADERS
from quarterdeck.http.origins import RejectedRequest
from quarterdeck.wire.transports.base import OnBytes

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
Headers = tuple[tuple[str, str], ...]
_DRAIN_FACTOR: Final = 4  # times the limit of a body are read, so that its sender sees the reason


class BodyReader:
    """Reads the bodies of POST requests, within a size and a time."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._reading: set[anyio.CancelScope] = set()

    async def read(
        self, headers: dict[str, str], receive: Receive
    ) -> bytes | RejectedRequest | None:
        """Return a body, or why it is rejected; None if the client has left."""
        try:
            return await self._read(headers, receive)
        except BodyCutOff:
            return None
        except BodyRejected as error:
            # The rest of the body must not be read as the next request.
            return RejectedRequest(error.status, error.reason, (("connection", "close"),))

    def give_up(self) -> None:
        """Reject every body that is being read: the server ends."""
        for reading in self._reading:
            reading.cancel()

    async def _read(self, headers: dict[str, str], receive: Receive) -> bytes:
        size, seconds = self._size, self._seconds
        declared = headers.get("content-length", "")
        length = int(declared) if declared.isdecimal() else None
        with anyio.CancelScope() as reading:
            self._reading.add(reading)
            try:
                limits = BodyLimits(size=size, seconds=seconds, idle_seconds=seconds)
                return await read_body(receive, limits, length)
            except BodyRejected as error:
                # A body that is a little too long is read to its end: its sender sees the response.
                if error.status == 413 and (length or 0) <= size * _DRAIN_FACTOR:
                    await drain(receive, DrainLimits(size=size * _DRAIN_FACTOR, seconds=seconds))
                raise
            finally:
                self._reading.discard(reading)
        raise BodyRejected(503, "the server is shutting down")


class PostedMessages:
    """The reading half of a transport: what is fed is handled at once."""

    def __init__(self) -> None:
        self._on_bytes: OnBytes | None = None
        self._early: list[bytes] = []  # received before the connection reads
        self._closed = anyio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def pump(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes
        for message in self._early:
            on_bytes(message)
        self._early.clear()
        await self._closed.wait()

    def feed(self, message: bytes) -> None:
        """Pass a message of the client to the connection, which handles it at once.

        Raises:
            ConnectionClosed: if the connection has been closed.
        """
        if self._closed.is_set():
            raise ConnectionClosed("this client's connection has just ended; try again")
        # Outside of strings a line break is white space, and inside there can be none.
        line = message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
        if self._on_bytes is None:
            self._early.append(line)
        else:
            self._on_bytes(line)

    def close(self) -> None:
        self._closed.set()


def headers_of(scope: Message) -> dict[str, str]:
    """Return the headers of a request by their names in lower case."""
    return {
        name.decode("latin-1"): text.decode("latin-1") for name, text in scope.get("headers", ())
    }


def media_type(headers: dict[str, str]) -> str:
    """Return the type of a body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def send_rejection(send: Send, refusal: RejectedRequest) -> None:
    """Send an error as plain text."""
    body = f"{refusal.reason}\n".encode()
    await respond(send, refusal.status, body, (*refusal.headers, ("content-type", TEXT)))


async def respond(send: Send, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    """Send a whole response."""
    known = headers if status == 204 else (*headers, ("content-length", str(len(body))))
    encoded = [(name.encode(), text.encode("latin-1", "replace")) for name, text in known]
    start = {"type": "http.response.start", "status": status, "headers": [*PLAIN_HEADERS, *encoded]}
    await send(start)
    await send({"type": "http.response.body", "body": body})

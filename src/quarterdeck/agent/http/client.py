"""One client on HTTP: a connection whose input is POST requests and whose output is an SSE stream.

*Nothing reads.* Messages wait in an `EventBuffer`. When it is half full, senders wait for a reader
for up to PATIENCE_SECONDS, once; after that the client counts as absent until a reader takes
something, senders no longer wait, and the oldest messages are dropped. So a turn is never delayed
for longer, and a client that reconnects reads what it missed from `_quarterdeck/messages_lost`.

*The stream.* Each event is one JSON-RPC message, and `Last-Event-ID` with its id resumes after it.
A stream without it continues where the previous one stopped. If messages that it needs were
dropped, its first event, which has no id, reports it:

    {"jsonrpc":"2.0","method":"_quarterdeck/messages_lost","params":{"lost":12,"reason":"..."}}

Answers may be among them; the content of a session can be loaded again by `session/load`.

*A request is sent twice.* A client whose POST failed may retry; the request must not run twice. An
id that is being worked on is rejected, and so is one that was answered recently if the whole
request is the same.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from typing import Final

import anyio

from quarterdeck.agent.http.posted import PostedMessages
from quarterdeck.http.asgi import Receive, Send
from quarterdeck.http.keepalive import KeepAlive, LiveConnection
from quarterdeck.http.sse import (
    Drop,
    EventBuffer,
    EventStream,
    ReplayLimits,
    StreamFormat,
    serve_events,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.wire import Failure, Request, Result, canonical_id, parse
from quarterdeck.wire.transports.base import OnBytes

LOST: Final = "_quarterdeck/messages_lost"
LAST_EVENT: Final = re.compile(r"[0-9a-f]{8}-[0-9]{1,18}")
PATIENCE_SECONDS: Final = 5.0
_REMEMBERED: Final = 1000  # answered requests of a client
_OF_AN_ANSWER: Final = b'{"jsonrpc":"2.0","id":'  # our own requests begin so, too


class RequestRepeated(Exception):
    """A request that was received before; not in `errors`, since it never leaves this package."""


class HttpTransport:
    """The transport of a `Connection`; its other side is `HttpClient`."""

    def __init__(self, limits: ReplayLimits) -> None:
        self.buffer = EventBuffer(limits)
        self.is_ended = False
        """Whether the buffer gets no more messages."""
        self._posted = PostedMessages()
        self._is_patient = True
        self._running: dict[bytes, bytes] = {}
        self._answered: OrderedDict[bytes, bytes] = OrderedDict()

    async def pump(self, on_bytes: OnBytes) -> None:
        await self._posted.pump(on_bytes)

    def feed(self, message: bytes) -> None:
        """Pass a message of the client to the connection, which handles it at once.

        Raises:
            ConnectionClosed: if the connection has been closed.
        """
        self._posted.feed(message)

    def note_request(self, request: Request, body: bytes) -> None:
        """Remember a request.

        Raises:
            RequestRepeated: if it was received before.
        """
        key, digest = canonical_id(request.id), hashlib.sha256(body).digest()
        if request.method == "initialize":
            self._answered.clear()  # a restarted program reuses ids; repeating this is harmless
            return
        if key == b"null":
            return
        if key in self._running:
            raise RequestRepeated(f"a request with the id {key.decode()} is being answered")
        if self._answered.get(key) == digest:
            raise RequestRepeated(f"the same request, id {key.decode()}, has been answered")
        self._running[key] = digest

    async def send(self, data: bytes) -> None:
        with anyio.move_on_after(PATIENCE_SECONDS) as waiting:
            while self._has_to_wait():
                await self.buffer.wait_changed()
        if waiting.cancelled_caught:
            self._is_patient = False
        self._put(data)

    def send_now(self, data: bytes) -> int:
        if self._has_to_wait():
            return 0
        self._put(data)
        return len(data)

    def reader_took(self) -> None:
        """Note that a reader has taken messages."""
        self._is_patient = True

    async def aclose(self) -> None:
        self.is_ended = True
        self._posted.close()
        self.buffer.wake()

    async def explain_refusal(self) -> str:
        return "the client is gone"

    async def explain_end(self) -> str:
        return "the client is gone"

    def _has_to_wait(self) -> bool:
        return self.buffer.is_behind and self._is_patient and not self._posted.is_closed

    def _put(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line:
                self._note_answer(line)
                self.buffer.put(line)

    def _note_answer(self, line: bytes) -> None:
        if not line.startswith(_OF_AN_ANSWER):
            return
        message = parse(line)
        if isinstance(message, Result | Failure):
            key = canonical_id(message.id)
            digest = self._running.pop(key, None)
            if digest is not None:
                self._answered[key] = digest
                if len(self._answered) > _REMEMBERED:
                    self._answered.popitem(last=False)


class HttpClient:
    """One client: the other side of its connection, its stream, and when it was last seen."""

    def __init__(self, client_id: str, limits: ReplayLimits) -> None:
        self.id = client_id
        self.transport = HttpTransport(limits)
        self.epoch = secrets.token_hex(4)
        """Part of the ids of its events, to recognise those of an earlier connection."""
        self.is_ready = anyio.Event()
        self.has_left = anyio.Event()
        self.last_seen = anyio.current_time()
        self._stream: anyio.CancelScope | None = None
        self._is_dismissed = False
        self._changed = anyio.Event()

    def open_stream(self, stream: anyio.CancelScope) -> None:
        """Make `stream` the current one; an older one ends."""
        if self._stream is not None:
            self._stream.cancel()
        self._stream = stream
        self._notice()

    def close_stream(self, stream: anyio.CancelScope) -> None:
        self.last_seen = anyio.current_time()
        if self._stream is stream:
            self._stream = None
        self._notice()

    def is_current(self, stream: anyio.CancelScope) -> bool:
        return self._stream is stream

    def seen(self) -> None:
        self.last_seen = anyio.current_time()

    def dismiss(self) -> None:
        """Disconnect it; its turns are cancelled and answered, and its stream reports the end."""
        self._is_dismissed = True
        self._notice()

    async def wait_gone(self, seconds: float) -> None:
        """Wait until it is dismissed, or has had no stream and sent nothing for `seconds`."""
        while not self._is_dismissed:
            changed = self._changed
            left = self.last_seen + seconds - anyio.current_time()
            if self._stream is None and left <= 0:
                return
            with anyio.move_on_after(None if self._stream is not None else left):
                await changed.wait()

    async def wait_streamless(self) -> None:
        while self._stream is not None:
            await self._changed.wait()

    def event_id(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def stream_events(
    client: HttpClient, last_event: str, receive: Receive, send: Send, keep_alive: KeepAlive
) -> None:
    """Send events until the client leaves, opens another stream, or has ended."""
    connection = LiveConnection()
    stream = connection.scope

    def closing(_drop: Drop | None) -> bytes:
        if not client.is_current(stream):
            return b": replaced by another stream\n\n"
        return b": disconnected by the server\n\n" if client.transport.is_ended else b""

    async def body(events: EventStream) -> None:
        client.transport.buffer.set_reader(events.wake)
        await _send_all(client, last_event, events)

    stream_format = StreamFormat(
        opening=b"retry: 1000\n: connected\n\n", comment=b": ping\n\n", closing=closing
    )
    client.open_stream(stream)
    try:
        await serve_events(
            keep_alive, receive, send, body, stream_format=stream_format, connection=connection
        )
    finally:
        client.close_stream(stream)


async def _send_all(client: HttpClient, last_event: str, stream: EventStream) -> None:
    buffer = client.transport.buffer
    lost = _begin(client, last_event)
    while True:
        if lost is not None:
            await stream.send(lost)
        text = b"".join(
            b"id: %b\ndata: %b\n\n" % (client.event_id(number).encode(), message)
            for number, message in buffer.take()
        )
        if text:
            client.transport.reader_took()
            await stream.send(text)
        elif client.transport.is_ended:
            return
        else:
            await stream.wait()
        lost = _overtaken(client)


def _begin(client: HttpClient, last_event: str) -> bytes | None:
    """Move to where this reader continues; return an event if something is missing."""
    buffer = client.transport.buffer
    if not last_event:
        return _overtaken(client)
    epoch, _, number = last_event.partition("-")
    if epoch != client.epoch or int(number) > buffer.last:
        buffer.seek(buffer.first)
        reason = "your last event is from an earlier connection; call initialize again"
        return _lost(None, reason)
    dropped = buffer.seek(int(number) + 1)
    return _lost(dropped, "you were away for too long") if dropped else None


def _overtaken(client: HttpClient) -> bytes | None:
    buffer = client.transport.buffer
    dropped = buffer.seek(buffer.position)
    return _lost(dropped, "you read too slowly") if dropped else None


def _lost(count: int | None, reason: str) -> bytes:
    params = {"lost": count, "reason": reason}
    return b"data: %b\n\n" % encode_json({"jsonrpc": "2.0", "method": LOST, "params": params})

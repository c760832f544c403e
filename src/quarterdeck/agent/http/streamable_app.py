"""ACP over Streamable HTTP, one URL with three verbs, for any number of clients.

    POST    initialize, without Acp-Connection-Id     200, the answer, and an Acp-Connection-Id
    POST    any other message                         202; the answer is on a stream
    GET     Accept: text/event-stream                 200, the connection's stream; with an
                                                      Acp-Session-Id that of the session
    DELETE                                            202; the connection ends

    400   a header is missing or does not fit the message; not a JSON-RPC message (with -32600 or
          -32700); a Last-Event-ID that is not of this stream
    404   the connection is unknown, or has ended: call initialize again
    406   a GET that accepts no event stream          415   a POST that is not JSON
    409   messages of this session were dropped: load it again
    426   a GET that asks for a WebSocket where there is none
    503   too many connections, or shutting down

Each event has an `id:`; `Last-Event-ID` resumes after it (see `outgoing`). A new reader of a stream
replaces the one before, which may be a broken connection that is not noticed yet. A connection that
has no stream and sends nothing for `idle_seconds` ends.

The caller has authenticated the client. A connection belongs to an `owner`: for all others its id
is unknown.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from quarterdeck.agent.http.outgoing import (
    CONNECTION,
    EVENT_ID,
    LostMessages,
    OutgoingStream,
    UnknownEvent,
)
from quarterdeck.agent.http.posted import JSON, BodyReader, headers_of, media_type, respond
from quarterdeck.agent.http.streamable import (
    AFTER,
    INITIALIZE,
    InitialAnswer,
    RequestConflict,
    StreamableConnection,
    session_key,
    session_of,
)
from quarterdeck.agent.server import AcpService
from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.asgi import Message, Receive, Send
from quarterdeck.http.keepalive import KeepAlive, LiveConnection
from quarterdeck.http.origins import RejectedRequest
from quarterdeck.http.sse import Drop, EventStream, ReplayLimits, StreamFormat, serve_events
from quarterdeck.jsontext import encode_json
from quarterdeck.wire import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Failure,
    Notification,
    Request,
    Result,
    parse,
    rpc_error,
)
from quarterdeck.wire.messages import Malformed, Noise

CONNECTION_ID: Final = "acp-connection-id"
SESSION_ID: Final = "acp-session-id"
EVENT_STREAM: Final = "text/event-stream"
METHODS: Final = "DELETE, GET, POST"
_END_SECONDS: Final = 2.0  # for clients to read the last messages when the server ends
_REMEMBERED: Final = 256  # connections that have ended
_PING_TICKS: Final = 3  # between two pings
_STALLED_TICKS: Final = 12  # that a reader may leave a write waiting: a minute by default

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StreamableOptions:
    """Limits of clients on Streamable HTTP."""

    max_connections: int = 64
    """Of one owner's device: of all owners with the same first part."""
    max_sessions: int = 256
    """Sessions that one connection may have open."""
    limits: ReplayLimits = field(default_factory=ReplayLimits)
    """What is kept for one connection."""
    ping_seconds: float = 15.0
    idle_seconds: float = 300.0


@dataclass(frozen=True)
class Caller:
    """Who sends a request, and what serves it."""

    owner: tuple[str, ...]
    service: AcpService


class StreamableHttp:
    """All connections of one server. Serves while `running` is entered."""

    def __init__(self, options: StreamableOptions, bodies: BodyReader) -> None:
        self._options = options
        self._bodies = bodies
        ticks = options.ping_seconds / _PING_TICKS
        self._keep_alive = KeepAlive(ticks, quiet_ticks=_PING_TICKS, stalled_ticks=_STALLED_TICKS)
        self._connections: dict[str, StreamableConnection] = {}
        self._leaving: set[StreamableConnection] = set()
        self._ended: OrderedDict[tuple[str, tuple[str, ...]], str] = OrderedDict()
        self._tasks: TaskGroup | None = None
        self._is_closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the body ends; then every connection ends."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self.aclose()
                tasks.cancel_scope.cancel()

    def dismiss(self) -> list[StreamableConnection]:
        """Accept no more requests and end every connection; return them."""
        self._is_closing = True
        connections = [*self._connections.values(), *self._leaving]
        for connection in connections:
            connection.end("the server is shutting down")
        return connections

    async def aclose(self) -> None:
        """Disconnect every client; safe to call twice."""
        connections = self.dismiss()
        with anyio.move_on_after(_END_SECONDS + 10):
            for connection in connections:
                await connection.has_left.wait()
                with anyio.move_on_after(_END_SECONDS):
                    await connection.wait_readerless()

    async def serve(
        self, scope: Message, receive: Receive, send: Send, caller: Caller
    ) -> RejectedRequest | None:
        """Answer one request; return why it is rejected, if that was not answered."""
        headers = headers_of(scope)
        if self._is_closing or self._tasks is None:
            return RejectedRequest(503, "the server is shutting down")
        match scope["method"]:
            case "POST":
                return await self._post(headers, receive, send, caller)
            case "GET":
                return await self._get(headers, receive, send, caller)
            case "DELETE":
                return await self._delete(headers, send, caller)
            case _:
                return RejectedRequest(405, f"use {METHODS}", (("allow", METHODS),))

    # ---- POST ----------------------------------------------------------------------------------

    async def _post(
        self, headers: dict[str, str], receive: Receive, send: Send, caller: Caller
    ) -> RejectedRequest | None:
        if media_type(headers) != JSON:
            return RejectedRequest(415, "send Content-Type: application/json")
        body = await self._bodies.read(headers, receive)
        if not isinstance(body, bytes):
            return body
        message = parse(body.strip())
        if isinstance(message, Malformed | Noise):
            await _send_malformed(send, message)
            return None
        if isinstance(message, Request) and message.method == INITIALIZE:
            return await self._initialize(message, body, headers, receive, send, caller)
        connection = self._find(headers, caller)
        if isinstance(connection, RejectedRequest):
            return connection
        connection.seen()
        refusal = _feed(connection, message, body, headers)
        if refusal is None:
            await respond(send, 202)
        return refusal

    async def _initialize(
        self,
        request: Request,
        body: bytes,
        headers: dict[str, str],
        receive: Receive,
        send: Send,
        caller: Caller,
    ) -> RejectedRequest | None:
        if CONNECTION_ID in headers:
            reason = "initialize opens a new connection; send it without Acp-Connection-Id"
            return RejectedRequest(400, reason)
        if request.id == b"null":
            return RejectedRequest(400, "initialize needs an id that is a string or a number")
        connection = self._create(caller)
        if isinstance(connection, RejectedRequest):
            return connection
        await connection.is_ready.wait()
        try:
            answer = connection.transport.initialize(request, body)
        except ConnectionClosed as error:
            return RejectedRequest(503, str(error))
        if not await _answered_before_leaving(answer, receive):
            connection.end("its client left before it was initialized")
            return None
        if answer.text is None:
            return RejectedRequest(503, "the connection ended before it was initialized; try again")
        connection.seen()
        named = (("content-type", JSON), (CONNECTION_ID, connection.id))
        await respond(send, 200, answer.text, named)
        return None

    def _create(self, caller: Caller) -> StreamableConnection | RejectedRequest:
        every = (*self._connections.values(), *self._leaving)
        count = sum(each.owner[:1] == caller.owner[:1] for each in every)
        if count >= self._options.max_connections:
            reason = f"{count} connections are open; close one with DELETE, or wait until one ends"
            return RejectedRequest(503, reason, (("retry-after", "5"),))
        connection = StreamableConnection(caller.owner, self._options.limits)
        self._connections[connection.id] = connection
        assert self._tasks is not None
        self._tasks.start_soon(self._attend, connection, caller.service)
        return connection

    async def _attend(self, connection: StreamableConnection, service: AcpService) -> None:
        """Serve one client until it is gone."""
        try:
            most = self._options.max_sessions
            async with service.serve_client(connection.transport, max_sessions=most):
                connection.is_ready.set()
                connection.seen()
                await connection.wait_gone(self._options.idle_seconds)
                self._forget(connection)
        except Exception:  # one client must not end the others
            logger.exception("serving a client failed")
            connection.end("it failed; see the log of the server")
        finally:
            self._forget(connection)
            self._leaving.discard(connection)
            await connection.transport.aclose()
            connection.is_ready.set()
            connection.has_left.set()

    def _forget(self, connection: StreamableConnection) -> None:
        if self._connections.pop(connection.id, None) is None:
            return
        self._leaving.add(connection)
        self._ended[connection.id, connection.owner] = connection.end_reason or "it has ended"
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def _find(
        self, headers: dict[str, str], caller: Caller
    ) -> StreamableConnection | RejectedRequest:
        connection_id = headers.get(CONNECTION_ID)
        if connection_id is None:
            reason = "send the Acp-Connection-Id that came with the answer to initialize"
            return RejectedRequest(400, reason)
        connection = self._connections.get(connection_id)
        if connection is not None and connection.owner == caller.owner:
            if connection.end_reason is None:
                return connection
            return _gone(connection.end_reason)
        return _gone(self._ended.get((connection_id, caller.owner)))

    # ---- DELETE --------------------------------------------------------------------------------

    async def _delete(
        self, headers: dict[str, str], send: Send, caller: Caller
    ) -> RejectedRequest | None:
        connection = self._find(headers, caller)
        if isinstance(connection, RejectedRequest):
            return connection
        connection.end("its client closed it")
        await respond(send, 202)
        return None

    # ---- GET -----------------------------------------------------------------------------------

    async def _get(
        self, headers: dict[str, str], receive: Receive, send: Send, caller: Caller
    ) -> RejectedRequest | None:
        if headers.get("upgrade", "").lower() == "websocket":
            return RejectedRequest(426, "this server has no WebSocket here; use POST and GET")
        if EVENT_STREAM not in headers.get("accept", "").lower():
            return RejectedRequest(406, "send Accept: text/event-stream")
        connection = self._find(headers, caller)
        if isinstance(connection, RejectedRequest):
            return connection
        last_event = headers.get("last-event-id", "")
        if last_event and not EVENT_ID.fullmatch(last_event):
            return RejectedRequest(400, "Last-Event-ID is none that this server gave")
        stream = self._stream(connection, headers)
        if isinstance(stream, RejectedRequest):
            return stream
        refusal = _begin(connection, stream, last_event)
        if refusal is None:
            await stream_messages(connection, stream, receive, send, self._keep_alive)
        return refusal

    def _stream(
        self, connection: StreamableConnection, headers: dict[str, str]
    ) -> OutgoingStream | RejectedRequest:
        streams = connection.transport.streams
        key = header_key(headers.get(SESSION_ID))
        if key not in streams and len(streams) > self._options.max_sessions:
            streams.discard_unused()
            if len(streams) > self._options.max_sessions:
                reason = f"this connection has {len(streams) - 1} streams of sessions; close some"
                return RejectedRequest(503, reason)
        return streams.get(key)


def header_key(session: str | None) -> bytes:
    """Return the session that a header names: programs send UTF-8 or Latin-1 there."""
    if session is None:
        return CONNECTION
    given = session.encode("latin-1")
    try:
        given.decode()
    except UnicodeDecodeError:
        return session.encode()
    return given


def _feed(
    connection: StreamableConnection,
    message: Request | Notification | Result | Failure,
    body: bytes,
    headers: dict[str, str],
) -> RejectedRequest | None:
    """Pass a message to its connection; return why it is rejected, if it is."""
    transport = connection.transport
    given = None if SESSION_ID not in headers else header_key(headers[SESSION_ID])
    if isinstance(message, Result | Failure):
        session = None
        wanted = transport.session_of_request(message.id) or None
    else:
        session = session_of(message.params)
        wanted = None if session is None else session_key(session)
    # The message has the session itself: the official Python SDK leaves the header out of answers
    # and of what opens a session, and expects the result on the connection's stream.
    if wanted is not None and given is not None and wanted != given:
        return RejectedRequest(400, "Acp-Session-Id is not the session of the message")
    try:
        if isinstance(message, Request):
            transport.feed_request(message, given or CONNECTION, body)
        else:
            transport.feed(body)
    except RequestConflict as error:
        return RejectedRequest(400, f"{error}; use another id")
    except ConnectionClosed as error:
        return _gone(str(error))
    if isinstance(message, Result | Failure):
        transport.answered(message.id)
    return None


def _gone(reason: str | None) -> RejectedRequest:
    if reason is None:
        return RejectedRequest(404, "this connection is unknown; call initialize to open one")
    return RejectedRequest(404, f"this connection has ended: {reason}; call initialize again")


async def _send_malformed(send: Send, message: Malformed | Noise) -> None:
    """Answer what is no message as JSON-RPC does, with the status of a bad request."""
    code = PARSE_ERROR if message.code == PARSE_ERROR else INVALID_REQUEST
    given = getattr(message, "reason", "not a JSON object")
    error = rpc_error(code, given)
    answer = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": error.code, "message": error.message, "data": error.data},
    }
    await respond(send, 400, encode_json(answer), (("content-type", JSON),))


async def _answered_before_leaving(answer: InitialAnswer, receive: Receive) -> bool:
    """Wait for the answer; return False if the client leaves first."""
    has_left = False
    async with anyio.create_task_group() as tasks:

        async def await_disconnect() -> None:
            nonlocal has_left
            while (await receive())["type"] != "http.disconnect":
                pass
            has_left = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(await_disconnect)
        await answer.wait()
        tasks.cancel_scope.cancel()
    return not has_left


def _begin(
    connection: StreamableConnection, stream: OutgoingStream, last_event: str
) -> RejectedRequest | None:
    """Move a stream to where its reader continues; return why it cannot."""
    try:
        connection.transport.streams.begin(stream, last_event)
    except UnknownEvent:
        reason = "Last-Event-ID is not of this stream; open it without, or call initialize again"
        return RejectedRequest(400, reason)
    except LostMessages as error:
        what = f"{error} messages were dropped, since they were not read in time"
        if stream.key == CONNECTION:
            connection.end(what)
            return _gone(what)
        connection.transport.streams.begin_anew(stream)
        return RejectedRequest(409, f"{what}; load the session again")
    return None


async def stream_messages(
    connection: StreamableConnection,
    stream: OutgoingStream,
    receive: Receive,
    send: Send,
    keep_alive: KeepAlive,
) -> None:
    """Send messages until the client leaves, opens the stream again, or has ended."""
    reader = LiveConnection()

    def closing(_drop: Drop | None) -> bytes:
        if stream.reader is not reader:
            return b": replaced by another stream\n\n"
        if stream.is_lost:
            return b": messages were dropped, since they were not read in time\n\n"
        return b": the connection has ended\n\n" if connection.transport.is_ended else b""

    async def body(events: EventStream) -> None:
        # A reader that was replaced may run once more before its cancellation is delivered.
        while stream.reader is reader and await _send_next(connection, stream, events):
            pass

    # Its id lets a reader that is cut off before the first event resume all the same.
    opening = b"retry: 1000\nid: %b\n: connected\n\n" % stream.event_id(stream.position - 1)
    stream_format = StreamFormat(opening=opening, comment=b": ping\n\n", closing=closing)
    stream.end_reader()
    stream.reader = reader
    connection.reader_joined()
    try:
        await serve_events(
            keep_alive, receive, send, body, stream_format=stream_format, connection=reader
        )
    finally:
        if stream.reader is reader:
            stream.reader = None
        connection.transport.reader_wrote()
        connection.reader_left()


def _event(event_id: bytes, message: bytes) -> bytes:
    comment = b""
    if message.startswith(AFTER):
        comment, _, message = message.partition(b"\n")
        comment += b"\n"
    return b"%bid: %b\ndata: %b\n\n" % (comment, event_id, message)


async def _send_next(
    connection: StreamableConnection, stream: OutgoingStream, events: EventStream
) -> bool:
    """Send what there is, or wait for it; return whether more can follow."""
    transport = connection.transport
    taken = stream.take()
    if taken:
        transport.reader_took()
        await events.send(
            b"".join(_event(stream.event_id(number), message) for number, message in taken)
        )
        stream.written = taken[-1][0]
        transport.reader_wrote()
    elif transport.is_ended:
        return False
    else:
        await events.wait()
    return True

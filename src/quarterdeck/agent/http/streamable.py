"""One client of Streamable HTTP: a connection whose input is POST requests, its output SSE streams.

The transport of a `wire.Connection` that decides for each message which stream it belongs to. It
knows nothing of a version of ACP but that `params.sessionId` names a session, and these rules:

    what the agent sends                          stream
    the answer to `initialize`                    none: it is the body of that POST
    a request or notification of a session        the session's
    $/cancel_request of such a request            the same, so that it cannot overtake the request
    the answer to a request of a session          the session's
    the answer to `session/load`                  the connection's: a client may open the session's
                                                  stream only after it
    everything else                               the connection's

*Order.* Two streams have no common order, so the answer to `session/load` is held back until a
reader of the session's stream was sent everything before it. Without a reader it is sent at once.
Even then it can be read first, so a comment before it names the event that it follows.

*Back-pressure.* When half of what may be kept was not sent, senders wait for a reader for up to
PATIENCE_SECONDS; after that they no longer wait until a reader takes something, and `outgoing`
says what is lost. So a turn is never delayed for longer.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from quarterdeck.agent.http.outgoing import CONNECTION, OutgoingStream, OutgoingStreams
from quarterdeck.agent.http.posted import PostedMessages
from quarterdeck.errors import JsonInvalid
from quarterdeck.http.sse import ReplayLimits
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.wire import (
    CANCEL_REQUEST,
    Failure,
    Notification,
    Request,
    Result,
    canonical_id,
    parse,
)
from quarterdeck.wire.transports.base import OnBytes

PATIENCE_SECONDS: Final = 5.0
MOST_ROUTES: Final = 10_000
"""Requests whose stream is remembered; a peer that answers none of them fills no memory."""
LOAD, RESUME = "session/load", "session/resume"
AFTER: Final = b": after "
"""Begins the line before an answer that names the event of a session that it follows."""
INITIALIZE: Final = "initialize"


class RequestConflict(Exception):
    """A request under the id of another that is running; it stays in this package."""


class _SessionParams(msgspec.Struct, rename="camel", gc=False):
    session_id: Any = None


_read_params = msgspec.json.Decoder(_SessionParams).decode


def session_of(params: bytes) -> str | None:
    """Return the session that the params of a message name."""
    try:
        found = _read_params(params).session_id
    except (msgspec.DecodeError, UnicodeError):
        found = _read_slowly(params, "sessionId")
    return found if isinstance(found, str) else None


def _read_slowly(params: bytes, name: str) -> Any:
    """Read a field of an object that may hold text which msgspec rejects."""
    try:
        value = decode_json(params)
    except JsonInvalid:
        return None
    return value.get(name) if isinstance(value, dict) else None


def _naming(session_id: str, line: bytes) -> bytes:
    """Return the answer to a request with the session in its result, if it has a result."""
    answer = decode_json(line)
    if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
        return line
    answer["result"].setdefault("sessionId", session_id)
    return encode_json(answer)


def session_key(session_id: str | None) -> bytes:
    return CONNECTION if session_id is None else session_id.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Route:
    """Where the answer to a request of the client is sent."""

    key: bytes
    digest: bytes
    """Of the request, to recognise one that is sent again."""
    after: bytes | None = None
    """The session whose messages are sent before it."""
    opened: str | None = None
    """The session that its answer has to name."""


@dataclass(slots=True)
class _Held:
    """An answer that waits for the messages of a session."""

    answer: bytes
    stream: OutgoingStream
    number: int


@dataclass(eq=False)
class StreamableConnection:
    """One client, from `initialize` to its end."""

    owner: tuple[str, ...]
    """Who may use it; others cannot tell that it exists."""
    limits: ReplayLimits
    id: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        self.transport = StreamableTransport(self.limits, self.end)
        self.is_ready = anyio.Event()
        self.has_left = anyio.Event()
        self.end_reason: str | None = None
        self._last_seen = anyio.current_time()
        self._readers = 0
        self._changed = anyio.Event()

    def seen(self) -> None:
        self._last_seen = anyio.current_time()

    def reader_joined(self) -> None:
        self._readers += 1
        self._notice()

    def reader_left(self) -> None:
        self._readers -= 1
        self.seen()
        self._notice()

    def end(self, reason: str) -> None:
        """End it; its turns are cancelled and answered before its streams end."""
        if self.end_reason is None:
            self.end_reason = reason
        self._notice()

    async def wait_gone(self, seconds: float) -> None:
        """Wait until it is ended, or has had no stream and sent nothing for `seconds`."""
        while self.end_reason is None:
            changed = self._changed
            left = self._last_seen + seconds - anyio.current_time()
            if not self._readers and left <= 0:
                self.end_reason = f"it was not used for {seconds:g} s"
                return
            with anyio.move_on_after(None if self._readers else left):
                await changed.wait()

    async def wait_readerless(self) -> None:
        while self._readers:
            await self._changed.wait()

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class StreamableTransport:
    """The transport of a `wire.Connection`; its other side is HTTP."""

    def __init__(self, limits: ReplayLimits, end: Any) -> None:
        self.streams = OutgoingStreams(limits)
        self.is_ended = False
        """Whether the streams get no more messages."""
        self._end = end
        self._posted = PostedMessages()
        self._is_patient = True
        self._initial: tuple[bytes, InitialAnswer] | None = None
        self._routes: OrderedDict[bytes, _Route] = OrderedDict()
        self._requested: OrderedDict[bytes, bytes] = OrderedDict()
        self._held: list[_Held] = []

    # ---- what the client posts -----------------------------------------------------------------

    def initialize(self, request: Request, body: bytes) -> InitialAnswer:
        """Pass the first request to the connection; return where its answer will be."""
        answer = InitialAnswer()
        self._initial = (canonical_id(request.id), answer)
        self._posted.feed(body)
        return answer

    def feed_request(self, request: Request, stream: bytes, body: bytes) -> None:
        """Pass a request to the connection; one that is running already is not run again.

        `stream` is the key of the stream that it belongs to.

        Raises:
            RequestConflict: if another request with its id is running.
            ConnectionClosed: if the connection has ended.
        """
        key = canonical_id(request.id)
        running, digest = self._routes.get(key), hashlib.sha256(body).digest()
        if running is not None and running.digest == digest:
            return  # a client repeats what it does not know to have arrived
        if running is not None:
            raise RequestConflict(f"a request with the id {key.decode()} is being answered")
        is_load = request.method == LOAD
        # The Python SDK sends no header with these, and then opens the stream of the session that
        # the answer names.
        is_unnamed = stream == CONNECTION and request.method in (LOAD, RESUME)
        route = _Route(
            CONNECTION if is_load else stream,
            digest,
            after=stream if is_load else None,
            opened=session_of(request.params) if is_unnamed else None,
        )
        _remember(self._routes, key, route)
        self._posted.feed(body)

    def feed(self, body: bytes) -> None:
        """Pass a notification or an answer to the connection.

        Raises:
            ConnectionClosed: if the connection has ended.
        """
        self._posted.feed(body)

    def session_of_request(self, request_id: bytes) -> bytes | None:
        """Return the session of a request of the agent; None if it is unknown."""
        return self._requested.get(canonical_id(request_id))

    def answered(self, request_id: bytes) -> None:
        """Note that the client has answered a request of the agent."""
        self._requested.pop(canonical_id(request_id), None)

    # ---- what the connection reads and writes --------------------------------------------------

    async def pump(self, on_bytes: OnBytes) -> None:
        await self._posted.pump(on_bytes)

    async def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if self._has_to_wait():
                await self._wait_for_readers()
            if line:
                self._put(line)

    def send_now(self, data: bytes) -> int:
        if self._has_to_wait():
            return 0
        for line in data.split(b"\n"):
            if line:
                self._put(line)
        return len(data)

    async def aclose(self) -> None:
        self.is_ended = True
        self._posted.close()
        self._release(is_end=True)
        if self._initial is not None:
            self._initial[1].give_up()
        self.streams.wake_all()

    async def explain_refusal(self) -> str:
        return "the client is gone"

    async def explain_end(self) -> str:
        return "the client is gone"

    def reader_took(self) -> None:
        """Note that a reader was given messages."""
        self._is_patient = True
        self.streams.took()

    def reader_wrote(self) -> None:
        """Note that a socket took messages, or that a reader has left."""
        if self._held:
            self._release()

    def _has_to_wait(self) -> bool:
        return self._is_patient and not self._posted.is_closed and self.streams.is_behind

    async def _wait_for_readers(self) -> None:
        with anyio.move_on_after(PATIENCE_SECONDS) as waiting:
            while self._has_to_wait():
                await self.streams.wait_changed()
        if waiting.cancelled_caught:
            self._is_patient = False

    def _put(self, line: bytes) -> None:
        match parse(line):
            case Result(request_id) | Failure(request_id):
                self._put_answer(canonical_id(request_id), line)
            case Request(request_id, _, params):
                stream = session_key(session_of(params))
                _remember(self._requested, canonical_id(request_id), stream)
                self.streams.put(stream, line)
            case Notification(method, params):
                self.streams.put(self._stream_of(method, params), line)
            case _:
                self.streams.put(CONNECTION, line)
        if self.streams.connection.is_lost:
            self._end("it did not read what was sent to it; load its sessions again")

    def _stream_of(self, method: str, params: bytes) -> bytes:
        if method == CANCEL_REQUEST:
            withdrawn = _read_slowly(params, "requestId")
            return self._requested.get(canonical_id(msgspec.json.encode(withdrawn)), CONNECTION)
        return session_key(session_of(params))

    def _put_answer(self, key: bytes, line: bytes) -> None:
        if self._initial is not None and self._initial[0] == key:
            self._initial[1].arrive(line)
            self._initial = None
            return
        route = self._routes.pop(key, None)
        if route is not None and route.opened is not None:
            line = _naming(route.opened, line)
        if route is None:
            self.streams.put(CONNECTION, line)
        elif route.after is None or route.after not in self.streams:
            self.streams.put(route.key, line)
        else:
            stream = self.streams.get(route.after)
            self._held.append(_Held(line, stream, stream.last))
            self._release()

    def _release(self, *, is_end: bool = False) -> None:
        held, self._held = self._held, []
        for each in held:
            is_due = each.stream.reader is None or each.stream.written >= each.number
            if is_due or is_end or each.stream.is_lost:
                # A comment, which other clients ignore: two streams have no common order.
                after = each.stream.event_id(each.number)
                self.streams.put(CONNECTION, b"%b%b\n%b" % (AFTER, after, each.answer))
            else:
                self._held.append(each)


class InitialAnswer:
    """The answer to `initialize`, when it has arrived."""

    def __init__(self) -> None:
        self.text: bytes | None = None
        """None if the connection ended before."""
        self._arrived = anyio.Event()

    def arrive(self, text: bytes) -> None:
        self.text = text
        self._arrived.set()

    def give_up(self) -> None:
        self._arrived.set()

    async def wait(self) -> None:
        await self._arrived.wait()


def _remember(routes: OrderedDict[bytes, Any], key: bytes, value: Any) -> None:
    routes[key] = value
    if len(routes) > MOST_ROUTES:
        routes.popitem(last=False)

"""The client side of ACP over Streamable HTTP, as the official SDK speaks it.

Messages are posted one after the other. The first is `initialize`: its response has the answer and
the id of the connection. Everything else arrives on streams: one of the connection, and one for
each session that an answer, an update or a message of ours names. A stream is open before the first
message of its session is posted.

*Broken streams.* A server that gives its events ids can resume a stream after the last one; then it
is opened again, a few times. Otherwise what was sent meanwhile is lost, so the whole transport
ends, and the host starts the agent again by its rules: connect, and load or resume the sessions. It
also ends when the server no longer knows the connection (404, 410), rejects the credentials (401,
403) or has dropped messages of a session (409). Any other status fails the one request.

*Order.* Two streams have no common order: the answer to a request of a session that arrives on the
connection's stream (`session/load`) may overtake what was sent before it. It is held back until the
event of the session that it follows was handled; our own server names it in a comment. With other
servers it is held back until the session's stream is quiet for a moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx
from anyio.abc import TaskGroup

from quarterdeck.errors import ConnectionClosed, JsonInvalid
from quarterdeck.http.certificates import trust
from quarterdeck.http.event_parser import EventParser, ReceivedEvent
from quarterdeck.http.remote_agent import (
    CLOSE_SECONDS,
    explained,
    network_reason,
    status_reason,
)
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.wire import (
    INTERNAL_ERROR,
    Failure,
    Notification,
    Request,
    Result,
    canonical_id,
    parse,
)
from quarterdeck.wire.framing import MAX_MESSAGE
from quarterdeck.wire.transports.base import OnBytes

EVENT_STREAM: Final = "text/event-stream"
_CONNECT_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 300.0  # for the response to a POST; `initialize` may start a program
_TRIES: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)  # seconds before each attempt to resume a stream
_SOUND_SECONDS: Final = 5.0  # that a stream has to last to be no failure
_ENDED: Final = frozenset({401, 403, 404, 409, 410})
_QUIET_SECONDS: Final = 0.05
_HELD_SECONDS: Final = 10.0  # that an answer is held back without progress
_ERROR_BYTES: Final = 8 << 10  # of a rejected request, as data of its error
_CHILD: Final = b'"subagent_update"'  # it names the session of a sub-agent
_HEADER_TEXT: Final = re.compile(r"[!-~]([ -~]*[!-~])?")


@dataclass(eq=False)
class _Stream:
    """One stream: of a session, or of the connection."""

    session: str | None
    is_open: anyio.Event = field(default_factory=anyio.Event)
    last_event: str | None = None
    last_handled: float = 0.0
    is_busy: bool = False
    """Whether received bytes are being handled."""
    advanced: anyio.Event = field(default_factory=anyio.Event)

    def notice(self) -> None:
        self.advanced.set()
        self.advanced = anyio.Event()

    def has_reached(self, event: str) -> bool:
        """Return whether an event of this stream was handled; an id is an epoch and a number."""
        epoch, _, number = (self.last_event or "").rpartition("-")
        wanted, _, least = event.rpartition("-")
        is_number = number.isdecimal() and least.isdecimal()
        return epoch != wanted or not is_number or int(number) >= int(least)


class StreamableClientTransport:
    """A transport that connects with its first message; opened by `open_remote`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        context = trust(None) if url.startswith("https:") else False
        self._client = httpx.AsyncClient(
            verify=context,
            trust_env=False,
            headers={**headers, "accept-encoding": "identity"},
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None),
        )
        self._connection_id: str | None = None
        self._streams: dict[str | None, _Stream] = {}
        self._of_session: dict[bytes, str] = {}
        """The sessions of our requests that are not answered."""
        self._requested_by: dict[bytes, str] = {}
        """The sessions of the agent's requests, by their ids."""
        self._tasks: TaskGroup | None = None
        self._running = anyio.Event()
        self._on_bytes: OnBytes | None = None
        self._reading = anyio.Event()
        self._closed = anyio.Event()
        self._reason: str | None = None

    async def run(self) -> None:
        """Read the streams."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._running.set()
            await self._closed.wait()
            tasks.cancel_scope.cancel()

    async def pump(self, on_bytes: OnBytes) -> None:
        self._on_bytes = on_bytes
        self._reading.set()
        await self._closed.wait()

    async def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line:
                await self._send_one(line)

    def send_now(self, data: bytes) -> int:
        return 0

    async def aclose(self) -> None:
        was_open = self._reason is None
        self._end("the connection was closed here")
        with anyio.move_on_after(CLOSE_SECONDS):
            if self._connection_id is not None and was_open:
                with suppress(httpx.HTTPError):  # it ends by itself when it is idle
                    await self._client.request("DELETE", self._url, headers=self._names(None))
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._client.aclose()

    async def explain_refusal(self) -> str:
        return self._explained()

    async def explain_end(self) -> str:
        return self._explained()

    # ---- what we send --------------------------------------------------------------------------

    async def _send_one(self, line: bytes) -> None:
        await self._running.wait()
        if self._closed.is_set():
            raise ConnectionClosed(self._explained())
        if self._connection_id is None:
            await self._initialize(line)
            return
        message = parse(line)
        session = self._session_of(message)
        if session is not None:
            if not _HEADER_TEXT.fullmatch(session):
                await self._fail_request(message, f"{session!r} cannot be sent in a header")
                return
            await self._open(session)
        if isinstance(message, Request) and session is not None:
            self._of_session[canonical_id(message.id)] = session
        response = await self._post(line, self._names(session))
        if response.status_code in _ENDED:
            raise self._end(status_reason(response.status_code, response.content))
        if not response.is_success:
            data = {
                "status": response.status_code,
                "body": response.content[:_ERROR_BYTES].decode("utf-8", "replace"),
            }
            reason = status_reason(response.status_code, response.content)
            await self._fail_request(message, f"the agent rejected the request: {reason}", data)

    async def _initialize(self, line: bytes) -> None:
        response = await self._post(line, {})
        if not response.is_success:
            raise self._end(status_reason(response.status_code, response.content))
        connection_id = response.headers.get("acp-connection-id")
        message = parse(response.content.strip())
        if not connection_id or not isinstance(message, Result | Failure):
            raise self._end("it does not speak ACP over HTTP at this address; check the URL")
        self._connection_id = connection_id
        await self._open(None)
        await self._deliver(response.content)

    async def _post(self, line: bytes, names: dict[str, str]) -> httpx.Response:
        headers = {"content-type": "application/json", "accept": "*/*", **names}
        try:
            return await self._client.post(self._url, content=line, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._end(network_reason(error)) from error

    def _names(self, session: str | None) -> dict[str, str]:
        named = {"acp-connection-id": self._connection_id or ""}
        return named if session is None else {**named, "acp-session-id": session}

    def _session_of(self, message: Any) -> str | None:
        if isinstance(message, Result | Failure):
            return self._requested_by.pop(canonical_id(message.id), None)
        params = message.params if isinstance(message, Request | Notification) else b"{}"
        return _text_at(_decoded(params), "sessionId")

    async def _fail_request(self, message: Any, reason: str, data: Any = None) -> None:
        """Answer a request that could not be sent; a notification is dropped, as on any transport.

        Raises:
            ConnectionClosed: if an answer could not be sent: the agent waits for it.
        """
        if isinstance(message, Request):
            error = {"code": INTERNAL_ERROR, "message": reason}
            if data is not None:
                error["data"] = data
            body = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (message.id, encode_json(error))
            await self._deliver(body)
        elif isinstance(message, Result | Failure):
            raise self._end(reason)

    # ---- what we receive -----------------------------------------------------------------------

    async def _open(self, session: str | None) -> None:
        """Open a stream and wait for it; one that is open stays.

        Raises:
            ConnectionClosed: if it cannot be opened.
        """
        stream = self._follow(session)
        await stream.is_open.wait()
        if self._closed.is_set():
            raise ConnectionClosed(self._explained())

    def _follow(self, session: str | None) -> _Stream:
        stream = self._streams.get(session)
        if stream is None:
            assert self._tasks is not None
            stream = self._streams[session] = _Stream(session)
            self._tasks.start_soon(self._keep_reading, stream)
        return stream

    async def _keep_reading(self, stream: _Stream) -> None:
        """Read a stream, and open it again where it can be resumed, until the transport ends."""
        failures = 0
        try:
            while True:
                began, before = anyio.current_time(), stream.last_event
                reason = await self._read_stream(stream)
                if self._closed.is_set() or stream.last_event is None:
                    break
                is_sound = anyio.current_time() - began >= _SOUND_SECONDS
                failures = 0 if is_sound or stream.last_event != before else failures + 1
                if failures == len(_TRIES):
                    break
                await anyio.sleep(_TRIES[failures])
            self._end(reason)
        finally:
            stream.is_open.set()

    async def _read_stream(self, stream: _Stream) -> str:
        """Read one response to its end; return why it ended."""
        headers = {"accept": EVENT_STREAM, **self._names(stream.session)}
        if stream.last_event is not None:
            headers["last-event-id"] = stream.last_event
        try:
            timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
            async with self._client.stream(
                "GET", self._url, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    reason = status_reason(response.status_code, await response.aread())
                    if response.status_code in _ENDED or response.is_client_error:
                        self._end(reason)
                    return reason
                stream.is_open.set()
                await self._read_events(stream, response)
                return "it ended a stream"
        except ConnectionClosed as error:
            self._end(str(error))
            return str(error)
        except httpx.HTTPError as error:
            reason = network_reason(error)
            if isinstance(error, httpx.ConnectError):
                self._end(reason)
            return reason

    async def _read_events(self, stream: _Stream, response: httpx.Response) -> None:
        parser = EventParser(MAX_MESSAGE)
        async for received in response.aiter_bytes():
            stream.is_busy = True
            for event in parser.feed(received):
                await self._take(stream, event)
                stream.last_event = event.last_id
            stream.last_event = parser.last_id
            stream.is_busy, stream.last_handled = False, anyio.current_time()
            stream.notice()

    async def _take(self, stream: _Stream, event: ReceivedEvent) -> None:
        data = event.data
        message = parse(data)
        if isinstance(message, Result | Failure):
            session = self._of_session.pop(canonical_id(message.id), None)
            if isinstance(message, Result) and b'"sessionId"' in message.value:
                self._follow_named(_decoded(message.value))
            if session is not None and stream.session is None:
                await self._await_session(self._streams.get(session), event.after)
        elif isinstance(message, Request) and stream.session is not None:
            self._requested_by[canonical_id(message.id)] = stream.session
        elif isinstance(message, Notification) and _CHILD in message.params:
            self._follow_named(_object_at(_decoded(message.params), "update"))
        await self._deliver(data)

    def _follow_named(self, described: Any) -> None:
        """Open the stream of a session that a message of the agent names."""
        session = _text_at(described, "sessionId")
        if session is not None and _HEADER_TEXT.fullmatch(session):
            self._follow(session)

    async def _await_session(self, stream: _Stream | None, after: str | None) -> None:
        """Wait until what was sent on a session's stream before an answer was handled."""
        if stream is None:
            return
        while after is not None and not stream.has_reached(after):
            with anyio.move_on_after(_HELD_SECONDS) as waiting:
                await stream.advanced.wait()
            if waiting.cancelled_caught:
                return
        with anyio.move_on_after(_HELD_SECONDS):
            while after is None:
                left = stream.last_handled + _QUIET_SECONDS - anyio.current_time()
                if left <= 0 and not stream.is_busy:
                    return
                await anyio.sleep(max(left, _QUIET_SECONDS / 10))

    async def _deliver(self, data: bytes) -> None:
        await self._reading.wait()
        assert self._on_bytes is not None
        # Outside of strings a line break is white space, and inside there can be none.
        hold = self._on_bytes(data.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
        if hold is not None:
            await hold.wait()

    def _end(self, reason: str) -> ConnectionClosed:
        """End the transport, for the first reason; return what to raise."""
        if self._reason is None:
            self._reason = reason
        self._closed.set()
        for stream in self._streams.values():
            stream.is_open.set()
        return ConnectionClosed(self._explained())

    def _explained(self) -> str:
        return explained(self._url, self._reason)


def _decoded(text: bytes) -> Any:
    try:
        return decode_json(text)
    except JsonInvalid:
        return None


def _object_at(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _text_at(value: Any, name: str) -> str | None:
    found = _object_at(value, name)
    return found if isinstance(found, str) else None

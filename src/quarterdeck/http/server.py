"""uvicorn with bounds on request heads, connections and shutdown; ports and signals.

uvicorn's protocols do not limit how long a client may take to send a request head; the one on
httptools does not limit its size either, and the one for WebSockets leaves a connection open,
without an answer, when it cannot read the head. Any client could hold thousands of connections, or
all memory, before any application is called. So `bounded_protocol` adds to either HTTP protocol:

- a timer from connecting (or from the first byte of a later request) to the end of the head.
  Dripping bytes do not extend it; between requests uvicorn's own keep-alive timer closes silent
  connections;
- a bound on the bytes of a head;
- a bound on the requests that a client sends ahead of the answers (pipelining): httptools parses
  all that arrive and holds each until its turn, so a client that reads no answers could fill the
  memory. No browser and none of our clients sends ahead; the connection is closed with 400;
- `ConnectionLimits` on how many connections there are, with and without a request.

A client that has begun a request reads why it is closed: 408 (too slow) or 503 (full). The format
of these answers is the caller's (`ErrorFormat`), so that they look like the application's own
errors.

uvicorn does not handle signals here: streams have to be ended by their application before uvicorn
waits for them (`running_server`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sized
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from quarterdeck.http.asgi import Application
from quarterdeck.http.fair_listener import FairListener, IsKnown
from quarterdeck.http.limits import (
    ACCEPT_BATCH,
    REJECTED_SECONDS,
    Capacity,
    ConnectionLimits,
    TlsHandshake,
    TlsIntake,
    TlsListener,
)
from quarterdeck.http.origins import IpNetwork, is_in
from quarterdeck.http.peers import AcceptedConnection, RelayedPeer, with_connection
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.process_origin import boot_seconds
from quarterdeck.wire import background_tasks

Parser: TypeAlias = Literal["auto", "h11", "httptools"]
ErrorFormat: TypeAlias = Callable[[str, str], tuple[str, bytes]]
"""Makes the content type and the body of an error from its code and its message."""

MESSAGE_BYTES: Final = 16 << 20
"""Of one WebSocket message: as much as a body of a device."""
HEAD_SECONDS: Final = 10.0
"""From the first byte, or from connecting, to the end of a request's head."""
HEAD_BYTES: Final = 64 << 10
"""More than an application accepts, so that a client that is a little over reads why."""
SENT_AHEAD: Final = 8
"""Requests of one connection that may wait for the answers before them."""
BACKLOG: Final = 4_096
"""Connections that the system keeps until they are accepted."""
RETRY_SECONDS: Final = 5
_BEGIN_SECONDS: Final = 0.1
"""For the first request of a connection that was accepted just before the end."""
_KEPT_PATH: Final[dict[str, Any]] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""The path of a Unix socket belongs to its opener: another process may take the socket over."""
_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)


def json_error(code: str, message: str) -> tuple[str, bytes]:
    body = encode_json({"error": {"code": code, "message": message, "retryable": True}})
    return "application/json", body


def text_error(_code: str, message: str) -> tuple[str, bytes]:
    return "text/plain; charset=utf-8", f"{message}\n".encode()


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a server accepts, and what is in front of it."""

    parser: Parser = "auto"
    capacity: Capacity = field(default_factory=Capacity)
    head_seconds: float = field(default_factory=lambda: HEAD_SECONDS)
    answers_silence: bool = False
    """Whether a client that sent nothing reads 408, too. Browsers open connections ahead of need,
    and some take that answer for the one to their next request."""
    has_websockets: bool = True
    error_format: ErrorFormat = json_error
    trusted_proxies: tuple[str, ...] | None = None
    """Addresses of a reverse proxy; None if there is none. It names the client of a request, and
    a client that could name itself would escape limits by address."""
    accepted_peers: tuple[IpNetwork, ...] | None = None
    """Who may connect; connections of others are closed. None: all."""
    is_known: IsKnown | None = None
    """Whose connections are begun first in a flood; None: all are alike."""
    message_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of one WebSocket message, for paths with another limit than `MESSAGE_BYTES`."""


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _BoundedHead:
    """Added to an HTTP protocol of uvicorn, whose attributes it reads."""

    limits: ConnectionLimits
    accepted_peers: tuple[IpNetwork, ...] | None
    head_seconds: float
    answers_silence: bool
    too_slow: bytes
    full: bytes
    handshake: TlsHandshake | None = None
    relayed: RelayedPeer | None = None
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    app_state: dict[str, Any]
    cycle: Any
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _is_rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        if self.handshake is not None:
            self.handshake.end()
        if self.accepted_peers is not None and not _is_accepted(transport, self.accepted_peers):
            self._is_rejected = True
            self.transport = transport
            transport.abort()
            return
        if not self.limits.admit(self.connections, len(self.connections)):
            self._reject(transport)
            return
        accepted = AcceptedConnection(
            transport.get_extra_info("socket"),
            boot_seconds(),
            transport.get_extra_info("peername"),
            relayed=self.relayed,
        )
        self.app_state = with_connection(self.app_state, accepted)
        super().connection_made(transport)  # type: ignore[misc]  # of the protocol it is added to
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._is_rejected:
            self._answer_full()
            return
        before, was_in_body = self.cycle, self._is_in_body()  # its last bytes belong to it, too
        super().data_received(data)  # type: ignore[misc]  # as above
        if was_in_body or self.cycle is not before or self._is_in_body():
            self._stop_waiting()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        elif self._is_idle():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.limits.forget(self)
        if not self._is_rejected:
            super().connection_lost(exc)  # type: ignore[misc]  # as above

    @property
    def is_new(self) -> bool:
        """Whether no request of this connection has begun."""
        return self.cycle is None and not self.transport.is_closing()

    @property
    def is_evictable(self) -> bool:
        return self.transport.is_closing() or (self._is_idle() and not self._is_in_body())

    def evict(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()  # it waits for a client that does not read
        else:
            self._close(self.full, answers_silence=False)

    def _reject(self, transport: asyncio.Transport) -> None:
        """Keep the connection for a moment, uncounted, to answer that the server is full."""
        self._is_rejected = True
        self.transport = transport
        if self.limits.reject(self):
            self._head_timer = self.loop.call_later(REJECTED_SECONDS, transport.abort)
        else:
            transport.abort()

    def _answer_full(self) -> None:
        # Not closed here: a client that is still sending would see a reset instead of the answer.
        if self._head_bytes == 0:
            self._head_bytes = 1
            self.transport.write(self.full)
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def _is_in_body(self) -> bool:
        """Whether incoming bytes are no head: a body, or frames of a WebSocket."""
        owner: object = self.transport.get_protocol()
        return owner is not self or not (self._is_idle() or not self.cycle.more_body)

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._on_timeout)
            self.limits.begin_silence(self)

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            self.limits.end_silence(self)

    def _on_timeout(self) -> None:
        self._head_timer = None
        self.limits.end_silence(self)
        if self._is_idle() and not self._is_in_body():
            self._close(self.too_slow, answers_silence=self.answers_silence)

    def _close(self, answer: bytes, *, answers_silence: bool) -> None:
        """Close the connection; a client that has begun a request reads why."""
        if self._head_bytes == 0 and not answers_silence:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class _BoundedPipeline(_BoundedHead):
    """Adds a bound on requests that wait for their turn, which only httptools holds."""

    pipeline: Sized

    def on_headers_complete(self) -> None:
        """Count a request; the parser takes an exception for a request that it cannot read."""
        if len(self.pipeline) >= SENT_AHEAD:
            raise ConnectionAbortedError("requests are sent ahead of too many answers")
        super().on_headers_complete()  # type: ignore[misc]  # of the protocol it is added to


def bounded_protocol(options: ServerOptions) -> type[asyncio.Protocol]:
    """Return the protocol of one server; on httptools, the faster parser, if it is installed."""
    base: type[asyncio.Protocol] = H11Protocol
    bounds: type = _BoundedHead  # h11 reads the next request after the answer
    parser = options.parser
    if parser == "httptools" or (parser == "auto" and find_spec("httptools") is not None):
        from uvicorn.protocols.http import httptools_impl  # noqa: PLC0415 - is optional

        base = httptools_impl.HttpToolsProtocol
        bounds = _BoundedPipeline
    attributes = {
        "limits": ConnectionLimits(options.capacity),
        "accepted_peers": options.accepted_peers,
        "head_seconds": options.head_seconds,
        "is_known": options.is_known,
        "answers_silence": options.answers_silence,
        "too_slow": _final_answer(
            "408 Request Timeout",
            *options.error_format(
                "quarterdeck/invalid", "the head of the request took too long; send it again"
            ),
        ),
        "full": _final_answer(
            "503 Service Unavailable",
            *options.error_format(
                "quarterdeck/too-many",
                f"the server has no room for another connection; try again in {RETRY_SECONDS} s",
            ),
            f"retry-after: {RETRY_SECONDS}",
        ),
    }
    return type(f"Bounded{base.__name__}", (bounds, base), attributes)


def _is_accepted(transport: asyncio.BaseTransport, networks: tuple[IpNetwork, ...]) -> bool:
    peer = transport.get_extra_info("peername")
    is_local = not isinstance(peer, tuple)  # a Unix socket of this computer
    return is_local or is_in(peer[0], networks)


def _final_answer(status: str, content_type: str, body: bytes, *headers: str) -> bytes:
    """Return a whole response after which the connection is closed."""
    lines = (
        f"HTTP/1.1 {status}",
        "connection: close",
        "cache-control: no-store",
        f"content-type: {content_type}",
        f"content-length: {len(body)}",
        *headers,
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket protocol that answers an incomplete head: it gets the whole head at once."""

    message_bytes: Mapping[str, int]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # It would log every header, with tokens, for debugging, and whole addresses always.
        self.conn.debug = False
        self.logger = _quiet

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.write(_BAD_REQUEST)
            self.transport.close()

    @override
    def handle_connect(self, event: Request) -> None:
        limit = self.message_bytes.get(event.path.partition("?")[0])
        if limit is not None:
            self.conn.max_message_size = limit
        super().handle_connect(event)


def bounded_websocket(options: ServerOptions) -> type[asyncio.Protocol]:
    """Return the WebSocket protocol of one server."""
    attributes = {"message_bytes": options.message_bytes}
    return type(BoundedWebSocket.__name__, (BoundedWebSocket,), attributes)


class BoundedServer(uvicorn.Server):
    """Accepts a flood of connections in small batches; leaves signals to the caller."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = anyio.Event()

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        config, protocol = self.config, self._protocol
        loop = asyncio.get_running_loop()
        self.servers = []
        for each in sockets or ():
            server: Any
            if each.family == socket.AF_UNIX:
                server = await loop.create_unix_server(
                    protocol, sock=each, backlog=ACCEPT_BATCH, **_KEPT_PATH
                )
                each.listen(BACKLOG)  # the loop has set it to what it accepts in one turn
                self.servers.append(server)
            else:
                self.accept_at(each, config.ssl)
        self.started = True
        self.has_started.set()

    def accept_at(self, listener: socket.socket, tls: ssl.SSLContext | None) -> Callable[[], None]:
        """Accept connections at a TCP socket; return what ends that."""
        server: Any
        if tls is None:
            made: Any = self.config.http_protocol_class
            server = FairListener(listener, self._protocol, is_known=made.is_known)
        else:
            server = TlsListener(listener, tls, **self._intake)
        self.servers.append(server)

        def end() -> None:
            if server in self.servers:
                self.servers.remove(server)
                server.close()

        return end

    @property
    def _protocol(self) -> Callable[[], Any]:
        """What makes the protocol of a connection."""
        return partial(
            cast("Any", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    @property
    def _intake(self) -> dict[str, Any]:
        """How TLS connections are taken in; see `TlsIntake`."""
        make_protocol = self._protocol

        def protocol(handshake: TlsHandshake) -> asyncio.Protocol:
            made = make_protocol()
            made.handshake = handshake
            made.relayed = handshake.relayed
            return cast("asyncio.Protocol", made)

        made: Any = self.config.http_protocol_class
        return {
            "limits": made.limits,
            "connections": self.server_state.connections,
            "make_protocol": protocol,
            "seconds": made.head_seconds,
        }


class RelayedServer(BoundedServer):
    """Serves connections that a relay has joined with its clients; it listens nowhere.

    Each is TLS, marked as relayed, and no header of a proxy is believed on it.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        assert not config.proxy_headers, "a client could name itself"
        super().__init__(config)
        self._taken: TlsIntake | None = None

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self._taken = TlsIntake(**self._intake)
        taken: Any = self._taken
        self.servers = [taken]
        self.started = True

    def begin(self, connection: socket.socket, tls: ssl.SSLContext, peer: RelayedPeer) -> None:
        """Serve a connection, whose socket belongs to the server from now on."""
        if self._taken is None:
            connection.close()
        else:
            self._taken.begin(connection, tls, peer)


def server_config(
    app: Application, options: ServerOptions, *, end_seconds: int, **more: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application; `more` is passed on, such as TLS files.

    Requests that are being answered when the server ends have `end_seconds` to finish.
    """
    return uvicorn.Config(
        app,
        loop="none",
        http=bounded_protocol(options),
        ws=bounded_websocket(options) if options.has_websockets else "none",
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,  # costs memory for each client, and accepts zip bombs
        proxy_headers=options.trusted_proxies is not None,
        forwarded_allow_ips=list(options.trusted_proxies or ()),
        server_header=False,
        access_log=False,  # it has whole addresses: clients put tokens there by mistake
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=end_seconds,
        **more,
    )


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen at an address while the body runs; port 0 is any free one.

    Raises:
        OSError: if the address is not available; `filename` names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named for asyncio, which else leaves Nagle's algorithm on: 40 ms an answer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        yield listener


class RunningServer:
    """A server that is running, and can accept connections at further sockets."""

    def __init__(self, server: BoundedServer) -> None:
        self._server = server

    async def accept_at(
        self, listener: socket.socket, tls: ssl.SSLContext | None = None
    ) -> Callable[[], None]:
        """Accept connections at another TCP socket; return a function that ends that.

        The socket stays the caller's. Connections that were accepted outlive the end.
        """
        await self._server.has_started.wait()
        return self._server.accept_at(listener, tls)


@asynccontextmanager
async def running_server(
    config: uvicorn.Config, *listeners: socket.socket, before_end: Callable[[], Awaitable[None]]
) -> AsyncIterator[RunningServer]:
    """Serve at TCP and Unix sockets while the body runs; TLS is for TCP alone.

    When it ends, `before_end` closes the application's streams with a reason, and `end_seconds` of
    the configuration later everything is closed that is still open.
    """
    server = BoundedServer(config)
    async with _running(server, *listeners, before_end=before_end):
        yield RunningServer(server)


@asynccontextmanager
async def running_relayed(
    config: uvicorn.Config, *, before_end: Callable[[], Awaitable[None]]
) -> AsyncIterator[RelayedServer]:
    """Serve the connections of a relay while the body runs; it ends as `running_server` does."""
    server = RelayedServer(config)
    async with _running(server, before_end=before_end):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await anyio.sleep(0.001)
        yield server


@asynccontextmanager
async def _running(
    server: BoundedServer, *listeners: socket.socket, before_end: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    ended = anyio.Event()

    async def serve() -> None:
        try:
            await server.serve(sockets=list(listeners))
        finally:
            ended.set()

    async with background_tasks() as tasks:
        tasks.start_soon(serve)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await before_end()
                await _drain(server)
                await _stop_accepting(server)
                server.should_exit = True
                with anyio.move_on_after((server.config.timeout_graceful_shutdown or 0) + 1):
                    await ended.wait()


async def _stop_accepting(server: uvicorn.Server) -> None:
    """Accept no more connections, and begin the requests of those that were accepted.

    uvicorn would close them, and a client that has just sent a request would see a reset. Those
    that wait in the kernel are for the next process that listens at the socket, if there is one.
    """
    for each in getattr(server, "servers", ()):  # none if it has not started
        each.close()
    await anyio.sleep(0.005)  # what was accepted in this turn of the loop is begun in the next
    with anyio.move_on_after(_BEGIN_SECONDS):
        while any(getattr(each, "is_new", False) for each in server.server_state.connections):  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def _drain(server: uvicorn.Server) -> None:
    """Wait a moment for streams to end: uvicorn closes what it finds open, without a reason."""
    with anyio.move_on_after(1.0):
        while server.server_state.tasks:  # noqa: ASYNC110 - nothing reports it
            await anyio.sleep(0.01)

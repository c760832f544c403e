"""uvicorn's protocols, with an end to the patience they have for the head of a request.

None of them limits how long a client may take to say what it wants; the one on httptools does not
limit how much it may say, and the one for WebSockets leaves a connection open, without an answer,
when it cannot read the head. A stranger could keep thousands of connections, or all memory. The
guard comes too late for that, as there is no request yet.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from quarterdeck.jsontext import encode_json
from quarterdeck.server.arrivals import (
    ACCEPTED_AT_ONCE,
    TURNED_AWAY_SECONDS,
    Arrival,
    Entrance,
    TlsServer,
)
from quarterdeck.server.doorway import Doorway, Room
from quarterdeck.server.listening import Listening

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


Parser: TypeAlias = Literal["auto", "h11", "httptools"]

MESSAGE_BYTES: Final = 16 << 20
"""Of one WebSocket message: as much as a body of a device."""
HEAD_SECONDS: Final = 10.0
"""From the first byte, or from connecting, to the end of a request's head."""
HEAD_BYTES: Final = 64 << 10
"""More than `rules` allows, so that a client that is a little over is told so."""
QUEUE: Final = 1_024
"""Connections that the system keeps until they are taken."""
RETRY_SECONDS: Final = 5
_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)


def _last_words(status: str, code: str, message: str, *headers: str) -> bytes:
    """Return a whole answer after which the connection is closed."""
    body = encode_json({"error": {"code": code, "message": message, "retryable": True}})
    lines = (
        f"HTTP/1.1 {status}",
        "connection: close",
        "cache-control: no-store",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *headers,
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_SLOW: Final = _last_words(
    "408 Request Timeout",
    "quarterdeck/invalid",
    "the head of the request took too long; send it again",
)
_FULL: Final = _last_words(
    "503 Service Unavailable",
    "quarterdeck/too-many",
    f"the hub has no room for another connection now; try again in {RETRY_SECONDS} s",
    f"retry-after: {RETRY_SECONDS}",
)


class _Bounded:
    """Added to a protocol of uvicorn, whose attributes it looks at."""

    door: Doorway
    arrival: Arrival | None = None
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    cycle: Any
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _is_turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        if self.arrival is not None:
            self.arrival.leave()
        if not self.door.has_room(self.connections, len(self.connections)):
            self._turn_away(transport)
            return
        super().connection_made(transport)  # type: ignore[misc]  # of the protocol it is added to
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._is_turned_away:
            self._say_that_it_is_full()
            return
        before, was_in_body = self.cycle, self._is_in_body()  # its last bytes are of it, too
        super().data_received(data)  # type: ignore[misc]  # as above
        if was_in_body or self.cycle is not before or self._is_in_body():
            self._stop_waiting()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        elif self._is_idle():
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.door.left(self)
        if not self._is_turned_away:
            super().connection_lost(exc)  # type: ignore[misc]  # as above

    @property
    def can_go(self) -> bool:
        return self.transport.is_closing() or (self._is_idle() and not self._is_in_body())

    def make_way(self) -> None:
        """Go because others need the place."""
        if self.transport.is_closing():
            self.transport.abort()  # it is waiting for somebody who does not read
        else:
            self._leave(_FULL)

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Stay for a moment, without a place, to say that there is none."""
        self._is_turned_away = True
        self.transport = transport
        if self.door.turns_away(self):
            self._head_timer = self.loop.call_later(TURNED_AWAY_SECONDS, transport.abort)
        else:
            transport.abort()

    def _say_that_it_is_full(self) -> None:
        # It is not closed here: whoever is still sending would see a reset instead of an answer.
        if self._head_bytes == 0:
            self._head_bytes = 1
            self.transport.write(_FULL)
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def _is_in_body(self) -> bool:
        """Whether what comes now is none of our business: a body, or what a WebSocket says."""
        owner: object = self.transport.get_protocol()
        return owner is not self or not (self._is_idle() or not self.cycle.more_body)

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)
            self.door.keeps_silent(self)

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            self.door.spoke(self)

    def _give_up(self) -> None:
        self._head_timer = None
        self.door.spoke(self)
        if self._is_idle() and not self._is_in_body():
            self._leave(_TOO_SLOW)

    def _leave(self, words: bytes) -> None:
        """Close the connection; whoever has begun to ask something is told why."""
        if self._head_bytes == 0:
            self.transport.abort()
        else:
            self.transport.write(words)
            self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """It gets the whole head at once, so a head that is none will never be one."""

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


class BoundedServer(uvicorn.Server):
    """Takes a flood of connections in small portions; signals are left to whoever runs it."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        config = self.config
        made: Any = config.http_protocol_class
        protocol = partial(
            made,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        self.servers = []
        for each in sockets or ():
            server: Any
            if config.ssl is None:
                server = await loop.create_server(protocol, sock=each, backlog=ACCEPTED_AT_ONCE)
            else:
                server = self._tls_server(each, protocol, config.ssl)
            self.servers.append(server)
            each.listen(QUEUE)  # the loop has set it to what it takes in one turn
        self.started = True

    def _tls_server(
        self, listener: socket.socket, make_protocol: Callable[[], Any], tls: ssl.SSLContext
    ) -> TlsServer:
        def protocol(arrival: Arrival) -> asyncio.Protocol:
            made = make_protocol()
            made.arrival = arrival
            return cast("asyncio.Protocol", made)

        made: Any = self.config.http_protocol_class
        entrance = Entrance(
            door=made.door,
            connections=self.server_state.connections,
            protocol=protocol,
            tls=tls,
            seconds=HEAD_SECONDS,
        )
        return TlsServer(listener, entrance)


def uvicorn_settings(
    listening: Listening, parser: Parser = "auto", *, room: Room | None = None
) -> dict[str, Any]:
    """Return what `uvicorn.Config` must be told for the gate to hold."""
    return {
        "http": bounded_http(parser, room),
        "ws": BoundedWebSocket,
        "ws_max_size": MESSAGE_BYTES,
        "ws_per_message_deflate": False,  # costs memory for each client, and lets in bombs
        # Whoever may say where a request comes from escapes the limits on pairing.
        "proxy_headers": listening.is_behind_proxy,
        "forwarded_allow_ips": list(listening.trusted_proxies),
        "server_header": False,
        "access_log": False,  # it has whole addresses: clients put tokens there by mistake
        "log_config": None,
        "lifespan": "off",
    }


def bounded_http(parser: Parser = "auto", room: Room | None = None) -> type[asyncio.Protocol]:
    """Return the protocol to serve HTTP with, at one door: the faster one if it is installed."""
    base: type[asyncio.Protocol] = H11Protocol
    if parser == "httptools" or (parser == "auto" and find_spec("httptools") is not None):
        from uvicorn.protocols.http.httptools_impl import (  # noqa: PLC0415 - an optional dependency
            HttpToolsProtocol,
        )

        base = HttpToolsProtocol
    return type(f"Bounded{base.__name__}", (_Bounded, base), {"door": Doorway(room)})

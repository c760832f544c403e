"""uvicorn's protocols, with an end to the patience they have for the head of a request.

None of them limits how long a client may take to say what it wants; the one on httptools does not
limit how much it may say, and the one for WebSockets leaves a connection open, without an answer,
when it cannot read the head. A stranger could keep thousands of connections, or all memory. The
guard comes too late for that, as there is no request yet.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

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
_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)
_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _Bounded:
    """Added to a protocol of uvicorn, whose attributes it looks at."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[misc]  # of the protocol it is added to
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
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
        super().connection_lost(exc)  # type: ignore[misc]  # as above

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

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self._is_idle() and not self._is_in_body():
            self.transport.abort()


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


class BoundedH11(_Bounded, H11Protocol):
    """The parser in pure Python."""


def uvicorn_settings(listening: Listening, parser: Parser = "auto") -> dict[str, Any]:
    """Return what `uvicorn.Config` must be told for the gate to hold."""
    return {
        "http": bounded_http(parser),
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


def bounded_http(parser: Parser = "auto") -> type[asyncio.Protocol]:
    """Return the protocol to serve HTTP with: the faster one if it is installed."""
    if parser == "h11" or (parser == "auto" and find_spec("httptools") is None):
        return BoundedH11
    from uvicorn.protocols.http.httptools_impl import (  # noqa: PLC0415 - an optional dependency
        HttpToolsProtocol,
    )

    class BoundedHttpTools(_Bounded, HttpToolsProtocol):
        """The parser in C."""

    return BoundedHttpTools

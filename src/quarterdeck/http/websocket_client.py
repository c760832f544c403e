"""The client side of ACP over a WebSocket: one JSON-RPC message in each text frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
from typing_extensions import override
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed as SocketClosed,
    InvalidHandshake,
    InvalidStatus,
)

from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.remote_agent import (
    CLOSE_SECONDS,
    explained,
    network_reason,
    status_reason,
)
from quarterdeck.wire.framing import MAX_MESSAGE
from quarterdeck.wire.transports.base import OnBytes

_OPEN_SECONDS: Final = 30.0
_PING_SECONDS: Final = 20.0


class _WithoutRedirects(connect):
    """A redirect would send the headers to another server."""

    @override
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WebSocketClientTransport:
    """A transport that connects with its first message; opened by `open_remote`."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._socket: ClientConnection | None = None
        self._reason: str | None = None
        self._is_connected = anyio.Event()
        self._is_closed = False

    async def run(self) -> None:
        """Nothing has to be done beside reading and writing."""

    async def pump(self, on_bytes: OnBytes) -> None:
        await self._is_connected.wait()
        if self._socket is None:
            return
        try:
            async for frame in self._socket:
                if not isinstance(frame, str):
                    continue  # binary frames carry no messages
                hold = on_bytes(frame.replace("\n", " ").replace("\r", " ").encode() + b"\n")
                if hold is not None:
                    await hold.wait()
        except SocketClosed as error:
            self._reason = self._reason or _closing_reason(error)
        self._reason = self._reason or "it closed the connection"

    async def send(self, data: bytes) -> None:
        socket = self._socket or await self._connect()
        try:
            for line in data.split(b"\n"):
                if line:
                    await socket.send(line.decode())
        except SocketClosed as error:
            self._reason = self._reason or _closing_reason(error)
            raise ConnectionClosed(self._explained()) from error

    def send_now(self, data: bytes) -> int:
        return 0

    async def aclose(self) -> None:
        self._is_closed = True
        self._is_connected.set()
        if self._socket is not None:
            with anyio.move_on_after(CLOSE_SECONDS):
                await self._socket.close()

    async def explain_refusal(self) -> str:
        return self._explained()

    async def explain_end(self) -> str:
        return self._explained()

    async def _connect(self) -> ClientConnection:
        try:
            if self._is_closed:
                raise ConnectionClosed(self._explained())
            self._socket = await _WithoutRedirects(self._url, **self._options())
        except InvalidStatus as error:
            response = error.response
            self._reason = status_reason(response.status_code, bytes(response.body or b""))
            raise ConnectionClosed(self._explained()) from error
        except InvalidHandshake as error:
            self._reason = "it does not speak WebSocket at this address; check the URL"
            raise ConnectionClosed(self._explained()) from error
        except (OSError, TimeoutError) as error:
            self._reason = network_reason(error)
            raise ConnectionClosed(self._explained()) from error
        finally:
            self._is_connected.set()
        return self._socket

    def _options(self) -> dict[str, Any]:
        return {
            "additional_headers": self._headers,
            "open_timeout": _OPEN_SECONDS,
            "ping_interval": _PING_SECONDS,
            "close_timeout": CLOSE_SECONDS,
            "max_size": MAX_MESSAGE,
            "proxy": None,
        }

    def _explained(self) -> str:
        return explained(self._url, self._reason)


def _closing_reason(error: SocketClosed) -> str:
    if error.rcvd is None:
        return "the connection broke"
    return f"it closed the connection: {error.rcvd.reason or f'code {error.rcvd.code}'}"

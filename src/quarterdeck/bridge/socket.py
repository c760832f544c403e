"""ACP over a WebSocket: one JSON-RPC message in each text frame, as ACP's draft has it."""

from __future__ import annotations

from typing import Final

import anyio
from starlette.types import Receive, Send

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire.transports.base import OnBytes

NORMAL, GOING_AWAY = 1000, 1001
_CLOSE_SECONDS: Final = 1.0
_NO_MESSAGE: Final = b"?\n"  # what is no object could be taken for another framing
_GONE: Final = "the client is gone"


class SocketTransport:
    """What a `Connection` needs of an accepted WebSocket."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.closing: tuple[int, str] = (NORMAL, "")
        """Code and reason to close with."""
        self._receive = receive
        self._send = send
        self._has_left = False

    async def pump(self, on_bytes: OnBytes) -> None:
        while not self._has_left:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._has_left = True
                return
            text = message.get("text")
            if text is None:
                continue  # the draft: binary frames are ignored
            hold = on_bytes(_line(text))
            if hold is not None:
                await hold.wait()

    async def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line:
                await self._say(line.decode())

    def send_now(self, data: bytes) -> int:
        return 0

    def leave(self) -> None:
        """Say nothing more, not even goodbye: somebody else does."""
        self._has_left = True

    async def aclose(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        code, reason = self.closing
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
            except (OSError, RuntimeError):
                return  # it has gone by itself

    async def explain_refusal(self) -> str:
        return _GONE

    async def explain_end(self) -> str:
        return _GONE

    async def _say(self, text: str) -> None:
        if self._has_left:
            raise ConnectionClosed(_GONE)
        try:
            await self._send({"type": "websocket.send", "text": text})
        except OSError as error:
            self._has_left = True
            raise ConnectionClosed(_GONE) from error


def _line(text: str) -> bytes:
    # Outside of strings a line break is a blank, and inside there can be none.
    line = text.encode("utf-8", "replace").replace(b"\n", b" ").replace(b"\r", b" ").strip()
    return line + b"\n" if line.startswith((b"{", b"[")) else _NO_MESSAGE

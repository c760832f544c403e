"""ACP over WebSockets: one JSON-RPC message in each text frame, one connection for each socket.

The 101 has an `Acp-Connection-Id`. What is no message is answered with -32600 or -32700 and the id
null, and the socket stays open. It is closed with 1001 when the server ends, 1008 when the client
does not read, and 1011 when serving it failed.
"""

from __future__ import annotations

import logging
import secrets

import anyio

from quarterdeck.agent.http.posted import TEXT
from quarterdeck.agent.server import AcpService
from quarterdeck.http.asgi import Message, Receive, Send
from quarterdeck.http.origins import RejectedRequest
from quarterdeck.http.websocket import (
    FAILED,
    GOING_AWAY,
    AcpWebSocketTransport,
    accept_websocket,
)
from quarterdeck.wire import background_tasks

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 0.5  # for the end of a rejected socket
_END_SECONDS = 12.0  # for turns to be answered and sessions to be closed when the server ends


class WebSockets:
    """The WebSockets of one server."""

    def __init__(self, most: int | None = None) -> None:
        """Accept so many at once; None leaves that to the caller."""
        self._most = most
        self._ending = anyio.Event()
        self._open = 0
        self._emptied = anyio.Event()

    def dismiss(self) -> None:
        """End every socket, with 1001; none is accepted any more."""
        self._ending.set()

    async def aclose(self) -> None:
        """Wait until every socket has ended."""
        self.dismiss()
        with anyio.move_on_after(_END_SECONDS):
            while self._open:
                await self._emptied.wait()

    async def serve(
        self, service: AcpService, receive: Receive, send: Send, *, max_sessions: int | None = None
    ) -> None:
        """Serve one client until it leaves or the server ends."""
        named = (b"acp-connection-id", secrets.token_urlsafe(24).encode())
        if not await accept_websocket(receive, send, [named]):
            return
        transport = AcpWebSocketTransport(receive, send)
        if self._most is not None and self._open >= self._most:
            transport.closing = (GOING_AWAY, "too many clients; try again when one has left")
            await transport.aclose()
            return
        self._open += 1
        try:
            await self._converse(service, transport, max_sessions)
        except Exception:  # one client must not end the others
            logger.exception("serving a client failed")
            transport.closing = (FAILED, "internal error; connect again")
            await transport.aclose()
        finally:
            self._open -= 1
            self._emptied.set()
            self._emptied = anyio.Event()

    async def _converse(
        self, service: AcpService, transport: AcpWebSocketTransport, max_sessions: int | None
    ) -> None:
        over = anyio.Event()

        async def heed_end() -> None:
            await self._ending.wait()
            transport.closing = (GOING_AWAY, "the server ends; connect again")
            over.set()

        async with (
            service.serve_client(transport, max_sessions=max_sessions) as connection,
            background_tasks() as tasks,
        ):

            async def heed_client() -> None:
                await connection.wait_closed()
                over.set()

            tasks.start_soon(heed_end)
            tasks.start_soon(heed_client)
            try:
                await over.wait()
            except anyio.get_cancelled_exc_class():
                transport.detach()  # the caller closes it with the reason
                raise


async def reject_websocket(
    scope: Message, receive: Receive, send: Send, refusal: RejectedRequest
) -> None:
    """Reject a WebSocket with a status, if the server can send one."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    body = f"{refusal.reason}\n".encode()
    known = (*refusal.headers, ("content-type", TEXT), ("content-length", str(len(body))))
    headers = [(name.encode(), text.encode("latin-1", "replace")) for name, text in known]
    start = {"type": "websocket.http.response.start", "status": refusal.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})
    # uvicorn reports the end twice, and logs an error if the application returns before.
    with anyio.move_on_after(_CLOSE_SECONDS):
        for _ in range(2):
            await receive()

"""The link over a TLS WebSocket, for a runner on another machine.

Each batch is a binary message, or several if it is large. A shared token, compared in constant time
before anything else, takes the place of the user id that a Unix socket has; TLS is required, so
that the token and the events stay between the two. Everything else is as on a Unix socket.
"""

from __future__ import annotations

import asyncio
import hmac
import http
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Final

from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.http11 import Request, Response

from quarterdeck.errors import StartRefused
from quarterdeck.runner.link.frames import MOST_BATCH
from quarterdeck.runner.link.transport import (
    LinkEnd,
    LinkSocket,
    MessageTransport,
    RunnerAddress,
    ServedSocket,
)
from quarterdeck.wire import IndependentTasks

OPEN_SECONDS: Final = 15.0
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 2.0
_OVERHEAD: Final = 4  # bytes of a batch's own size


async def run_link(websocket: Connection, link: LinkSocket) -> None:
    """Run a link over a WebSocket until either side ends it."""
    transport = MessageTransport(
        link, send=websocket.send, close=websocket.close, abort=websocket.transport.abort
    )
    link.connection_made(transport)
    sender = asyncio.ensure_future(_send_all(transport))
    try:
        async for message in websocket:
            await transport.receive(message if isinstance(message, bytes) else message.encode())
    except ConnectionClosed:
        pass  # as `connection_lost` reports it
    finally:
        sender.cancel()
        link.connection_lost(None)


async def _send_all(transport: MessageTransport) -> None:
    with suppress(ConnectionClosed):  # the reading side reports it
        await transport.send_all()


async def connect_websocket(
    address: RunnerAddress,
    make_end: Callable[[LinkSocket], LinkEnd],
    tasks: IndependentTasks,
) -> LinkSocket:
    """Connect to a runner's WebSocket; a task runs the link.

    Raises:
        OSError: if it cannot be reached.
        StartRefused: if it refuses the token, or this is no runner.
    """
    if not address.url.startswith("wss://"):
        raise StartRefused(f"{address.url} is not encrypted", "use an address with wss://")
    try:
        websocket = await connect(
            address.url,
            ssl=address.tls,
            additional_headers={"Authorization": f"Bearer {address.token}"},
            max_size=MOST_BATCH + _OVERHEAD,
            compression=None,
            open_timeout=OPEN_SECONDS,
            ping_interval=PING_SECONDS,
            close_timeout=CLOSE_SECONDS,
            proxy=None,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        reason = f"the runner at {address.url} refused the connection ({status})"
        raise StartRefused(reason, "check its token") from error
    except (InvalidHandshake, InvalidURI) as error:
        reason = f"{address.url} is not the address of a runner ({error})"
        raise StartRefused(reason, "check the address") from error
    link = LinkSocket(make_end)
    tasks.start_soon(run_link, websocket, link)
    await asyncio.sleep(0)  # the task begins
    return link


@asynccontextmanager
async def serving_websocket(
    host: str,
    port: int,
    *,
    token: str,
    tls: SSLContext,
    make_end: Callable[[LinkSocket], LinkEnd],
) -> AsyncIterator[int]:
    """Accept links at a port while the body runs, and end them afterwards; yield the port.

    Raises:
        OSError: if the address cannot be bound.
    """
    expected = f"Bearer {token}".encode()
    links: set[LinkSocket] = set()

    def check(connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "").encode()
        if hmac.compare_digest(given, expected):
            return None
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "the token is not valid\n")

    async def accept(websocket: ServerConnection) -> None:
        link = ServedSocket(make_end)
        links.add(link)
        try:
            await run_link(websocket, link)
        finally:
            links.discard(link)

    async with serve(
        accept,
        host,
        port,
        ssl=tls,
        process_request=check,
        max_size=MOST_BATCH + _OVERHEAD,
        compression=None,
        open_timeout=OPEN_SECONDS,
        ping_interval=PING_SECONDS,
        close_timeout=CLOSE_SECONDS,
    ) as server:
        try:
            yield next(iter(server.sockets)).getsockname()[1]
        finally:
            for link in tuple(links):
                link.close("the runner has ended")

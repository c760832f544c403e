"""An ASGI application on a real port, and bare sockets to talk to it: they can send anything."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import SocketStream

from quarterdeck.http.limits import Capacity
from quarterdeck.http.origins import Listening
from quarterdeck.http.server import BoundedServer, ServerOptions, server_config
from quarterdeck.http.unix_sockets import listening_unix
from quarterdeck.hub.api.endpoint import Asgi

Parser: TypeAlias = Literal["h11", "httptools"]
PARSERS: Final[tuple[Parser, ...]] = ("h11", "httptools")
LOOPBACK: Final = Listening()
PATIENCE: Final = 60.0  # on a busy machine

UPGRADE: Final = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)


@dataclass(frozen=True)
class Reply:
    """A response; status 0 if the connection was closed without one."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection, read by marks and by counts."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._rest = b""

    async def send(self, raw: bytes) -> None:
        await self.stream.send(raw)

    async def until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._rest += await self.stream.receive()
        found, _, self._rest = self._rest.partition(mark)
        return found

    async def exactly(self, count: int) -> bytes:
        while len(self._rest) < count:
            self._rest += await self.stream.receive()
        found, self._rest = self._rest[:count], self._rest[count:]
        return found

    async def rest(self) -> bytes:
        """Return all that comes until the other side closes."""
        try:
            while True:
                self._rest += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            found, self._rest = self._rest, b""
            return found

    async def reply(self) -> Reply:
        """Read one response; a chunked body is joined."""
        try:
            status, headers = await self.head()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return Reply(0, (), b"")
        reply = Reply(status, headers, b"")
        if status in (101, 204):
            return reply
        if reply.header("transfer-encoding") == "chunked":
            parts = []
            while part := await self.chunk():
                parts.append(part)
            return Reply(status, headers, b"".join(parts))
        length = reply.header("content-length")
        body = await self.rest() if length is None else await self.exactly(int(length))
        return Reply(status, headers, body)

    async def head(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        first, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        split = (line.partition(":") for line in lines)
        return int(first.split()[1]), tuple((n.lower(), v.strip()) for n, _, v in split)

    async def chunk(self) -> bytes:
        """Take one chunk of a chunked body; b"" is its proper end."""
        size = int(await self.until(b"\r\n"), 16)
        return (await self.exactly(size + 2))[:-2]

    async def frame(self) -> tuple[int, bytes]:
        """Read one short WebSocket frame of a server: opcode and payload."""
        first, size = await self.exactly(2)
        assert size < 126
        return first & 0x0F, await self.exactly(size)


@dataclass(frozen=True)
class Served:
    """An application at a port."""

    port: int
    parser: Parser

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Wire]:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            yield Wire(stream)

    async def ask(
        self,
        first: str,
        *lines: str,
        host: str | None = "",
        body: bytes | None = None,
    ) -> Reply:
        """Send one request as it is written and return the response.

        `host` "" is our own and None is none at all; with a body, its length is added.
        """
        raw = request(first, *lines, host=host or self.host if host is not None else None)
        if body is not None:
            raw = raw[:-2] + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        return await self.send(raw)

    async def send(self, raw: bytes) -> Reply:
        async with self.connect() as wire:
            with anyio.fail_after(PATIENCE):
                # Rejected before all was sent: the response can be read all the same.
                with suppress(anyio.BrokenResourceError):
                    await wire.send(raw)
                return await wire.reply()

    async def call(
        self, method: str, path: str, *lines: str, token: str | None = None, json: Any = None
    ) -> Reply:
        """Make an ordinary request of a program."""
        if token is not None:
            lines = (*lines, f"Authorization: Bearer {token}")
        if json is None:
            return await self.ask(f"{method} {path} HTTP/1.1", *lines)
        body = _dumps(json)
        lines = (*lines, "Content-Type: application/json")
        return await self.ask(f"{method} {path} HTTP/1.1", *lines, body=body)


def _dumps(value: Any) -> bytes:
    return json.dumps(value).encode()


def request(first: str, *lines: str, host: str | None) -> bytes:
    """Return the bytes of a request's head."""
    named = [] if host is None else [f"Host: {host}"]
    return "\r\n".join([first, *named, *lines, "", ""]).encode("latin-1")


@asynccontextmanager
async def serving(
    make_app: Callable[[int], Asgi],
    parser: Parser,
    listening: Listening = LOOPBACK,
    *,
    capacity: Capacity | None = None,
    tls: dict[str, Any] | None = None,
    unix: Path | None = None,
) -> AsyncIterator[Served]:
    """Serve what `make_app` makes for a port, in this process; at a Unix socket, too."""
    with socket.socket() as listener, ExitStack() as stack:
        listeners = [listener]
        if unix is not None:
            listeners.append(stack.enter_context(listening_unix(unix)))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        port = listener.getsockname()[1]
        options = ServerOptions(
            parser=parser,
            capacity=capacity or Capacity(),
            trusted_proxies=listening.proxies,
        )
        config = server_config(make_app(port), options, end_seconds=2, **(tls or {}))
        config.load()
        server = BoundedServer(config)
        server.lifespan = config.lifespan_class(config)
        # Without its main loop, which looks only ten times a second whether it is to end.
        await server.on_tick(0)
        await server.startup(listeners)
        try:
            yield Served(port, parser)
        finally:
            with anyio.fail_after(PATIENCE, shield=True):
                await server.shutdown(listeners)

"""A hub of nothing but streams on a real port, and a client made of a bare socket."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import anyio
import uvicorn
from anyio.abc import SocketStream
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.host import Host
from quarterdeck.hub.api.endpoint import make_router
from quarterdeck.hub.auth.device import SCOPE_KEY, Device
from quarterdeck.hub.streams.endpoints import stream_endpoints
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.wire import background_tasks
from tests.hub.streams.bare_runner import bare_runner

logger = logging.getLogger(__name__)

PATIENCE = 60.0
DEVICES = {
    scope: Device(id=scope, name=scope, scope=scope, created_at="2026-01-01T00:00:00Z")
    for scope in ("view", "prompt", "approve", "admin")
}


def bare_hub(host: Host, devices: Any = None) -> StreamSources:
    """Return a hub that is nothing but a host."""

    def start_in_background(work: Callable[[], Awaitable[Any]]) -> None:
        async def run() -> None:
            try:
                await work()
            except Exception:
                logger.exception("work for a client failed")

        host.start_soon(run)

    return StreamSources(
        runner=bare_runner(host), start_in_background=start_in_background, devices=devices
    )


class _Devices:
    """Stands where the guard does: who comes with `Bearer view` has that scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        await self._app({**scope, SCOPE_KEY: DEVICES.get(token)}, receive, send)


class _Server(uvicorn.Server):
    """Says when it listens; signals are not its business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # type: ignore[explicit-override]
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[explicit-override]
        yield


@asynccontextmanager
async def serving_app(app: ASGIApp, http: str = "httptools") -> AsyncIterator[int]:
    """Serve an application and give its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        config = uvicorn.Config(
            app,
            http=http,
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
            ws_per_message_deflate=False,
        )
        server, ended = _Server(config), anyio.Event()

        async def run() -> None:
            await server.serve(sockets=[listener])
            ended.set()

        async with background_tasks() as tasks:
            tasks.start_soon(run)
            await server.ready.wait()
            try:
                yield listener.getsockname()[1]
            finally:
                server.should_exit = True
                with anyio.move_on_after(5, shield=True):
                    await ended.wait()


@asynccontextmanager
async def serving(
    hub: Any, http: str = "httptools", *, tick_seconds: float = 5.0
) -> AsyncIterator[int]:
    """Serve the streams of a hub and give the port."""
    router = make_router(stream_endpoints(hub, tick_seconds=tick_seconds))
    async with serving_app(_Devices(router), http) as port:
        yield port


@dataclass
class Said:
    """One event of a stream."""

    id: str | None
    name: str
    data: Any


@dataclass
class EventParser:
    """Reads an event stream as a browser does, cut at any byte."""

    last_id: str = ""
    comments: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _data: list[str] = field(default_factory=list)
    _name: str = ""
    _id: str | None = None

    def feed(self, chunk: bytes) -> list[Said]:
        said: list[Said] = []
        *lines, self._rest = (self._rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            assert b"\r" not in line
            if line:
                self._take(line.decode())
            else:
                if self._id is not None:
                    self.last_id = self._id
                if self._data:
                    data = json.loads("\n".join(self._data))
                    said.append(Said(self._id, self._name or "message", data))
                self._data, self._name, self._id = [], "", None
        return said

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                self.comments.append(value)
            case "data":
                self._data.append(value)
            case "event":
                self._name = value
            case "id":
                self._id = value
            case _:
                assert name == "retry", line


class Chunks:
    """Takes chunked transfer coding off, cut at any byte; what is there of a chunk is given."""

    def __init__(self) -> None:
        self._head = b""
        self._left = -1  # of the chunk; -1 while its head is read
        self.is_ended = False

    def feed(self, data: bytes) -> bytes:
        out = []
        while data and not self.is_ended:
            if self._left < 0:
                self._head, data = self._head + data[:1], data[1:]
                if self._head.endswith(b"\r\n"):
                    size = int(self._head, 16)
                    self._head, self._left = b"", size + 2
                    self.is_ended = size == 0
            else:
                taken, data = data[: self._left], data[self._left :]
                out.append(taken[: max(0, self._left - 2)])
                self._left -= len(taken)
                self._left = self._left or -1
        return b"".join(out)


class Reader:
    """One request for a stream."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._chunks = Chunks()
        self.parser = EventParser()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def begin(self) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._stream.receive()
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        if self.status != 200:
            length = int(self.headers["content-length"])
            while len(rest) < length:
                rest += await self._stream.receive()
            self.body = rest
        else:
            self._early = rest

    _early = b""

    async def some(self, most: int = 65536) -> list[Said]:
        """Return what the next bytes complete; raises `EndOfStream` at the end."""
        data, self._early = self._early, b""
        if not data:
            if self._chunks.is_ended:
                raise anyio.EndOfStream
            data = await self._stream.receive(most)
        return self.parser.feed(self._chunks.feed(data))

    async def until(self, name: str) -> list[Said]:
        """Return everything up to an event of this name."""
        said: list[Said] = []
        with anyio.fail_after(PATIENCE):
            while not any(each.name == name for each in said):
                said += await self.some()
        return said

    async def numbers(self, last: int) -> list[int]:
        """Return the numbers of events up to one."""
        numbers: list[int] = []
        with anyio.fail_after(PATIENCE):
            while not numbers or numbers[-1] < last:
                numbers += [
                    each.data["seq"] for each in await self.some() if each.name == "message"
                ]
        return numbers

    async def to_the_end(self) -> list[Said]:
        said: list[Said] = []
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    said += await self.some()
                except anyio.EndOfStream:
                    return said


@asynccontextmanager
async def reading(
    port: int,
    path: str,
    *,
    last_id: str = "",
    token: str = "view",
    headers: str = "",
    host: str = "127.0.0.1",
) -> AsyncIterator[Reader]:
    """Ask for a stream."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        auth = f"Authorization: Bearer {token}\r\n" if token else ""
        await stream.send(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{auth}{last}{headers}\r\n".encode()
        )
        reader = Reader(stream)
        with anyio.fail_after(PATIENCE):
            await reader.begin()
        yield reader


def events_of(session_id: str, query: str = "") -> str:
    return f"/api/sessions/{quote(session_id, safe='')}/events{query}"

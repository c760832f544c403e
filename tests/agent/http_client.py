"""A client on HTTP made of bare sockets: it can send what no library would."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import SocketStream

from quarterdeck.agent import HttpOptions, http_app
from quarterdeck.agent.http.serve import agent_config
from quarterdeck.http.server import BoundedServer
from quarterdeck.wire import background_tasks
from tests.agent.support import PATIENCE, Json

TOKEN = "0123456789abcdef"
JSON = "application/json"


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode().strip()


@dataclass(frozen=True)
class Event:
    id: str | None
    message: Json


class Stream:
    """One SSE stream."""

    def __init__(self, stream: Bytes) -> None:
        self._stream = stream
        self._rest = b""
        self.comments: list[str] = []
        self.last_id = ""

    async def event(self) -> Event:
        """Return the next event; comments are kept aside."""
        event = await self.event_or_end()
        assert event is not None, f"the stream has ended: {self.comments}"
        return event

    async def event_or_end(self) -> Event | None:
        with anyio.fail_after(PATIENCE):
            while True:
                while b"\n\n" not in self._rest:
                    try:
                        self._rest += await self._chunk()
                    except anyio.EndOfStream:
                        return None
                block, _, self._rest = self._rest.partition(b"\n\n")
                if (event := self._read(block.decode())) is not None:
                    return event

    async def comment(self, wanted: str, count: int = 1) -> None:
        """Wait for so many of a comment where no event is to come before them."""
        with anyio.fail_after(PATIENCE):
            while self.comments.count(wanted) < count:
                self._rest += await self._chunk()
                while b"\n\n" in self._rest:
                    block, _, self._rest = self._rest.partition(b"\n\n")
                    assert self._read(block.decode()) is None

    def _read(self, block: str) -> Event | None:
        fields = {}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments.append(line[2:])
            else:
                fields[name] = value
        if "data" not in fields:
            return None
        self.last_id = fields.get("id", self.last_id)
        return Event(fields.get("id"), json.loads(fields["data"]))

    async def _chunk(self) -> bytes:
        """Take one chunk of a chunked body apart; raise EndOfStream at its end."""
        head = await self._stream.until(b"\r\n")
        size = int(head, 16)
        data = await self._stream.exactly(size + 2)
        if size == 0:
            raise anyio.EndOfStream
        return data[:-2]

    async def answer(self, request_id: int) -> Json:
        while True:
            message = (await self.event()).message
            if message.get("id") == request_id and "method" not in message:
                return message

    async def aclose(self) -> None:
        await self._stream.aclose()


class Bytes:
    """A socket that is read by marks and by counts."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._rest = b""

    async def until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._rest += await self._stream.receive()
        found, _, self._rest = self._rest.partition(mark)
        return found

    async def exactly(self, count: int) -> bytes:
        while len(self._rest) < count:
            self._rest += await self._stream.receive()
        found, self._rest = self._rest[:count], self._rest[count:]
        return found

    async def aclose(self) -> None:
        await self._stream.aclose()


@dataclass(frozen=True)
class HttpHand:
    """A client at a port; every request has a connection of its own."""

    port: int
    client_id: str = "one"
    token: str | None = TOKEN
    host: str = ""

    def as_client(self, client_id: str) -> HttpHand:
        return replace(self, client_id=client_id)

    async def post(self, message: Any, headers: Json | None = None) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        path = f"/acp/rpc?client_id={self.client_id}"
        return await self.request("POST", path, {"Content-Type": JSON, **(headers or {})}, body)

    async def ask(self, request_id: int, method: str, **params: Any) -> Response:
        call = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return await self.post(call)

    async def request(
        self, method: str, path: str, headers: Json | None = None, body: bytes = b""
    ) -> Response:
        stream = await self.send(method, path, headers, body)
        with anyio.fail_after(PATIENCE):
            response = await _read_response(Bytes(stream))
        await stream.aclose()
        return response

    async def send(
        self, method: str, path: str, headers: Json | None = None, body: bytes = b""
    ) -> SocketStream:
        stream = await anyio.connect_tcp("127.0.0.1", self.port)
        known: Json = {"Host": self.host or f"127.0.0.1:{self.port}"}
        if self.token is not None:
            known["Authorization"] = f"Bearer {self.token}"
        if method == "POST":
            known["Content-Length"] = len(body)
        known = {**known, **(headers or {})}
        lines = [f"{name}: {value}" for name, value in known.items() if value is not None]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""])
        await stream.send(head.encode("latin-1") + body)
        return stream

    @asynccontextmanager
    async def stream(self, last_id: str = "", **headers: str) -> AsyncIterator[Stream]:
        opened = await self.open_stream(last_id, **headers)
        try:
            yield opened
        finally:
            await opened.aclose()

    async def open_stream(self, last_id: str = "", **headers: str) -> Stream:
        named = {"Last-Event-ID": last_id} if last_id else {}
        path = f"/acp/sse?client_id={self.client_id}"
        stream = Bytes(await self.send("GET", path, {**named, **headers}))
        with anyio.fail_after(PATIENCE):
            head = await stream.until(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        assert b"text/event-stream" in head
        return Stream(stream)

    async def begin(self, stream: Stream, cwd: str = "/") -> str:
        """Initialize and open a session; return its id."""
        assert (await self.ask(1, "initialize", protocolVersion=1)).status == 202
        await stream.answer(1)
        return await self.open_session(stream, cwd)

    async def open_session(self, stream: Stream, cwd: str = "/", request_id: int = 2) -> str:
        assert (await self.ask(request_id, "session/new", cwd=cwd, mcpServers=[])).status == 202
        created: str = (await stream.answer(request_id))["result"]["sessionId"]
        return created

    async def prompt(self, request_id: int, session_id: str, text: str) -> Response:
        blocks = [{"type": "text", "text": text}]
        return await self.ask(request_id, "session/prompt", sessionId=session_id, prompt=blocks)


async def _read_response(stream: Bytes) -> Response:
    head = (await stream.until(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    body = await stream.exactly(int(headers.get("content-length", 0)))
    return Response(int(first.split()[1]), headers, body)


@contextmanager
def free_port() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        yield listener


@asynccontextmanager
async def serving(
    agent: Any, options: HttpOptions | None = None, **more: Any
) -> AsyncIterator[HttpHand]:
    """Serve an agent on a real port in this process."""
    options = options or HttpOptions(token=TOKEN)
    app = http_app(agent, options, **more)
    server = BoundedServer(agent_config(app))
    with free_port() as listener:
        async with app.running(), background_tasks() as tasks:
            stopped = anyio.Event()

            async def serve() -> None:
                await server._serve([listener])  # noqa: SLF001 - without its signals
                stopped.set()

            tasks.start_soon(serve)
            yield HttpHand(listener.getsockname()[1], token=options.token)
            await app.aclose()
            server.should_exit = True
            with anyio.fail_after(PATIENCE):
                await stopped.wait()

"""A client of Streamable HTTP made of bare sockets: it can send what no library would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio

from tests.agent.http_client import JSON, Bytes, HttpHand, Response, Stream
from tests.agent.support import PATIENCE, Json

ACP = "/acp"
INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": 1},
}


@dataclass(frozen=True)
class StreamableHand:
    """One client at a port; every request has a connection of its own."""

    hand: HttpHand
    connection_id: str = ""
    path: str = ACP

    async def initialized(self) -> StreamableHand:
        """Return the client with a new connection."""
        response = await self.post(INITIALIZE)
        assert response.status == 200, response
        assert json.loads(response.body)["result"]["protocolVersion"] == 1
        return replace(self, connection_id=response.headers["acp-connection-id"])

    async def post(self, message: Any, session: str | None = None, **headers: Any) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        known = {"Content-Type": JSON, **self._ids(session), **headers}
        return await self.hand.request("POST", self.path, known, body)

    async def ask(
        self, request_id: int, method: str, session: str | None = None, **params: Any
    ) -> Response:
        if session is not None:
            params["sessionId"] = session
        call = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return await self.post(call, session)

    async def prompt(self, request_id: int, session: str, text: str) -> Response:
        blocks = [{"type": "text", "text": text}]
        return await self.ask(request_id, "session/prompt", session, prompt=blocks)

    async def new(self, stream: Stream, request_id: int = 1) -> str:
        """Open a session; `stream` is that of the connection."""
        asked = await self.ask(request_id, "session/new", cwd="/", mcpServers=[])
        assert asked.status == 202
        session: str = (await stream.answer(request_id))["result"]["sessionId"]
        return session

    async def delete(self) -> Response:
        return await self.hand.request("DELETE", self.path, self._ids(None))

    async def get(self, session: str | None = None, **headers: Any) -> Response:
        """Open a stream that is expected to be rejected."""
        known = {"Accept": "text/event-stream", **self._ids(session), **headers}
        return await self.hand.request("GET", self.path, known)

    @asynccontextmanager
    async def stream(self, session: str | None = None, last_id: str = "") -> AsyncIterator[Stream]:
        named = {"Last-Event-ID": last_id} if last_id else {}
        known = {"Accept": "text/event-stream", **self._ids(session), **named}
        opened = Bytes(await self.hand.send("GET", self.path, known))
        with anyio.fail_after(PATIENCE):
            head = await opened.until(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0], head
        try:
            yield Stream(opened)
        finally:
            await opened.aclose()

    def _ids(self, session: str | None) -> Json:
        ids: Json = {"Acp-Connection-Id": self.connection_id} if self.connection_id else {}
        return ids if session is None else {**ids, "Acp-Session-Id": session}

"""A hub, and editors connected to it: a bare one in this process, and what it received."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.hub import Hub
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.editors.endpoints import EditorServer
from quarterdeck.wire import Connection, MemoryTransport, memory_pair, open_connection
from tests.hub.api.kit import Client, Json, options, running, scripted

CLIENT: Json = {"name": "editor", "version": "1"}
ALLOW: Json = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


class FakeEditor:
    """An ACP client that records everything and answers as the test says."""

    def __init__(self) -> None:
        self.updates: list[Json] = []
        self.requests: list[tuple[str, Json]] = []
        self.withdrawn = 0
        self.completed: list[str] = []
        """Links whose page the user has finished."""
        self.answer: Json | None = None
        """To what it is asked; without one it lets people wait."""
        self.connection: Connection
        self.transport: MemoryTransport
        self._changed = anyio.Event()

    def on_notification(self, method: str, params: Json) -> None:
        if method == "elicitation/complete":
            self.completed.append(params["elicitationId"])
        else:
            assert method == "session/update", method
            self.updates.append(params["update"])
        self._notice()

    async def on_request(self, method: str, params: Json) -> Json:
        self.requests.append((method, params))
        self._notice()
        if self.answer is not None:
            return self.answer
        try:
            await anyio.sleep_forever()
        finally:
            self.withdrawn += 1
            self._notice()
        raise AssertionError("no event wakes it")

    async def until(self, is_true: Callable[[], Any]) -> None:
        while not is_true():
            await self._changed.wait()

    async def call(self, method: str, **params: Any) -> Any:
        return await self.connection.call(method, params)

    async def new(self, cwd: Path) -> str:
        made = await self.call("session/new", cwd=str(cwd), mcpServers=[])
        session_id: str = made["sessionId"]
        return session_id

    async def load(self, session_id: str, cwd: Path) -> Any:
        return await self.call("session/load", sessionId=session_id, cwd=str(cwd), mcpServers=[])

    async def prompt(self, session_id: str, text: str = "go") -> Json:
        blocks = [{"type": "text", "text": text}]
        answer: Json = await self.call("session/prompt", sessionId=session_id, prompt=blocks)
        return answer

    async def crash(self) -> None:
        """Be gone without a word."""
        await self.transport.aclose()

    def said(self, kind: str = "agent_message_chunk") -> list[str]:
        return [each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind]

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def owner_device(scope: Scope = "admin") -> Device:
    return Device(id="owner", name="owner", scope=scope, created_at="2026-01-01T00:00:00Z")


@asynccontextmanager
async def editor_at(
    hub: Hub, agent: str = "mine", *, scope: Scope = "admin", **capabilities: Any
) -> AsyncIterator[FakeEditor]:
    """Connect an editor that has said `initialize`."""
    device = owner_device(scope)
    ours, theirs = memory_pair()
    editor = FakeEditor()
    editor.transport = ours
    async with (
        EditorServer(hub, agent, device).serve_client(theirs),
        open_connection(
            ours, on_notification=editor.on_notification, on_request=editor.on_request
        ) as editor.connection,
    ):
        await editor.call(
            "initialize", protocolVersion=1, clientInfo=CLIENT, clientCapabilities=capabilities
        )
        yield editor


@asynccontextmanager
async def hub_with(home: Path, *steps: Json, **more: Any) -> AsyncIterator[tuple[Hub, Client]]:
    """Run a hub whose agent `mine` plays these steps in every turn."""
    given = options(home, mine=scripted(*steps, **more))
    async with running(given, parts=(acp_endpoints,)) as found:
        yield found

"""A client by hand, at the other end of a memory transport: it sees messages as they were sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from quarterdeck.agent import AgentServer, SessionStore
from quarterdeck.wire import ConnectionOptions, MemoryTransport, background_tasks, memory_pair

Json = dict[str, Any]
PATIENCE = 30  # seconds; every wait of these tests ends far earlier unless something hangs

INFO: Json = {"name": "hand", "version": "1"}
ALL_CAPABILITIES: Json = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}


class Hand:
    """The client's side of one connection."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.messages: list[Json] = []
        """All that came, in order."""
        self.called: dict[Any, str] = {}
        self.answers: dict[str, Callable[[Json], Any]] = {}
        """What to answer to the agent's requests, by method; others wait for `answer`."""
        self._transport = transport
        self._came = anyio.Event()

    async def read(self) -> None:
        rest = b""
        while data := await self._transport.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._take(json.loads(line))

    async def _take(self, message: Json) -> None:
        self.messages.append(message)
        self._came.set()
        self._came = anyio.Event()
        answer = self.answers.get(message.get("method", ""))
        if answer is not None and "id" in message:
            await self.answer(message, answer(message["params"]))

    async def send(self, message: Json) -> None:
        await self._transport.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        request_id = len(self.called) + 1
        self.called[request_id] = method
        await self.send({"id": request_id, "method": method, "params": params})
        return request_id

    async def notify(self, method: str, **params: Any) -> None:
        await self.send({"method": method, "params": params})

    async def answer(self, request: Json, result: Any) -> None:
        await self.send({"id": request["id"], "result": result})

    async def select(self, request: Json, option_id: str) -> None:
        await self.answer(request, {"outcome": {"outcome": "selected", "optionId": option_id}})

    async def call(self, method: str, **params: Any) -> Json:
        """Return the answer to a request, whole: `result` or `error`."""
        return await self.answered(await self.ask(method, **params))

    async def result(self, method: str, **params: Any) -> Any:
        answer = await self.call(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    async def error(self, method: str, **params: Any) -> Json:
        error: Json = (await self.call(method, **params))["error"]
        return error

    async def answered(self, request_id: int) -> Json:
        return await self.came(lambda each: each.get("id") == request_id and "method" not in each)

    async def requested(self, method: str) -> Json:
        """Wait for a request of the agent."""
        return await self.came(lambda each: each.get("method") == method and "id" in each)

    async def came(self, wanted: Callable[[Json], bool]) -> Json:
        looked_at = 0
        with anyio.fail_after(PATIENCE):
            while True:
                came = self._came
                for message in self.messages[looked_at:]:
                    if wanted(message):
                        return message
                looked_at = len(self.messages)
                await came.wait()

    async def open_session(self, **params: Any) -> str:
        created = await self.result("session/new", **{"cwd": "/", "mcpServers": [], **params})
        session_id: str = created["sessionId"]
        return session_id

    async def ask_prompt(self, session_id: str, text: str = "go") -> int:
        blocks = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", sessionId=session_id, prompt=blocks)

    async def prompt(self, session_id: str, text: str = "go") -> Json:
        return await self.answered(await self.ask_prompt(session_id, text))

    def updates(self, kind: str | None = None) -> list[Json]:
        found = [
            each["params"]["update"]
            for each in self.messages
            if each.get("method") == "session/update"
        ]
        return [each for each in found if kind is None or each["sessionUpdate"] == kind]

    async def turn(self, session_id: str, text: str = "go") -> Json:
        """Send a prompt in ACP 2, and return the state that ends its turn."""
        count = len(self.ends())
        answer = await self.prompt(session_id, text)
        assert answer["result"]["messageId"]
        return await self.ended(count)

    async def ended(self, count: int = 0) -> Json:
        """Wait until more than `count` turns have ended in ACP 2; return the state."""
        await self.came(lambda _: len(self.ends()) > count)
        return self.ends()[count]

    def ends(self) -> list[Json]:
        return [each for each in self.updates("state_update") if "stopReason" in each]

    def texts(self) -> list[str]:
        return [each["content"]["text"] for each in self.updates("agent_message_chunk")]


@asynccontextmanager
async def conversing(
    agent: Any,
    *,
    store: SessionStore | None = None,
    capabilities: Json | None = None,
    initializes: bool = True,
    version: int = 1,
    buffer: int = 1024 * 1024,
    high_water: int = 1024 * 1024,
) -> AsyncIterator[Hand]:
    """Serve an agent to a client by hand."""
    server = agent if isinstance(agent, AgentServer) else AgentServer(agent, store=store)
    ours, theirs = memory_pair(buffer)
    async with server.serve_client(theirs, ConnectionOptions(high_water=high_water)):
        async with background_tasks() as tasks:
            hand = Hand(ours)
            tasks.start_soon(hand.read)
            if initializes:
                name = "clientCapabilities" if version == 1 else "capabilities"
                known = {name: capabilities or {}} | ({"info": INFO} if version > 1 else {})
                await hand.result("initialize", protocolVersion=version, **known)
            yield hand
        await ours.aclose()

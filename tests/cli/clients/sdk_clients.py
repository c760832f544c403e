"""Clients of the official SDKs that run one order on any surface, and report what they saw."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import acp
import acp.schema
import anyio
import httpx
from acp.http import create_http_stream
from acp.ws import create_websocket_stream

from tests.agent.builtin.official_clients import NODE
from tests.agent.remote_clients import SDK

SCRIPT = Path(__file__).with_name("typescript_client.mjs")
SECONDS = 90


@dataclass(frozen=True)
class Surface:
    """How a client reaches an agent: a command on stdio, or a URL."""

    kind: str
    folder: str
    command: Sequence[str] = ()
    env: dict[str, str] | None = None
    url: str = ""
    token: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True)
class Prompt:
    text: str
    throws: bool = False
    """Whether the handlers of the client throw during this turn."""


@dataclass
class Seen:
    session_id: str
    version: int
    texts: list[str]
    stops: list[str]
    errors: list[Any]
    asked: int
    listed: int
    """How often the list of sessions has the session."""

    @property
    def text(self) -> str:
        return "".join(self.texts)


class Run(Protocol):
    """Run the prompts in a new session, or in one that exists and is loaded with its history."""

    async def __call__(
        self, surface: Surface, prompts: Sequence[Prompt], load: str | None = None
    ) -> Seen: ...


def typescript(version: int) -> Run:
    async def run(surface: Surface, prompts: Sequence[Prompt], load: str | None = None) -> Seen:
        order = {
            "sdk": str(SDK),
            "version": version,
            "load": load,
            **vars(surface),
            "headers": surface.headers,
            "prompts": [vars(each) for each in prompts],
        }
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process(
                [str(NODE), str(SCRIPT)],
                input=json.dumps(order).encode(),
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 0, done.stderr.decode()
        return Seen(**json.loads(done.stdout))

    return run


class _Client:
    """What the Python SDK calls."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked = 0
        self.throws = False
        self._changed = anyio.Event()

    async def heard(self, words: str) -> None:
        while words not in "".join(self.texts):
            await self._changed.wait()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.texts.append(update.content.text)
            self._changed.set()
            self._changed = anyio.Event()
        self._throw()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        self.asked += 1
        self._throw()
        chosen = next(each.option_id for each in options if each.kind == "allow_once")
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return acp.RequestPermissionResponse(outcome=outcome)

    def _throw(self) -> None:
        if self.throws:
            raise ValueError("a handler of the client failed")


@asynccontextmanager
async def _connected(client: _Client, surface: Surface) -> AsyncIterator[Any]:
    handlers = cast("acp.Client", client)  # it has what these tests need
    if surface.kind == "stdio":
        program, *arguments = surface.command
        async with acp.spawn_agent_process(
            handlers,
            program,
            *arguments,
            env=surface.env,
            cwd=surface.folder,
            transport_kwargs={"stderr": None, "shutdown_timeout": SECONDS},
        ) as (agent, _):
            yield agent
        return
    # Not the SDK's own client, which needs the package for HTTP/2.
    async with httpx.AsyncClient(timeout=SECONDS) as http:
        if surface.kind == "ws":
            stream = await create_websocket_stream(surface.url, headers=surface.headers)
        else:
            stream = create_http_stream(surface.url, client=http, headers=surface.headers)
        agent = acp.connect_to_agent(handlers, stream)
        try:
            yield agent
        finally:
            await agent.close()


async def python(surface: Surface, prompts: Sequence[Prompt], load: str | None = None) -> Seen:
    client = _Client()
    stops: list[str] = []
    errors: list[Any] = []
    with anyio.fail_after(SECONDS):
        async with _connected(client, surface) as agent:
            hello = await agent.initialize(protocol_version=1)
            session_id = await _opened(agent, surface.folder, load)
            for each in prompts:
                client.throws = each.throws
                block = acp.text_block(each.text)
                try:
                    answer = await agent.prompt(session_id=session_id, prompt=[block])
                    stops.append(answer.stop_reason)
                except acp.RequestError as error:
                    errors.append(str(error))
            listed = (await agent.list_sessions()).sessions
            ids = [each.session_id for each in listed]
            # The SDK calls handlers after it resolves the answer behind them.
            await client.heard(prompts[-1].text.removeprefix("/say "))
    return Seen(
        session_id=session_id,
        version=hello.protocol_version,
        texts=client.texts,
        stops=stops,
        errors=errors,
        asked=client.asked,
        listed=ids.count(session_id),
    )


async def _opened(agent: Any, folder: str, load: str | None) -> str:
    if load is not None:
        await agent.load_session(cwd=folder, session_id=load, mcp_servers=[])
        return load
    made: str = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
    return made


CLIENTS: dict[str, Run] = {
    "TypeScript 1": typescript(1),
    "TypeScript 2": typescript(2),
    "Python": python,
}

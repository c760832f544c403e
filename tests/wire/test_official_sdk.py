"""The official Python SDK as the other side: its agent with our connection, its client with ours.

Each connection runs through initialize, session/new, a prompt with streamed updates and a
permission request, and a prompt that is cancelled; all that we sent must fit the SDK's own models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import acp
import acp.schema
import anyio
import jsonschema_rs
import pytest
from acp.connection import StreamDirection, StreamEvent
from pydantic import BaseModel

from quarterdeck.errors import RpcError
from quarterdeck.wire import (
    ByteTransport,
    Connection,
    ConnectionOptions,
    Report,
    open_connection,
    open_process,
)
from quarterdeck.wire.transports.base import OnBytes
from tests.taping.tapes import environment
from tests.wire.awkward.helpers import PATIENCE

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SESSION = "session in /tmp"

PARAMS: dict[str, type[BaseModel]] = {
    "initialize": acp.schema.InitializeRequest,
    "session/new": acp.schema.NewSessionRequest,
    "session/prompt": acp.schema.PromptRequest,
    "session/cancel": acp.schema.CancelNotification,
    "session/update": acp.schema.SessionNotification,
    "session/request_permission": acp.schema.RequestPermissionRequest,
}
RESULTS: dict[str, type[BaseModel]] = {
    "initialize": acp.schema.InitializeResponse,
    "session/new": acp.schema.NewSessionResponse,
    "session/prompt": acp.schema.PromptResponse,
    "session/request_permission": acp.schema.RequestPermissionResponse,
}


SCHEMA_FILE = ".peers/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / SCHEMA_FILE).read_text())


def check_schema(method: str, value: Any, *, is_answer: bool) -> None:
    """Hold what we sent against the stable schema of ACP itself."""
    (definition,) = [
        each
        for name, each in SCHEMA["$defs"].items()
        if each.get("x-method") == method and name.endswith("Response") == is_answer
    ]
    jsonschema_rs.validate({**definition, "$defs": SCHEMA["$defs"]}, value)


def validate(sent: list[Any], called: dict[Any, str]) -> set[str]:
    """Check messages of ours against the SDK's models; `called` has the methods we answered."""
    for message in sent:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            PARAMS[message["method"]].model_validate(message["params"])
            check_schema(message["method"], message["params"], is_answer=False)
        else:
            RESULTS[called[message["id"]]].model_validate(message["result"])
            check_schema(called[message["id"]], message["result"], is_answer=True)
    return {message.get("method") or called[message["id"]] for message in sent}


class Recording:
    """A transport that remembers what went through it."""

    def __init__(self, transport: ByteTransport) -> None:
        self._transport = transport
        self._sent = b""
        self._received = b""

    @property
    def sent(self) -> list[Any]:
        return [json.loads(each) for each in self._sent.splitlines()]

    @property
    def called(self) -> dict[Any, str]:
        received = [json.loads(each) for each in self._received.splitlines()]
        return {each["id"]: each["method"] for each in received if {"id", "method"} <= each.keys()}

    async def pump(self, on_bytes: OnBytes) -> None:
        def take(data: bytes) -> None:
            self._received += data
            on_bytes(data)

        await self._transport.pump(take)

    async def send(self, data: bytes) -> None:
        self._sent += data
        await self._transport.send(data)

    def send_now(self, data: bytes) -> int:
        count = self._transport.send_now(data)
        self._sent += data[:count]
        return count

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def explain_refusal(self) -> str:
        return await self._transport.explain_refusal()

    async def explain_end(self) -> str:
        return await self._transport.explain_end()


def prompt(text: str) -> dict[str, Any]:
    return {"sessionId": SESSION, "prompt": [{"type": "text", "text": text}]}


async def begin(connection: Connection) -> None:
    info = {"name": "quarterdeck", "version": "0"}
    called = {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": info}
    assert (await connection.call("initialize", called))["protocolVersion"] == 1
    created: Any = await connection.call("session/new", {"cwd": "/tmp", "mcpServers": []})
    assert created["sessionId"] == SESSION


@pytest.mark.slow
async def test_an_agent_of_the_official_sdk_converses_with_our_connection() -> None:
    texts_seen: list[str] = []
    reports: list[Report] = []
    waiting = anyio.Event()

    def on_notification(method: str, params: Any) -> None:
        assert method == "session/update"
        texts_seen.append(params["update"]["content"]["text"])
        if texts_seen[-1] == "waiting":
            waiting.set()

    async def on_request(method: str, params: Any) -> Any:
        assert method == "session/request_permission"
        return {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}}

    async def cancel_when_it_waits() -> None:
        await waiting.wait()
        await connection.notify("session/cancel", {"sessionId": SESSION})

    options = ConnectionOptions(answers_garbage=False, on_report=reports.append)
    command = [sys.executable, str(HERE / "awkward" / "official_agent.py")]
    with anyio.fail_after(PATIENCE):
        async with open_process(command, stop_seconds=PATIENCE) as process:
            transport = Recording(process)
            async with open_connection(
                transport, on_notification=on_notification, on_request=on_request, options=options
            ) as connection:
                await begin(connection)
                result: Any = await connection.call("session/prompt", prompt("one two three"))
                assert result == {"stopReason": "end_turn"}
                assert texts_seen[:3] == ["one", "two", "three"]
                assert json.loads(texts_seen[3])["optionId"] == "yes"
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_when_it_waits)
                    result = await connection.call("session/prompt", prompt("wait"))
                assert result == {"stopReason": "cancelled"}
                with pytest.raises(RpcError) as caught:
                    await connection.call("session/levitate", {})
                assert caught.value.code == -32601
    sent = [each for each in transport.sent if each.get("method") != "session/levitate"]
    assert validate(sent, transport.called) == PARAMS.keys() - {"session/update"}
    assert reports == []
    assert list(process.last_stderr) == []
    assert process.exit_status == 0


class Choosing:
    """A client of the SDK that takes the first option and keeps what it received."""

    def __init__(self) -> None:
        self.texts_seen: list[str] = []
        self.waiting = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        assert session_id == SESSION
        self.texts_seen.append(update.content.text)
        if update.content.text == "waiting":
            self.waiting.set()

    async def request_permission(
        self,
        session_id: str,
        tool_call: acp.schema.ToolCallUpdate,
        options: list[acp.schema.PermissionOption],
        **_: Any,
    ) -> acp.RequestPermissionResponse:
        assert (session_id, tool_call.tool_call_id) == (SESSION, "t1")
        chosen = acp.schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return acp.RequestPermissionResponse(outcome=chosen)


@pytest.mark.slow
async def test_a_client_of_the_official_sdk_converses_with_an_agent_on_our_connection() -> None:
    client = Choosing()
    sent: list[Any] = []
    called: dict[Any, str] = {}

    def observe(event: StreamEvent) -> None:
        if event.direction is StreamDirection.INCOMING:
            sent.append(event.message)
        elif "id" in event.message and "method" in event.message:
            called[event.message["id"]] = event.message["method"]

    async def cancel_when_it_waits() -> None:
        await client.waiting.wait()
        await agent.cancel(SESSION)

    with anyio.fail_after(PATIENCE):
        async with acp.spawn_agent_process(
            cast("acp.Client", client),  # it has what this test needs
            sys.executable,
            str(HERE / "awkward" / "our_agent.py"),
            env=environment(ROOT / "src"),
            transport_kwargs={"stderr": None, "shutdown_timeout": 60},
            observers=[observe],
        ) as (agent, process):
            await agent.initialize(protocol_version=1)
            session = await agent.new_session(cwd="/tmp")
            assert session.session_id == SESSION
            answer = await agent.prompt(SESSION, [acp.text_block("one two three")])
            assert answer.stop_reason == "end_turn"
            assert client.texts_seen == ["one", "two", "three", "yes"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_it_waits)
                answer = await agent.prompt(SESSION, [acp.text_block("wait")])
            assert answer.stop_reason == "cancelled"
            with pytest.raises(acp.RequestError) as caught:
                await agent.set_session_mode(SESSION, "fast")
            assert caught.value.code == -32601
    refused = [each for each in sent if "error" in each]
    assert [called[each["id"]] for each in refused] == ["session/set_mode"]
    sent = [each for each in sent if each not in refused]
    assert validate(sent, called) == PARAMS.keys() - {"session/cancel"}
    assert process.returncode == 0

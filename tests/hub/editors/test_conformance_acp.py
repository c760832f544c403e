"""Requirements of ACP's conformance kit on the wire, for a hub in both versions and for an agent.

The name of a test has the ids of its requirements: `init_002` is INIT-002 of version 1,
`v2_init_201` is INIT-201 of version 2. docs/understand/conformance-acp.md lists them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agent import AgentServer
from quarterdeck.agent.turn import AgentTurn
from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.endpoints import EditorServer
from quarterdeck.wire import MemoryTransport, memory_pair
from tests.hub.api.kit import ASK, Json
from tests.hub.editors.kit import ALLOW, editor_at, hub_with, owner_device
from tests.hub.editors.kit_v2 import editor_v2_at

pytestmark = pytest.mark.anyio

INFO: Json = {"name": "kit", "version": "1"}
SERVED = pytest.mark.parametrize("served", ["hub-1", "hub-2", "agent-1", "agent-2"])
LINK: Json = {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}


class RawPeer:
    """A client that writes lines and reads lines."""

    def __init__(self, transport: MemoryTransport, version: int) -> None:
        self._transport = transport
        self.version = version
        self._rest = b""

    async def write(self, line: bytes | Any) -> None:
        data = line if isinstance(line, bytes) else json.dumps(line).encode()
        await self._transport.send(data + b"\n")

    async def read(self) -> Json:
        """Return the next message, which is one line of UTF-8."""
        while b"\n" not in self._rest:
            with anyio.fail_after(30):
                data = await self._transport.receive()
            assert data, "the connection has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: Json = json.loads(line.decode("utf-8"))
        assert message["jsonrpc"] == "2.0"
        return message

    async def ask(self, request_id: Any, method: str, **params: Any) -> Json:
        await self.write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return await self.read()

    async def initialize(self, request_id: Any = 0) -> Json:
        return await self.ask(
            request_id, "initialize", protocolVersion=self.version, info=INFO, clientInfo=INFO
        )

    async def initialize_from_the_future(self) -> Json:
        """Ask for a version that nobody has, in the words of the version that it is after."""
        name = "clientInfo" if self.version == 1 else "info"
        return await self.ask(0, "initialize", protocolVersion=65535, **{name: INFO})


async def _echo(turn: AgentTurn) -> None:
    turn.say("hello")


@asynccontextmanager
async def peer_of(served: str, folder: Path) -> AsyncIterator[RawPeer]:
    ours, theirs = memory_pair()
    version = int(served[-1])
    if served.startswith("agent"):
        async with AgentServer(_echo).serve_client(theirs):
            yield RawPeer(ours, version)
        return
    async with (
        hub_with(folder / "home", {"say": "hello"}) as (hub, _),
        EditorServer(hub, "mine", owner_device()).serve_client(theirs),
    ):
        yield RawPeer(ours, version)


@SERVED
async def test_transport_001_002_jsonrpc_001_002_v2_transport_201_002_203_jsonrpc_001_002(
    served: str, tmp_path: Path
) -> None:
    async with peer_of(served, tmp_path) as peer:
        for request_id in (7, "a text", "ä", 0, -3):
            answer = await peer.initialize(request_id)
            assert answer["id"] == request_id
            assert ("result" in answer) != ("error" in answer)
        wrong = await peer.ask("w", "initialize", protocolVersion="x")
        assert isinstance(wrong["error"]["code"], int)
        assert isinstance(wrong["error"]["message"], str)


@SERVED
async def test_jsonrpc_003_004_005_ext_001_v2_jsonrpc_003_004_005_ext_001_201(
    served: str, tmp_path: Path
) -> None:
    async with peer_of(served, tmp_path) as peer:
        await peer.initialize()
        for note in ("session/unknown", "_x/note", "session/cancel"):
            await peer.write({"jsonrpc": "2.0", "method": note, "params": {"sessionId": "none"}})
        unknown = await peer.ask(1, "session/unknown")
        assert (unknown["id"], unknown["error"]["code"]) == (1, -32601)
        private = await peer.ask(2, "_x/request")
        assert private["id"] == 2
        assert "error" in private or "result" in private
        refused = await peer.ask(3, "session/prompt", sessionId="none", prompt=[LINK])
        assert refused["id"] == 3
        assert "error" in refused


@SERVED
async def test_error_001_info_parse_001_info_invalidreq_001_info_unknownsession_001_v2_batch_201(
    served: str, tmp_path: Path
) -> None:
    async with peer_of(served, tmp_path) as peer:
        await peer.initialize()
        for line, code in (
            (b"[]", -32600),
            (b'[{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}]', -32600),
            (b"{", -32700),
        ):
            await peer.write(line)
            answer = await peer.read()
            assert (answer["id"], answer["error"]["code"]) == (None, code), line
            assert "\n" not in answer["error"]["message"]
        unknown = await peer.ask(
            4, "session/prompt", sessionId="none", prompt=[{"type": "text", "text": "x"}]
        )
        assert unknown["error"]["code"] in (-32002, -32602)
        assert "\n" not in unknown["error"]["message"]


@pytest.mark.parametrize("served", ["hub-1", "agent-1"])
async def test_init_001_002_004_auth_005_version_1_is_answered_with_1(
    served: str, tmp_path: Path
) -> None:
    async with peer_of(served, tmp_path) as peer:
        told = (await peer.initialize())["result"]
        assert told["protocolVersion"] == 1
        assert told["agentInfo"]["name"]
        assert told["agentInfo"]["version"]
        assert told["authMethods"] == []
        made = await peer.ask(1, "session/new", cwd=str(tmp_path), mcpServers=[])
        assert "result" in made


@SERVED
async def test_init_003_v2_init_003_a_version_from_the_future_is_not_repeated(
    served: str, tmp_path: Path
) -> None:
    async with peer_of(served, tmp_path) as peer:
        told = await peer.initialize_from_the_future()
        assert told["result"]["protocolVersion"] == (1 if served == "agent-1" else 2)


# ---- sessions of version 1 -----------------------------------------------------------------------


async def test_session_001_002_prompt_001_002_003_meta_001_list_001_002_close_001(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, _), editor_at(hub) as editor:
        first, second = await editor.new(tmp_path), await editor.new(tmp_path)
        assert first
        assert first != second
        answer = await editor.call(
            "session/prompt",
            sessionId=first,
            prompt=[{"type": "text", "text": "go"}, LINK],
            _meta={"a": 1},
        )
        assert answer["stopReason"] == "end_turn"
        assert editor.said() == ["hi"]
        listed = await editor.call("session/list")
        assert {each["sessionId"] for each in listed["sessions"]} == {first, second}
        assert (await editor.call("session/list", cwd="/nowhere"))["sessions"] == []
        assert await editor.call("session/close", sessionId=second) == {}


async def test_load_001_002_003_resume_001_002_history_comes_before_the_answer_or_not_at_all(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, _):
        async with editor_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            await editor.prompt(session_id)
        async with editor_at(hub) as again:
            assert isinstance(await again.load(session_id, tmp_path), dict)
            assert again.said() == ["hi"]
        async with editor_at(hub) as resumed:
            await resumed.call("session/resume", sessionId=session_id, cwd=str(tmp_path))
            await resumed.call("session/list")
            assert resumed.said() == []


async def test_cancel_001_002_close_002_a_cancelled_prompt_is_answered_and_nothing_follows(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, _), editor_at(hub) as editor:
        for way in ("cancel", "close"):
            answers: list[Json] = []
            editor.requests.clear()
            session_id = await editor.new(tmp_path)

            async def prompt(session_id: str = session_id, answers: list[Json] = answers) -> None:
                answers.append(await editor.prompt(session_id))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                await editor.until(lambda: editor.requests)
                if way == "cancel":
                    await editor.connection.notify("session/cancel", {"sessionId": session_id})
                else:
                    await editor.call("session/close", sessionId=session_id)
            assert [each["stopReason"] for each in answers] == ["cancelled"]
            count = len(editor.updates)
            await editor.call("session/list")
            assert len(editor.updates) == count


async def test_clientcap_001_v2_clientcap_202_an_editor_is_asked_only_what_it_offers(
    tmp_path: Path,
) -> None:

    steps = (
        {"request": "fs/read_text_file", "params": {"sessionId": "{session}", "path": "/none"}},
        ASK,
    )

    async with (
        hub_with(tmp_path / "home", *steps) as (hub, _),
        editor_at(hub) as first,
        editor_v2_at(hub) as second,
    ):
        first.answer = second.answer = ALLOW
        session_id = await first.new(tmp_path)
        await second.resume(session_id, tmp_path)
        await first.prompt(session_id)
        await second.until(second.ends)
        methods = {method for method, _ in (*first.requests, *second.requests)}
        assert methods == {"session/request_permission"}


async def test_v2_prompt_003_meta_001_promptcap_what_is_offered_is_accepted(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        blocks = [{"type": "text", "text": "go"}, LINK]
        answer = await editor.call(
            "session/prompt", sessionId=session_id, prompt=blocks, _meta={"a": 1}
        )
        assert answer["messageId"]
        for wrong in ([], "go", [{"text": "no type"}]):
            with pytest.raises(RpcError):
                await editor.call("session/prompt", sessionId=session_id, prompt=wrong)
        for gone in ("session/load", "session/set_mode", "authenticate", "logout"):
            with pytest.raises(RpcError) as caught:
                await editor.call(gone, sessionId=session_id)
            assert caught.value.code == -32601

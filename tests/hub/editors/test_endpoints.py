"""ACP at the hub's own address: by requests and a stream, and on a WebSocket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from quarterdeck.hub.editors import acp_endpoints
from tests.hub.api.kit import ASK, Client, Json, client_of, options, paired, running
from tests.hub.editors.kit import ALLOW, hub_with

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

INITIALIZE: Json = {"protocolVersion": 1}


class OnHttp:
    """A client of two routes."""

    def __init__(self, http: httpx2.AsyncClient, lines: AsyncIterator[str], query: str) -> None:
        self._http = http
        self._lines = lines
        self._query = query
        self._last_id = 0
        self.said: list[str] = []

    async def post(self, message: Json, *, status: int = 202) -> Any:
        answer = await self._http.post(
            f"/acp/rpc?{self._query}", json={"jsonrpc": "2.0", **message}
        )
        assert answer.status_code == status, answer.text
        return answer

    async def message(self) -> Json:
        """Return the next message of the stream."""
        async for line in self._lines:
            if line.startswith("data: "):
                message: Json = json.loads(line.removeprefix("data: "))
                return message
        raise AssertionError("the stream has ended")

    async def call(self, method: str, **params: Any) -> Json:
        """Make a request; allow what is asked until it is answered."""
        self._last_id += 1
        await self.post({"id": self._last_id, "method": method, "params": params})
        while True:
            message = await self.message()
            if message.get("method") == "session/update":
                text = message["params"]["update"].get("content", {})
                self.said.append(text.get("text", "") if isinstance(text, dict) else "")
            elif "method" in message:
                await self.post({"id": message["id"], "result": ALLOW}, status=204)
            else:
                assert message["id"] == self._last_id
                result: Json = message["result"]
                return result


@asynccontextmanager
async def on_http(owner: Client, query: str) -> AsyncIterator[OnHttp]:
    async with owner.http.stream("GET", f"/acp/sse?{query}") as stream:
        assert stream.status_code == 200
        yield OnHttp(owner.http, stream.aiter_lines(), query)


async def test_a_client_on_http_has_a_whole_session(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (_, owner):
        async with on_http(owner, "client_id=one&agent=mine") as client:
            await client.call("initialize", **INITIALIZE)
            made = await client.call("session/new", cwd=str(tmp_path), mcpServers=[])
            blocks = [{"type": "text", "text": "go"}]
            done = await client.call("session/prompt", sessionId=made["sessionId"], prompt=blocks)
            assert done == {"stopReason": "end_turn"}
            assert [each for each in client.said if each] == ["done"]
        (decision,) = (await owner.get("/api/decisions"))["decisions"]
        assert decision["by"]["deviceName"] == "this computer via an ACP client"


async def test_a_client_id_of_another_device_is_another_client(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with hub_with(home, {"say": "secret"}) as (hub, owner):
        _, codes = await hub.auth.pairings.create(scope="prompt")
        paired = await owner.http.post("/api/pair", json={"code": codes.long, "name": "other"})
        token = paired.json()["token"]
        async with (
            client_of(home, str(owner.http.base_url), token) as other,
            on_http(owner, "client_id=one") as mine,
            on_http(other, "client_id=one") as theirs,
        ):
            await mine.call("initialize", **INITIALIZE)
            await theirs.post({"id": 7, "method": "session/list", "params": {}})
            refused = await theirs.message()
            assert refused["error"]["data"] == "call initialize before session/list"


async def test_a_wrong_address_gets_an_error_of_the_hub(tmp_path: Path) -> None:
    wrong = [
        ("", 400, "client_id is required"),
        ("client_id=a%20b", 400, "client_id may have"),
        ("client_id=a&agent=nobody", 404, "no agent named 'nobody'"),
        ("client_id=a&agent=mine&agent=mine", 400, "twice"),
    ]
    async with hub_with(tmp_path / "home") as (_, owner):
        for query, status, words in wrong:
            refused = await owner.http.get(f"/acp/sse?{query}")
            assert refused.status_code == status
            assert words in refused.json()["error"]["message"]


@asynccontextmanager
async def on_websocket(owner: Client, query: str = "") -> AsyncIterator[ClientConnection]:
    url = str(owner.http.base_url).replace("http", "ws", 1).rstrip("/")
    headers = {"Authorization": f"Bearer {await paired(owner, 'admin')}"}
    async with connect(f"{url}/acp{query}", additional_headers=headers, proxy=None) as socket:
        yield socket


async def _ask(socket: ClientConnection, message: str) -> Json:
    await socket.send(message)
    answer: Json = json.loads(await socket.recv())
    return answer


async def test_a_websocket_is_named_and_survives_what_is_no_message(tmp_path: Path) -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
    async with hub_with(tmp_path / "home") as (_, owner), on_websocket(owner) as socket:
        assert socket.response is not None
        assert socket.response.headers["acp-connection-id"]
        await socket.send(b"binary frames are ignored")
        for garbage in ("Content-Length: 2\r\n\r\n{}", "hello", "{", "[]"):
            assert (await _ask(socket, garbage))["error"]["code"] in (-32700, -32600)
        answer = await _ask(socket, hello.replace(",", ",\n"))
        assert answer["result"]["agentInfo"]["name"] == "mine"


async def test_a_hub_without_agents_asks_which_one_is_meant(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home"), parts=(acp_endpoints,)) as (_, owner):
        with pytest.raises(InvalidStatus) as refused:
            async with on_websocket(owner):
                pass
        assert refused.value.response.status_code == 400
        assert b"?agent=NAME" in (refused.value.response.body or b"")
        async with on_websocket(owner, "?agent=demo") as socket:
            assert socket.response is not None


async def test_a_hub_that_ends_lets_its_clients_go(tmp_path: Path) -> None:
    async with (
        hub_with(tmp_path / "home") as (hub, owner),
        on_websocket(owner) as socket,
        on_http(owner, "client_id=a") as stream,
    ):
        hub.end_streams()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        with pytest.raises(AssertionError, match="the stream has ended"):
            await stream.message()


async def _drain(ws: ClientConnection) -> None:
    """Read until it is closed."""
    while True:
        await ws.recv()


@pytest.mark.parametrize("is_revoked", [True, False])
async def test_a_revoked_device_gets_the_reason_and_its_turn_continues(
    tmp_path: Path, *, is_revoked: bool
) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, owner):
        _, codes = await hub.auth.pairings.create(scope="approve")
        paired = await owner.post("/api/pair", {"code": codes.long})
        url = str(owner.http.base_url).replace("http", "ws", 1)
        headers = {"authorization": f"Bearer {paired['token']}"}
        async with connect(f"{url}/acp?agent=mine", additional_headers=headers, proxy=None) as ws:
            session_id = await owner.session("mine", tmp_path)
            place = {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []}
            text = {"sessionId": session_id, "prompt": [{"type": "text", "text": "go"}]}
            for number, (method, params) in enumerate(
                (
                    ("initialize", {"protocolVersion": 1}),
                    ("session/load", place),
                    ("session/prompt", text),
                )
            ):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await ws.send(json.dumps(message))
                while (
                    method != "session/prompt" and json.loads(await ws.recv()).get("id") != number
                ):
                    pass
            (request,) = await owner.pending_permissions()
            at = f"/api/devices/{paired['device']['id']}"
            if is_revoked:
                await owner.call("DELETE", at, status=204)
            else:
                await owner.call("PATCH", at, {"scope": "view"})
            with pytest.raises(ConnectionClosed, match="revoked or has expired"):
                await _drain(ws)
            assert ws.close_code == 4401
        answer = {"digest": request["digest"], "optionId": "allow_once"}
        await owner.post(f"/api/permissions/{request['requestId']}/answer", answer)
        (entry,) = (await owner.get(f"/api/sessions/{session_id}/prompts"))["prompts"]
        assert (await owner.ended(session_id, entry["key"]))["state"] == "done"


async def test_a_client_whose_device_is_renamed_stays_the_same(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, owner):
        _, codes = await hub.auth.pairings.create(scope="approve")
        paired = await owner.post("/api/pair", {"code": codes.long})
        url = str(owner.http.base_url)
        async with (
            client_of(tmp_path / "home", url, paired["token"]) as phone,
            on_http(phone, "client_id=one&agent=mine") as client,
        ):
            await client.call("initialize", protocolVersion=1)
            at = f"/api/devices/{paired['device']['id']}"
            await owner.call("PATCH", at, {"name": "my phone"})
            assert (await client.call("session/list"))["sessions"] == []

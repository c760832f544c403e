"""Streamable HTTP at the hub: the official SDK's client, and who may use a connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.http_client import HttpHand
from tests.agent.remote_clients import remote_client
from tests.agent.streamable_client import StreamableHand
from tests.hub.api.kit import ASK, Client, Json, client_of, paired
from tests.hub.editors.kit import hub_with

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HELLO: Json = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
SCHEMES = ["http", "ws"]


def url_of(owner: Client, scheme: str, query: str = "?agent=mine") -> str:
    base = str(owner.http.base_url).rstrip("/")
    return base.replace("http", scheme, 1) + "/acp" + query


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_official_client_has_a_whole_session_and_loads_it_again(
    scheme: str, tmp_path: Path
) -> None:
    async with hub_with(tmp_path / "home", {"say": "before "}, ASK, {"say": "after"}) as (_, owner):
        token, url = await paired(owner, "admin"), url_of(owner, scheme)
        order: Json = {"folder": str(tmp_path), "prompts": ["go"]}
        first = await remote_client(url, token, **order, list=True)
        assert first.errors == []
        session = first.answers[1]["sessionId"]
        assert first.answers[3]["stopReason"] == "end_turn"
        assert [each["sessionId"] for each in first.answers[4]["sessions"]] == [session]
        assert len(first.permissions) == 1
        assert first.text().startswith("before ")
        again = await remote_client(url, token, **order, load=session)
        assert again.errors == []
        assert again.text() == first.text() * 2
        resumed = await remote_client(url, token, **order, resume=session)
        assert resumed.text() == first.text()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_handlers_that_throw_leave_the_request_to_another_device(
    scheme: str, tmp_path: Path
) -> None:
    async with hub_with(tmp_path / "home", {"say": "said"}) as (_, owner):
        token, url = await paired(owner, "admin"), url_of(owner, scheme)
        order: Json = {"folder": str(tmp_path), "prompts": ["one", "two"], "throws": True}
        seen = await remote_client(url, token, **order)
    assert seen.text() == "saidsaid"
    assert [each["stopReason"] for each in seen.answers[3:]] == ["end_turn", "end_turn"]


@pytest.mark.parametrize("step", [1, 3])
async def test_a_stream_of_the_hub_that_is_cut_at_a_hundred_points_loses_and_doubles_nothing(
    step: int, tmp_path: Path
) -> None:
    pieces = [{"say": f"{number} "} for number in range(150)]
    async with hub_with(tmp_path / "home", *pieces, ASK, *pieces) as (_, owner):
        url = owner.http.base_url
        hand = HttpHand(url.port or 0, token=await paired(owner, "admin"))
        client = await StreamableHand(hand, path="/acp?agent=mine").initialized()
        async with client.stream() as own:
            session = await client.new(own)
        assert (await client.prompt(2, session, "go")).status == 202
        messages: list[Json] = []
        cuts, last_id = 0, ""
        while not any("result" in each for each in messages):
            async with client.stream(session, last_id) as stream:
                for _ in range(step):
                    message = (await stream.event()).message
                    messages.append(message)
                    if "result" in message:
                        break
                    if "id" in message:
                        chosen = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                        answer = {"jsonrpc": "2.0", "id": message["id"], "result": chosen}
                        assert (await client.post(answer, session)).status == 202
                last_id = stream.last_id
            cuts += 1
    assert cuts >= 100
    assert sum("id" in each and "method" in each for each in messages) == 1
    updates = [each["params"]["update"] for each in messages if "update" in each.get("params", {})]
    numbers = [each["_meta"]["quarterdeck"]["seq"] for each in updates]
    assert numbers == sorted(set(numbers))
    said = [each for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    text = "".join(each["content"]["text"] for each in said)
    half = "".join(f"{number} " for number in range(150))
    assert (text.startswith(half), text.endswith(half)) == (True, True)
    assert len(said) == 2 * 150 + 1


async def _opened(owner: Client, query: str = "?agent=mine") -> str:
    opened = await owner.http.post(f"/acp{query}", json=HELLO)
    assert opened.status_code == 200, opened.text
    assert opened.json()["result"]["agentInfo"]["name"]
    connection: str = opened.headers["acp-connection-id"]
    return connection


async def _statuses(client: Client, connection: str, query: str = "?agent=mine") -> list[int]:
    """Return what each verb gets for a connection; DELETE comes last."""
    named = {"acp-connection-id": connection}
    message = {"jsonrpc": "2.0", "id": 5, "method": "session/list", "params": {}}
    posted = await client.http.post(f"/acp{query}", json=message, headers=named)
    listening = {**named, "accept": "text/event-stream"}
    async with client.http.stream("GET", f"/acp{query}", headers=listening) as stream:
        got = stream.status_code
    deleted = await client.http.request("DELETE", f"/acp{query}", headers=named)
    return [posted.status_code, got, deleted.status_code]


async def test_a_connection_belongs_to_its_device_and_its_agent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with hub_with(home, {"say": "x"}) as (_, owner):
        connection = await _opened(owner)
        token = await paired(owner, "admin")
        async with client_of(home, str(owner.http.base_url), token) as other:
            assert await _statuses(other, connection) == [404, 404, 404]
        assert await _statuses(owner, connection, "?agent=demo") == [404, 404, 404]
        assert await _statuses(owner, connection) == [202, 200, 202]
        assert await _statuses(owner, connection) == [404, 404, 404]


@pytest.mark.parametrize(("scope", "statuses"), [("view", 403), ("prompt", 200)])
async def test_a_scope_that_cannot_prompt_reaches_nothing(
    scope: Any, statuses: int, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with hub_with(home, {"say": "x"}) as (_, owner):
        token = await paired(owner, scope)
        async with client_of(home, str(owner.http.base_url), token) as client:
            opened = await client.http.post("/acp?agent=mine", json=HELLO)
            assert opened.status_code == statuses
            if statuses == 403:
                assert await _statuses(client, "any") == [403, 403, 403]


async def test_errors_are_those_of_the_hub(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home") as (_, owner):
        unknown = await owner.http.post("/acp?agent=nobody", json=HELLO)
        assert unknown.status_code == 404
        assert "no agent named 'nobody'" in unknown.json()["error"]["message"]
        batch = await owner.http.post("/acp?agent=mine", json=[HELLO])
        assert batch.status_code == 400
        assert batch.json()["error"]["code"] == -32600
        listening = await owner.http.get("/acp?agent=mine")
        assert listening.status_code == 406
        assert listening.json()["error"]["code"] == "quarterdeck/invalid"


async def test_a_hub_that_ends_ends_the_streams(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home") as (hub, owner):
        connection = await _opened(owner)
        named = {"acp-connection-id": connection, "accept": "text/event-stream"}
        async with owner.http.stream("GET", "/acp?agent=mine", headers=named) as stream:
            hub.end_streams()
            lines = [line async for line in stream.aiter_lines()]
        assert ": the connection has ended" in lines
        refused = await owner.http.post("/acp?agent=mine", json=HELLO)
        assert refused.status_code == 503


async def test_one_device_has_so_many_connections_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.editors.endpoints.MOST_CONNECTIONS", 2)
    home = tmp_path / "home"
    async with hub_with(home, {"say": "x"}) as (_, owner):
        await _opened(owner)
        await _opened(owner, "?agent=demo")
        full = await owner.http.post("/acp?agent=mine", json=HELLO)
        assert full.status_code == 503
        assert json.loads(full.text)["error"]["retryable"] is True
        token = await paired(owner, "prompt")
        async with client_of(home, str(owner.http.base_url), token) as other:
            await _opened(other)

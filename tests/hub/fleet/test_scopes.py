"""A device may have a smaller scope on some machines: on every way in."""

from __future__ import annotations

from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from quarterdeck.client import Client as EnvelopeClient, WebSocketTransport
from quarterdeck.errors import AcpError
from quarterdeck.hub.auth.device import SCOPES, Device
from quarterdeck.hub.editors import acp_endpoints
from tests.hub.api.kit import ASK, Client, client_of, options, paired, running, scripted
from tests.hub.fleet.kit import other_machine


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("limit", SCOPES)
def test_a_machine_can_only_take_away(scope: str, limit: str) -> None:
    device = Device(
        id="d",
        name="d",
        scope=scope,  # type: ignore[arg-type]
        created_at="",
        machine_scopes={"m00000001": limit},  # type: ignore[dict-item]
    )
    there = device.on("m00000001")
    assert SCOPES.index(there.scope) == min(SCOPES.index(device.scope), SCOPES.index(limit))
    assert device.on("m00000002") is device
    others = Device(
        id="d",
        name="d",
        scope="admin",
        created_at="",
        machine_scopes={"*": limit, "here": "approve"},  # type: ignore[dict-item]
    )
    assert others.on("m00000009").scope == limit
    assert others.on("here").scope == "approve"


async def test_a_scope_is_limited_on_every_way_in(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with (
        running(given) as (hub, owner),
        other_machine(tmp_path / "other", mine=scripted(ASK)) as laptop,
    ):
        await laptop.join(hub)
        body = {"agent": "mine", "cwd": str(tmp_path), "machine": laptop.id}
        there = (await owner.post("/api/sessions", body, status=201))["sessionId"]
        here = await owner.session("mine", tmp_path)
        token = await paired(owner, "approve")
        device = next(each for each in hub.auth.devices.all if each.scope == "approve")
        limits = {"machineScopes": {laptop.id: "view"}}
        changed = await owner.call("PATCH", f"/api/devices/{device.id}", limits)
        assert changed["machineScopes"] == {laptop.id: "view"}
        for session in (here, there):
            await owner.prompt(session, "k")
        cards = {card["sessionId"]: card for card in await owner.pending_permissions(2)}
        url = str(owner.http.base_url)
        async with client_of(given.home, url, token) as phone:
            await phone.get(f"/api/sessions/{there}")
            prompt = {"key": "p", "prompt": "go"}
            refused = await phone.post(f"/api/sessions/{there}/prompts", prompt, status=403)
            assert "on that machine, this device has the scope view" in refused["error"]["message"]
            await phone.post(f"/api/sessions/{here}/prompts", prompt, status=202)
            await phone.post("/api/sessions", body, status=403)
            for session, status in ((there, 403), (here, 200)):
                card = cards[session]
                answer = {"digest": card["digest"], "optionId": "reject_once"}
                path = f"/api/permissions/{card['requestId']}/answer"
                await phone.post(path, answer, status=status)
        async with EnvelopeClient(WebSocketTransport(url, token=token)) as client:
            session = client.sessions.get(there)
            assert session is not None
            with pytest.raises(AcpError, match="this device has the scope view"):
                await session.cancel()
            request = cards[there]["requestId"]
            with pytest.raises(AcpError, match="this device has the scope view"):
                await client.permissions.respond(request, {"outcome": "cancelled"})
        pending = [each["requestId"] for each in await owner.pending_permissions()]
        assert cards[there]["requestId"] in pending


async def test_limits_survive_a_restart(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with running(given) as (hub, owner):
        await paired(owner, "approve")
        device = next(each for each in hub.auth.devices.all if each.scope == "approve")
        limits = {"here": "view", "*": "prompt"}
        path = f"/api/devices/{device.id}"
        await owner.call("PATCH", path, {"machineScopes": limits})
        await owner.call("PATCH", path, {"machineScopes": {"laptop": "view"}}, status=400)
    async with running(given) as (hub, _):
        device = next(each for each in hub.auth.devices.all if each.scope == "approve")
        assert device.machine_scopes == limits


ACP = (
    "GET /acp/sse?client_id=c&agent={}",
    "POST /acp/rpc?client_id=c&agent={}",
    "POST /acp?agent={}",
)
"""Ways of editors, with the name of an agent."""
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


async def refused_as_editor(phone: Client, way: str) -> None:
    method, path = way.split(" ")
    answer = await phone.http.request(method, path, json=HELLO if method == "POST" else None)
    assert answer.status_code == 403, (way, answer.text)
    url = str(phone.http.base_url).replace("http", "ws", 1).rstrip("/")
    headers = {"Authorization": phone.http.headers["Authorization"]}
    with pytest.raises(InvalidStatus, match="403"):
        async with connect(
            f"{url}/acp?{path.partition('?')[2]}", additional_headers=headers, proxy=None
        ):
            pass


async def test_a_limit_holds_for_what_a_request_names_outside_of_its_path(tmp_path: Path) -> None:
    """By machine, for a device with the scope approve: folders, agents in bodies, editors."""
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with (
        running(given, parts=(acp_endpoints,)) as (hub, owner),
        other_machine(tmp_path / "other", mine=scripted(ASK)) as laptop,
    ):
        await laptop.join(hub, "laptop")
        here = await owner.session("mine", tmp_path)
        body = {"agent": "mine", "cwd": str(tmp_path), "machine": laptop.id}
        there = (await owner.post("/api/sessions", body, status=201))["sessionId"]
        for session in (here, there):
            await owner.post(f"/api/sessions/{session}/close")
        for agent in laptop.runner.agents():
            await owner.call("DELETE", f"/api/agents/{laptop.hub_id(agent.agent_id)}", status=204)
        token = await paired(owner, "approve")
        device = next(each for each in hub.auth.devices.all if each.scope == "approve")
        path, url = f"/api/devices/{device.id}", str(owner.http.base_url)
        async with client_of(given.home, url, token) as phone:
            await owner.call("PATCH", path, {"machineScopes": {laptop.id: "view"}})
            for machine in (laptop.id, "laptop"):
                await phone.get(f"/api/folders?machine={machine}", status=403)
            await phone.get("/api/folders")
            for name in ("agent", "agentId"):
                opened = {name: laptop.hub_id("mine")}
                await phone.post(f"/api/sessions/{here}/resume", opened, status=403)
            assert not laptop.runner.agents()
            for way in ACP:
                await refused_as_editor(phone, way.format(laptop.hub_id("mine")))
            await owner.call("PATCH", path, {"machineScopes": {"here": "view"}})
            await phone.get("/api/folders", status=403)
            await phone.get("/api/folders?machine=here", status=403)
            await phone.get("/api/folders?machine=laptop")
            for way in ACP:
                await refused_as_editor(phone, way.format("mine"))


async def test_the_key_of_a_prompt_is_of_no_machine(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with (
        running(given) as (hub, owner),
        other_machine(tmp_path / "other", mine=scripted(ASK)) as laptop,
    ):
        await laptop.join(hub)
        body = {"agent": "mine", "cwd": str(tmp_path), "machine": laptop.id}
        there = (await owner.post("/api/sessions", body, status=201))["sessionId"]
        token = await paired(owner, "prompt")
        device = next(each for each in hub.auth.devices.all if each.scope == "prompt")
        limits = {"machineScopes": {"here": "view"}}
        await owner.call("PATCH", f"/api/devices/{device.id}", limits)
        async with client_of(given.home, str(owner.http.base_url), token) as phone:
            for key in ("k1", "k2"):
                await phone.prompt(there, key)
            await phone.call("DELETE", f"/api/sessions/{there}/prompts/k2")

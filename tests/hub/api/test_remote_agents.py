"""Agents at a URL in a hub: by their name in hub.toml, by the API, and by whom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent import AgentTurn
from quarterdeck.agents import AgentSettings
from quarterdeck.hub import HubOptions
from quarterdeck.hub.editors import acp_endpoints
from tests.agent.http_client import TOKEN, serving
from tests.hub.api.kit import ASK, client_of, options, paired, running, scripted

pytestmark = pytest.mark.anyio

VARIABLE = "FAR_TOKEN"


async def echo(turn: AgentTurn) -> Any:
    yield turn.text


def far(port: int, scheme: str = "http") -> AgentSettings:
    url = f"{scheme}://127.0.0.1:{port}/acp"
    return AgentSettings(url=url, headers={"Authorization": f"Bearer ${{{VARIABLE}}}"})


def with_token(given: HubOptions, **environ: str) -> HubOptions:
    return replace(given, environ={**given.environ, **environ})


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_an_agent_at_a_url_is_started_by_its_name_with_headers_of_the_environment(
    scheme: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with serving(echo) as hand:
        given = with_token(options(home, far=far(hand.port, scheme)), **{VARIABLE: TOKEN})
        async with running(given) as (hub, owner):
            session_id = await owner.session("far", tmp_path)
            await owner.prompt(session_id, "one", "hi")
            assert (await owner.ended(session_id, "one"))["state"] == "done"
            (listed,) = [
                each
                for each in (await owner.get("/api/agents/known"))["agents"]
                if each["name"] == "far"
            ]
            (agent,) = (await owner.get("/api/agents"))["agents"]
            assert hub.runner.agents()
    assert listed["url"] == f"{scheme}://127.0.0.1:{hand.port}/acp"
    assert listed["headerNames"] == ["Authorization"]
    assert listed["installed"] is True
    for confinement in (listed["confinement"], agent["confinement"]):
        assert confinement["status"] == "advisory"
        assert "not on this machine" in confinement["reason"]
    for path in home.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


async def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", far=far(1))) as (_, owner):
        refused = await owner.call("POST", "/api/agents/known/far", {}, status=409)
    assert f"needs the variable {VARIABLE}" in refused["error"]["message"]


async def test_only_an_admin_names_a_url(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serving(echo) as hand, running(options(home)) as (_, owner):
        definition = {
            "id": "x",
            "url": f"http://127.0.0.1:{hand.port}/acp",
            "headers": {"Authorization": f"Bearer {TOKEN}"},
        }
        for scope in ("view", "prompt", "approve"):
            token = await paired(owner, scope)
            async with client_of(home, str(owner.http.base_url), token) as client:
                await client.call("POST", "/api/agents", {"definition": definition}, status=403)
        made = await owner.post("/api/agents", {"definition": definition}, status=201)
        assert made["status"] == "ready"
        assert "its headers are not stored" in made["notice"]
        wrong = {"id": "y", "url": "gopher://x"}
        refused = await owner.call("POST", "/api/agents", {"definition": wrong}, status=400)
        assert "must begin with" in refused["error"]["message"]


async def test_where_agents_must_be_confined_one_at_a_url_does_not_start(tmp_path: Path) -> None:
    given = replace(options(tmp_path / "home", far=far(1)), confine="require")
    async with running(with_token(given, **{VARIABLE: TOKEN})) as (_, owner):
        refused = await owner.call("POST", "/api/agents/known/far", {}, status=424)
    assert "nothing here can confine it" in refused["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_another_hub_is_an_agent_and_its_requests_are_answered_here(
    scheme: str, tmp_path: Path
) -> None:
    there = options(tmp_path / "there", mine=scripted({"say": "before"}, ASK))
    async with running(there, parts=(acp_endpoints,)) as (_, other):
        token = await paired(other, "approve")
        url = str(other.http.base_url).rstrip("/").replace("http", scheme, 1)
        settings = AgentSettings(
            url=f"{url}/acp?agent=mine", headers={"Authorization": f"Bearer ${{{VARIABLE}}}"}
        )
        given = with_token(options(tmp_path / "here", far=settings), **{VARIABLE: token})
        async with running(given) as (_, owner):
            session_id = await owner.session("far", tmp_path)
            await owner.prompt(session_id, "one")
            (request,) = await owner.pending_permissions()
            answer = {"digest": request["digest"], "optionId": "allow_once"}
            await owner.post(f"/api/permissions/{request['requestId']}/answer", answer)
            assert (await owner.ended(session_id, "one"))["state"] == "done"
        (decision,) = (await other.get("/api/decisions"))["decisions"]
        assert decision["by"]["deviceName"].endswith("via quarterdeck")

"""Agents: known by name, started by command, and what is remembered of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.errors import RequestRejected
from quarterdeck.hub import Hub
from quarterdeck.protocol import Event
from tests.hub.api.kit import Json, client_of, options, paired, running, scripted
from tests.hub.runners import runner_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECRET = "hunter2-hunter2"


def definition(name: str = "adhoc", **more: object) -> Json:
    settings = scripted({"say": "hi"})
    return {"id": name, "command": settings.command, "args": list(settings.args), **more}


async def test_agents_that_can_be_started_are_listed_with_whether_they_are_there(
    tmp_path: Path,
) -> None:
    missing = AgentSettings(command="surely-not-there", env={"API_KEY": SECRET})
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}), missing=missing)
    async with running(given) as (_, client):
        listed = (await client.get("/api/agents/known"))["agents"]
        by_name = {each["name"]: each for each in listed}
        assert by_name["mine"]["installed"] is True
        assert by_name["missing"]["installed"] is False
        assert by_name["missing"]["envNames"] == ["API_KEY"]
        assert by_name["demo"]["source"] == "built-in"
        assert by_name["gemini"]["source"] == "well-known"
        assert SECRET not in str(listed)


async def test_sessions_of_a_known_agent_share_one_process(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.session, "mine", tmp_path)
        (agent,) = (await client.get("/api/agents"))["agents"]
        assert (agent["name"], agent["status"]) == ("mine", "ready")
        listed = await client.get("/api/sessions?agent=mine&status=active")
        assert len(listed["sessions"]) == 5
        assert (await client.get("/api/sessions?agent=other"))["sessions"] == []


async def test_an_agent_that_is_not_installed_is_refused_with_the_reason(tmp_path: Path) -> None:
    given = options(tmp_path / "home", missing=AgentSettings(command="surely-not-there"))
    async with running(given) as (_, client):
        body = {"agent": "missing", "cwd": str(tmp_path)}
        refused = await client.post("/api/sessions", body, status=424)
        assert "surely-not-there" in refused["error"]["message"]
        unknown = {"agent": "nobody", "cwd": str(tmp_path)}
        await client.post("/api/sessions", unknown, status=404)
        for wrong in ({"cwd": str(tmp_path)}, {"agent": "a", "agentId": "b", "cwd": "/"}):
            await client.post("/api/sessions", wrong, status=400)


async def test_an_agent_started_by_command_comes_back_after_a_restart(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with running(given) as (_, client):
        agent = await client.post("/api/agents", {"definition": definition()}, status=201)
        assert "notice" not in agent
        body = {"agentId": agent["agentId"], "cwd": str(tmp_path)}
        session = (await client.post("/api/sessions", body, status=201))["sessionId"]
    async with running(given) as (_, client):
        await client.prompt(session, "k1")
        assert (await client.ended(session, "k1"))["state"] == "done"


async def test_the_environment_of_an_agent_is_stored_nowhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(options(home)) as (_, client):
        wanted = {"definition": definition(env={"API_KEY": SECRET})}
        agent = await client.post("/api/agents", wanted, status=201)
        assert "not stored" in agent["notice"]
        body = {"agentId": agent["agentId"], "cwd": str(tmp_path)}
        session = (await client.post("/api/sessions", body, status=201))["sessionId"]
    for path in home.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path
    async with running(options(home)) as (_, client):
        await client.prompt(session, "k1")
        ended = await client.ended(session, "k1")
        assert ended["state"] == "failed"
        assert "API_KEY" in ended["error"]["message"]


async def test_the_name_of_a_known_agent_is_not_given_to_a_command(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        await client.post("/api/agents", {"definition": definition("demo")}, status=409)


async def test_an_agent_that_is_ended_leaves_its_sessions_disconnected(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        (agent,) = (await client.get("/api/agents"))["agents"]
        await client.call("DELETE", f"/api/agents/{agent['agentId']}", status=204)
        await client.call("DELETE", f"/api/agents/{agent['agentId']}", status=404)
        told = await client.get(f"/api/sessions/{session}")
        assert told["session"]["status"] == "disconnected"
        assert (await client.get("/api/agents"))["agents"] == []
        # And comes back when it is needed.
        await client.prompt(session, "k1")
        assert (await client.ended(session, "k1"))["state"] == "done"


async def test_what_a_device_may_do_is_what_its_scope_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted({"say": "hi"}))) as (_, owner):
        url = str(owner.http.base_url)
        session = await owner.session("mine", tmp_path)
        token = await paired(owner, "view")
        async with client_of(home, url, token) as viewer:
            await viewer.get(f"/api/sessions/{session}")
            body = {"key": "k", "prompt": "x"}
            await viewer.post(f"/api/sessions/{session}/prompts", body, status=403)
        token = await paired(owner, "prompt")
        async with client_of(home, url, token) as prompter:
            await prompter.prompt(session, "k")
            await prompter.post("/api/agents", {"definition": definition()}, status=403)
            answer = {"optionId": "x", "digest": "0" * 64}
            await prompter.post("/api/permissions/perm-1/answer", answer, status=403)
            await prompter.call("DELETE", f"/api/sessions/{session}", status=403)
            # A server is a command: it is not for those who may only use agents that are set up.
            server = {"name": "x", "command": "/bin/sh", "args": [], "env": []}
            wanted = {"agent": "mine", "cwd": str(tmp_path), "mcpServers": [server]}
            refused = await prompter.post("/api/sessions", wanted, status=403)
            assert "admin" in refused["error"]["message"]


async def test_options_go_to_the_agent(tmp_path: Path) -> None:
    option = {
        "id": "model",
        "name": "Model",
        "type": "select",
        "currentValue": "a",
        "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}],
    }
    agent = scripted({"say": "hi"}, sessions={"configOptions": [option]})
    async with running(options(tmp_path / "home", mine=agent)) as (_, client):
        session = await client.session("mine", tmp_path)
        path = f"/api/sessions/{session}"
        chosen = await client.call("PUT", f"{path}/options", {"configId": "model", "value": "b"})
        assert chosen["configOptions"][0]["currentValue"] == "b"
        refused = await client.call("PUT", f"{path}/mode", {"modeId": "x"}, status=422)
        assert "no modes" in refused["error"]["message"]


async def test_a_closed_session_can_be_read_loaded_and_deleted_after_a_restart(
    tmp_path: Path,
) -> None:
    agent = scripted({"say": "hi"}, sessions={"modes": ["ask", "code"]}, load=[{"user": "before"}])
    given = options(tmp_path / "home", mine=agent)
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        path = f"/api/sessions/{session}"
        await client.call("PUT", f"{path}/mode", {"modeId": "code"})
        await client.post(f"{path}/close")
    async with running(given) as (_, client):
        (listed,) = (await client.get("/api/sessions"))["sessions"]
        assert listed["status"] == "closed"
        assert len(await client.events(session)) == listed["lastSeq"]
        assert (await client.get(path))["state"]["modes"]["currentModeId"] == "code"
        for method, what, body in (
            ("POST", "prompts", {"key": "k", "prompt": "hi"}),
            ("PUT", "mode", {"modeId": "ask"}),
        ):
            refused = await client.call(method, f"{path}/{what}", body, status=409)
            assert refused["error"]["code"] == "acpjs/session-closed"
            assert "reopen it first" in refused["error"]["message"]
        assert (await client.post(f"{path}/load"))["status"] == "active"
        await client.post(f"{path}/close")
    async with running(given) as (_, client):
        await client.call("DELETE", path, status=204)
        await client.get(path, status=404)
        assert (await client.get("/api/sessions"))["sessions"] == []


async def test_a_server_whose_secrets_are_not_stored_is_left_out_and_reported(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    secret = {"name": "KEY", "value": SECRET}
    servers = [
        {"name": "plain", "command": "/bin/true", "args": [], "env": []},
        {"name": "secretive", "command": "/bin/true", "args": [], "env": [secret]},
    ]
    async with running(given) as (_, client):
        body = {"agent": "mine", "cwd": str(tmp_path), "mcpServers": servers}
        session = (await client.post("/api/sessions", body, status=201))["sessionId"]
    async with running(given) as (hub, client):
        told: list[Event] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        await client.prompt(session, "k1")
        assert (await client.ended(session, "k1"))["state"] == "done"
        (diagnostic,) = [
            event.payload
            for event in told
            if event.payload.get("code") == "session/servers-left-out"
        ]
        assert diagnostic["message"].startswith("MCP servers left out: secretive; ")


async def test_stored_servers_are_not_moved_by_those_who_could_not_start_them(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    methods: Json = {"session/load": [{"result": {}}]}
    given = options(home, mine=scripted({"say": "hi"}, methods=methods))
    server = {"name": "x", "command": "./server", "args": [], "env": []}
    async with running(given) as (_, owner):
        body = {"agent": "mine", "cwd": str(tmp_path), "mcpServers": [server]}
        session = (await owner.post("/api/sessions", body, status=201))["sessionId"]
        token = await paired(owner, "prompt")
        async with client_of(home, str(owner.http.base_url), token) as prompter:
            path = f"/api/sessions/{session}/load"
            refused = await prompter.post(path, {"cwd": "/etc"}, status=403)
            assert "MCP servers" in refused["error"]["message"]


def definition_changes(told: list[Event]) -> list[Any]:
    diagnostics = (each.payload for each in told if each.type == "diagnostic")
    return [each["data"] for each in diagnostics if each["code"] == "agent/definition-changed"]


async def test_a_name_that_means_another_program_than_before_is_reported(tmp_path: Path) -> None:
    told: list[Event] = []
    first, other = scripted({"say": "hi"}), scripted({"say": "something else"})
    for settings in (first, first, other):
        assert definition_changes(told) == []
        async with Hub(options(tmp_path / "home", mine=settings)) as hub:
            runner_of(hub).host.subscribe(None, 0, told.append)
            await hub.runner.start_agent("mine")
    (change,) = definition_changes(told)
    assert change["before"]["args"] == list(first.args)
    assert change["now"]["args"] == list(other.args)


async def test_an_agent_started_by_another_command_under_its_name_is_reported(
    tmp_path: Path,
) -> None:
    told: list[Event] = []
    async with running(options(tmp_path / "home")) as (hub, client):
        runner_of(hub).host.subscribe(None, 0, told.append)
        for steps in ("hi", "hi", "something else"):
            assert definition_changes(told) == []
            settings = scripted({"say": steps})
            wanted = {"id": "new", "command": settings.command, "args": list(settings.args)}
            await client.post("/api/agents", {"definition": wanted}, status=201)
        assert len(definition_changes(told)) == 1


async def test_an_agent_that_was_taken_out_of_the_configuration_is_not_started(
    tmp_path: Path,
) -> None:
    async with Hub(options(tmp_path / "home", mine=scripted({"say": "hi"}))) as hub:
        await hub.runner.start_agent("mine")
    async with Hub(options(tmp_path / "home")) as hub:
        with pytest.raises(RequestRejected, match="agent named 'mine'"):
            await hub.runner.start_agent("mine")

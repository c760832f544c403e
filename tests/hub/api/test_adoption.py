"""Programs and their sessions are adopted over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.hub import HubOptions
from quarterdeck.testing.foreign import ClaudeProgram
from tests.hub.api.kit import options, running, scripted
from tests.hub.fleet.kit import other_machine

pytestmark = pytest.mark.anyio


def with_claude(folder: Path, **agents: Any) -> HubOptions:
    given = options(folder / "home", **agents)
    environ = {**given.environ, "CLAUDE_CONFIG_DIR": str(folder / "claude")}
    return replace(given, environ=environ)


async def test_a_program_is_followed_and_released(tmp_path: Path) -> None:
    claude = ClaudeProgram(tmp_path / "claude", cwd=str(tmp_path))
    claude.prompt("please look")
    async with running(with_claude(tmp_path)) as (_hub, client):
        program = (await client.get("/api/adoption"))["programs"][0]
        assert "mode" not in program
        assert program["hook"]["isInstalled"] is False
        adopted = await client.post("/api/adoption/claude", {"past": True, "hook": True})
        assert (adopted["mode"], adopted["hook"]["isInstalled"]) == ("past", True)
        (found,) = (await client.get("/api/adoption/claude/sessions"))["sessions"]
        assert found["session"]["id"] == claude.session_id
        path = f"/api/adoption/claude/sessions/{claude.session_id}"
        session = await client.post(path, {})
        assert (session["title"], session["foreign"]["isRunning"]) == ("please look", False)
        page = await client.get(f"/api/sessions/{claude.session_id}/transcript")
        assert "please look" in str(page)
        released = await client.call("DELETE", "/api/adoption/claude")
        assert "mode" not in released
        assert not (tmp_path / "claude" / "settings.json").exists()
        await client.call("POST", "/api/adoption/nothing", {}, status=404)
        await client.call("POST", "/api/adoption/claude/sessions/none", {}, status=404)


async def test_an_agents_own_sessions_are_listed(tmp_path: Path) -> None:
    listed = [{"sessionId": "theirs", "cwd": str(tmp_path), "title": "An old one"}]
    capabilities = {"loadSession": True, "sessionCapabilities": {"list": {}}}
    methods = {
        "session/list": [{"result": {"sessions": listed}}],
        "session/load": [{"result": {}}],
    }
    mine = scripted({"say": "hello"}, capabilities=capabilities, methods=methods)
    async with running(options(tmp_path / "home", mine=mine)) as (_hub, client):
        with anyio.fail_after(10):
            agent = await client.post("/api/agents/known/mine", {})
            page = await client.get(f"/api/agents/{agent['agentId']}/sessions")
            assert page["sessions"] == listed
            body = {"agent": "mine", "cwd": str(tmp_path)}
            loaded = await client.post("/api/sessions/theirs/load", body)
            assert loaded["sessionId"] == "theirs"


async def test_an_agent_that_lists_nothing_is_refused(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted({"say": "a"}))) as (_hub, client):
        agent = await client.post("/api/agents/known/mine", {})
        await client.call("GET", f"/api/agents/{agent['agentId']}/sessions", status=422)


async def test_a_stream_reports_what_the_program_of_a_session_does(tmp_path: Path) -> None:
    claude = ClaudeProgram(tmp_path / "claude", cwd=str(tmp_path))
    claude.prompt("please look")
    async with running(with_claude(tmp_path)) as (_hub, client):
        await client.post("/api/adoption/claude", {})
        path = f"/api/adoption/claude/sessions/{claude.session_id}"
        session = await client.post(path, {})
        assert session["foreign"]["title"] == "Claude Code"
        assert session["foreign"]["answersRequests"] is False
        seen: list[Any] = []
        async with client.http.stream("GET", "/api/stream?host=") as stream:
            with anyio.fail_after(10):
                async for line in stream.aiter_lines():
                    if line == "event: caught-up":
                        claude.run("busy")
                    elif line.startswith("data: ") and "isRunning" in line:
                        seen.append(json.loads(line.removeprefix("data: ")))
                        break
        (notice,) = seen
        assert notice["sessionId"] == claude.session_id
        assert (notice["foreign"]["isRunning"], notice["foreign"]["status"]) == (True, "busy")
        assert notice["foreign"]["takesCommands"] is False
        await client.post("/api/adoption/claude", {"hook": True})
        listed = (await client.get("/api/sessions"))["sessions"]
        assert [each["foreign"]["answersRequests"] for each in listed] == [True]


async def test_the_programs_of_an_unknown_machine_are_not_listed(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (_hub, client):
        await client.call("GET", "/api/adoption?machine=nowhere", status=404)


async def test_a_session_of_another_machine_is_adopted_by_the_names_that_the_hub_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude = ClaudeProgram(tmp_path / "theirs", cwd=str(tmp_path))
    claude.prompt("please look")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "theirs"))  # of the other runner
    async with (
        running(with_claude(tmp_path)) as (hub, client),
        other_machine(tmp_path / "other") as laptop,
    ):
        await laptop.join(hub, "laptop")
        with anyio.fail_after(10):
            listed = (await client.get("/api/adoption?machine=laptop"))["programs"]
            assert listed[0]["folder"] == str(tmp_path / "theirs" / "projects")
            path = f"/api/adoption/{laptop.id}~claude"
            assert (await client.post(path, {}))["mode"] == "live"
            (found,) = (await client.get(f"{path}/sessions"))["sessions"]
            wanted = laptop.hub_id(found["session"]["id"])
            session = await client.post(f"{path}/sessions/{wanted}", {})
            assert (session["sessionId"], session["machine"]) == (wanted, laptop.id)
            assert session["foreign"]["title"] == "Claude Code"
            assert "please look" in str(await client.get(f"/api/sessions/{wanted}/transcript"))
            here = (await client.get("/api/adoption"))["programs"][0]
            assert "mode" not in here

"""Fork, title, archive, status, single cancels and providers, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agents import AgentSettings
from tests.hub.api.kit import Client, options, running, scripted

pytestmark = pytest.mark.anyio

SECRET = "Bearer very-secret-value"
PROVIDER = {"providerId": "main", "apiType": "anthropic", "baseUrl": "http://x"}


def able(**methods: Any) -> AgentSettings:
    """Return an agent that offers everything."""
    capabilities: dict[str, Any] = {
        "sessionCapabilities": {"resume": {}, "fork": {}, "title": {}, "archive": {}, "status": {}},
        "auth": {"status": {}},
        "providers": {},
    }
    answers: dict[str, Any] = {
        "session/resume": {},
        "session/fork": {"sessionId": "forked"},
        "session/set_title": {"title": "as stored"},
        "session/archive": {},
        "session/unarchive": {},
        "session/status": {"status": "open"},
        "auth/status": {"state": "authenticated", "accounts": [{"id": "me"}]},
        "providers/list": {"providers": [{"providerId": "main"}]},
        "providers/set": {},
        "providers/disable": {},
        **methods,
    }
    known = {name: [{"result": answer}] for name, answer in answers.items()}
    return scripted({"say": "hello"}, capabilities=capabilities, methods=known)


async def created(client: Client, folder: Path) -> str:
    body = {"agent": "mine", "cwd": str(folder)}
    session = await client.call("POST", "/api/sessions", body, status=201)
    session_id: str = session["sessionId"]
    return session_id


async def ids(client: Client, query: str = "") -> list[str]:
    listed = await client.get(f"/api/sessions{query}")
    return [each["sessionId"] for each in listed["sessions"]]


async def test_a_session_is_forked_and_listed_with_its_source(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=able())) as (_hub, client):
        session_id = await created(client, tmp_path)
        path = f"/api/sessions/{session_id}"
        forked = await client.call("POST", f"{path}/fork", {}, status=201)
        assert forked["forkedFrom"]["sessionId"] == session_id
        assert await ids(client) == [session_id, "forked"]


async def test_a_fork_that_no_agent_offers_is_refused(tmp_path: Path) -> None:
    mine = scripted({"say": "hello"})
    async with running(options(tmp_path / "home", mine=mine)) as (_hub, client):
        path = f"/api/sessions/{await created(client, tmp_path)}"
        refused = await client.call("POST", f"{path}/fork", {}, status=422)
        assert "cannot fork" in refused["error"]["message"]
        await client.call("POST", "/api/sessions/none/fork", {}, status=404)


@pytest.mark.parametrize("offered", [True, False])
async def test_titles_and_archives_survive_a_restart(tmp_path: Path, offered: bool) -> None:
    mine = able() if offered else scripted({"say": "hello"}, {"title": "the agent's"})
    given = options(tmp_path / "home", mine=mine)
    expected = "as stored" if offered else "my title"
    async with running(given) as (_hub, client):
        session_id = await created(client, tmp_path)
        path = f"/api/sessions/{session_id}"
        named = await client.call("PUT", f"{path}/title", {"title": "my title"})
        assert named["title"] == expected
        assert (await client.call("PUT", f"{path}/archived", {"archived": True}))["archived"]
        assert await ids(client) == []
    async with running(given) as (_hub, client):
        assert await ids(client) == []
        assert await ids(client, "?archived=only") == [session_id]
        assert await ids(client, "?archived=include") == [session_id]
        again = await client.call("PUT", f"{path}/archived", {"archived": False})
        assert (again["archived"], again["title"]) == (False, expected)
        assert await ids(client) == [session_id]
        assert await ids(client, "?archived=only") == []


async def test_a_title_that_a_person_gave_counts_more_than_the_agents(tmp_path: Path) -> None:
    mine = scripted({"title": "the agent's"})
    async with running(options(tmp_path / "home", mine=mine)) as (hub, client):
        session_id = await created(client, tmp_path)
        path = f"/api/sessions/{session_id}"
        await client.call("PUT", f"{path}/title", {"title": "mine"})
        body = {"key": "k", "prompt": [{"type": "text", "text": "go"}]}
        await client.call("POST", f"{path}/prompts", body, status=202)
        await hub.runner.wait_prompt(session_id, "k")
        assert (await client.get(path))["session"]["title"] == "mine"


async def test_a_closed_session_is_renamed_and_archived(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hello"}))
    async with running(given) as (_hub, client):
        path = f"/api/sessions/{await created(client, tmp_path)}"
        await client.call("POST", f"{path}/close", {})
        await client.call("PUT", f"{path}/title", {"title": "before"})
    async with running(given) as (_hub, client):
        assert (await client.call("PUT", f"{path}/title", {"title": "after"}))["title"] == "after"
        await client.call("PUT", f"{path}/archived", {"archived": True})
        assert await ids(client) == []
        assert (await client.get(f"{path}/status"))["status"] == "saved"
        await client.call("DELETE", path, status=204)
        assert await ids(client, "?archived=include") == []


async def test_providers_are_passed_through_and_headers_are_nowhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=able())) as (_hub, client):
        session_id = await created(client, tmp_path)
        agent_id = (await client.get("/api/agents"))["agents"][0]["agentId"]
        path = f"/api/agents/{agent_id}"
        assert (await client.get(f"{path}/providers"))["providers"] == [{"providerId": "main"}]
        headers = {"headers": {"authorization": SECRET}}
        await client.call("PUT", f"{path}/providers", {**PROVIDER, **headers})
        await client.call("POST", f"{path}/providers/disable", {"providerId": "main"})
        assert (await client.get(f"{path}/auth-status"))["state"] == "authenticated"
        await client.call("PUT", "/api/agents/none/providers", PROVIDER, status=404)
        assert (await client.get(f"/api/sessions/{session_id}/status"))["status"] == "open"
    stored = b"".join(each.read_bytes() for each in home.rglob("*") if each.is_file())
    assert SECRET.encode() not in stored


async def test_what_cannot_be_cancelled_by_itself_is_refused(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=able())) as (_hub, client):
        path = f"/api/sessions/{await created(client, tmp_path)}"
        body: dict[str, str] = {"toolCallId": "c"}
        await client.call("POST", f"{path}/cancel-tool-call", body, status=422)
        await client.call("POST", f"{path}/cancel-terminal", {"terminalId": "t"}, status=422)

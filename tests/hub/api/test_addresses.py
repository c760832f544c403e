"""Ids that agents choose, whatever they are, in the addresses of the API."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from quarterdeck.http.headers import path_segment
from quarterdeck.hub import hub_endpoints
from tests.hub.api.kit import Client, options, running, scripted
from tests.hub.runners import admin_token
from tests.hub.streams.test_hub import ask, port_of

pytestmark = pytest.mark.anyio

HOSTILE = (
    "../devices",
    "..",
    "a/b:7",
    "%2e%2e%2f",
    "a b?c#d",
    "~x",
    "sitzung-ü-漢",
    "\ud800",
    "line\nbreak\x00\u202e",
    "x" * 1024,
    "/" * 1024,
)


async def opened(client: Client, session_id: str, cwd: Path) -> str:
    """Take up a session of this id, and return its address."""
    place = f"/api/sessions/{path_segment(session_id)}"
    body = {"agent": "mine", "cwd": str(cwd)}
    view = await client.post(f"{place}/resume", body)
    assert view["sessionId"] == session_id
    return place


async def test_a_session_is_reached_whatever_id_its_agent_chose(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (hub, client):
        for session_id in HOSTILE:
            place = await opened(client, session_id, tmp_path)
            await client.post(f"{place}/prompts", {"key": "k", "prompt": "go"}, status=202)
            await client.until(f"{place}/prompts/k", lambda entry: entry["state"] == "done")
            history = await client.get(f"{place}/history")
            status, said = await ask(port_of(hub), f"{place}/events", await admin_token(hub))
            assert status == 200
            assert [each.data for each in said[:-1]] == history["events"]
        listed = {each["sessionId"] for each in (await client.get("/api/sessions"))["sessions"]}
        assert listed == set(HOSTILE)
    async with running(given) as (hub, client):
        for session_id in HOSTILE:
            place = f"/api/sessions/{path_segment(session_id)}"
            assert (await client.get(place))["session"]["sessionId"] == session_id
            await client.call("DELETE", place, status=204)
        assert (await client.get("/api/sessions"))["sessions"] == []


async def test_several_sessions_of_any_id_are_followed_on_one_connection(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    ids = [each for each in HOSTILE if each != "\ud800"]  # no text, so in no query
    async with running(given) as (hub, client):
        for session_id in ids:
            await opened(client, session_id, tmp_path)
        asked = "&".join(f"session={quote(each, safe='')}:0" for each in ids)
        _status, said = await ask(port_of(hub), f"/api/stream?{asked}", await admin_token(hub))
        assert {each.data["sessionId"] for each in said} <= set(ids)


ODD = (path_segment("\ud83d"), path_segment("\x00"), "9" * 5000, "-1")


async def test_no_segment_of_any_address_makes_the_hub_fail(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted({"say": "hi"}))) as (hub, client):
        session = await client.session("mine", tmp_path)
        for endpoint in hub_endpoints(hub):
            names = re.findall(r"{\w+}", endpoint.path)
            if not names or endpoint.kind == "websocket":
                continue
            for odd in ODD:
                path = re.sub(
                    r"{\w+}", odd, endpoint.path.replace(names[0], session, len(names) - 1)
                )
                answer = await client.http.request(endpoint.method, path, json={})
                assert answer.status_code in (400, 404, 410), (endpoint.method, path, answer.text)


async def test_a_segment_that_is_no_address_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        refused = await client.get("/api/sessions/~a", status=400)
        assert "base64url" in refused["error"]["message"]
        refused = await client.get("/api/sessions/a%2Fb", status=400)
        assert "base64url" in refused["error"]["message"]
        assert "a/b" not in json.dumps(refused)

"""Titles, archives, status, providers and single cancels, for editors of both versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import RpcError
from quarterdeck.hub import Hub
from quarterdeck.hub.auth.device import Scope
from tests.hub.api.kit import Json
from tests.hub.editors.kit import FakeEditor, editor_at, hub_with
from tests.hub.editors.kit_v2 import editor_v2_at, hub_with_v2

pytestmark = pytest.mark.anyio

OFFERS: Json = {
    "session": {"title": {}, "archive": {}, "status": {}},
    "providers": {},
    "auth": {"status": {}},
}
VERSIONS = pytest.mark.parametrize("version", [1, 2])
AGENTS = pytest.mark.parametrize("agent", ["offers", "acp-2", "acp-1"])
PROVIDER: Json = {
    "providerId": "main",
    "apiType": "openai",
    "baseUrl": "https://example.org/v1",
    "headers": {"Authorization": "Bearer secret-of-the-provider"},
}


@asynccontextmanager
async def hub_of(agent: str, home: Path) -> AsyncIterator[Hub]:
    if agent == "acp-1":
        async with hub_with(home, {"say": "hi"}) as (hub, _):
            yield hub
        return
    steps = [{"offers": OFFERS}] if agent == "offers" else []
    async with hub_with_v2(home, *steps) as (hub, _):
        yield hub


@asynccontextmanager
async def editor_of(version: int, hub: Hub, scope: Scope = "admin") -> AsyncIterator[FakeEditor]:
    opened: Any = editor_at if version == 1 else editor_v2_at
    async with opened(hub, scope=scope) as editor:
        yield editor


async def offered(editor: FakeEditor, version: int) -> tuple[Json, Json]:
    """Return the capabilities of sessions, and all."""
    told = await editor.call(
        "initialize", protocolVersion=version, info={"name": "e", "version": "1"}
    )
    given = told["agentCapabilities"] if version == 1 else told["capabilities"]
    return given["sessionCapabilities"] if version == 1 else given["session"], given


def _stored(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


@VERSIONS
@AGENTS
async def test_titles_archives_and_status_work_with_every_agent(
    version: int, agent: str, tmp_path: Path
) -> None:
    async with hub_of(agent, tmp_path / "home") as hub, editor_of(version, hub) as editor:
        sessions, _ = await offered(editor, version)
        assert {"title", "archive", "status"} <= sessions.keys()
        session_id, other = await editor.new(tmp_path), await editor.new(tmp_path)
        given = await editor.call("session/set_title", sessionId=session_id, title="A  name")
        assert given == {"title": "A NAME" if agent == "offers" else "A name"}
        await editor.until(
            lambda: (
                [
                    each["title"]
                    for each in editor.updates
                    if each["sessionUpdate"] == "session_info_update" and "title" in each
                ]
                == [given["title"]]
            )
        )
        status = await editor.call("session/status", sessionId=session_id)
        state = {} if version == 1 else {"state": {"state": "idle"}}
        if version == 2 and agent == "offers":
            state = {"state": {"state": "requires_action"}}
        assert status == {"status": "open", **state}

        assert await editor.call("session/archive", sessionId=session_id) == {}

        async def ids(**params: Any) -> list[str]:
            listed = await editor.call("session/list", **params)
            return [each["sessionId"] for each in listed["sessions"]]

        assert await ids() == [other]
        assert await ids(archived="only") == [session_id]
        assert set(await ids(archived="include")) == {session_id, other}
        (only,) = (await editor.call("session/list", archived="only"))["sessions"]
        assert (only["title"], only["archived"]) == (given["title"], True)
        with pytest.raises(RpcError) as caught:
            await ids(archived="_other")
        assert caught.value.code == -32602
        assert await editor.call("session/unarchive", sessionId=session_id) == {}
        assert set(await ids()) == {session_id, other}

        await editor.call("session/close", sessionId=session_id)
        closed = await editor.call("session/status", sessionId=session_id)
        assert closed["status"] == "saved"
        again = await editor.call("session/set_title", sessionId=session_id, title="later")
        assert again == {"title": "later"}


@VERSIONS
async def test_an_unknown_session_is_not_found_and_a_title_must_be_one(
    version: int, tmp_path: Path
) -> None:
    async with hub_of("acp-1", tmp_path / "home") as hub, editor_of(version, hub) as editor:
        for method in ("set_title", "archive", "unarchive", "status"):
            with pytest.raises(RpcError) as caught:
                await editor.call(f"session/{method}", sessionId="none", title="x")
            assert (caught.value.code, caught.value.data) == (-32002, {"sessionId": "none"})
        session_id = await editor.new(tmp_path)
        for title in ("", "  ", "x" * 1001, 7, None):
            with pytest.raises(RpcError) as caught:
                await editor.call("session/set_title", sessionId=session_id, title=title)
            assert caught.value.code == -32602


@VERSIONS
async def test_providers_are_passed_to_an_agent_that_offers_them(
    version: int, tmp_path: Path
) -> None:
    async with hub_of("offers", tmp_path / "home") as hub, editor_of(version, hub) as editor:
        _, given = await offered(editor, version)
        assert given["providers"] == {}
        assert given["auth"] == {"status": {}}
        assert (await editor.call("auth/status"))["state"] == "authenticated"
        assert await editor.call("providers/list") == {"providers": []}
        assert await editor.call("providers/set", **PROVIDER) == {}
        (listed,) = (await editor.call("providers/list"))["providers"]
        assert listed["current"] == {"apiType": "openai", "baseUrl": PROVIDER["baseUrl"]}
        assert listed["_meta"] == {"headers": ["Authorization"]}
        assert await editor.call("providers/disable", providerId="main") == {}
        assert await editor.call("providers/list") == {"providers": []}
    assert b"secret-of-the-provider" not in _stored(tmp_path)


@VERSIONS
@pytest.mark.parametrize("agent", ["acp-1", "acp-2"])
async def test_providers_of_an_agent_without_them_are_refused(
    version: int, agent: str, tmp_path: Path
) -> None:
    async with hub_of(agent, tmp_path / "home") as hub, editor_of(version, hub) as editor:
        _, given = await offered(editor, version)
        assert "providers" not in given
        assert "auth" not in given
        for method in ("list", "set", "disable"):
            with pytest.raises(RpcError) as caught:
                await editor.call(f"providers/{method}", **PROVIDER)
            assert caught.value.code == -32601


@VERSIONS
async def test_a_device_needs_the_scope_of_what_it_does(version: int, tmp_path: Path) -> None:
    async with hub_of("offers", tmp_path / "home") as hub:
        async with editor_of(version, hub) as owner:
            session_id = await owner.new(tmp_path)
        async with editor_of(version, hub, "prompt") as editor:
            sessions, given = await offered(editor, version)
            assert {"title", "archive", "status"} <= sessions.keys()
            assert "providers" not in given
            assert await editor.call("session/archive", sessionId=session_id) == {}
            for method in ("auth/status", "providers/list", "providers/set", "providers/disable"):
                with pytest.raises(RpcError, match="needs admin"):
                    await editor.call(method, **PROVIDER)
        async with editor_of(version, hub, "view") as viewer:
            sessions, _ = await offered(viewer, version)
            assert "title" not in sessions
            for method in ("session/set_title", "session/archive"):
                with pytest.raises(RpcError, match="needs prompt"):
                    await viewer.call(method, sessionId=session_id, title="x")


async def test_single_cancels_are_refused_unless_the_agent_offers_them(tmp_path: Path) -> None:
    async with hub_of("acp-2", tmp_path / "home") as hub, editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        for method, name in (("tool_call/cancel", "toolCallId"), ("terminal/cancel", "terminalId")):
            with pytest.raises(RpcError) as caught:
                await editor.call(method, sessionId=session_id, **{name: "c1"})
            assert caught.value.code == -32602
        async with editor_at(hub) as older:
            with pytest.raises(RpcError) as caught:
                await older.call("tool_call/cancel", sessionId=session_id, toolCallId="c1")
            assert caught.value.code == -32601


async def test_a_tool_call_that_can_be_cancelled_is_cancelled_at_the_agent(tmp_path: Path) -> None:
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "title": "t"}
    steps = ({"update": {**call, "capabilities": {"cancel": {}}}}, {"ask": {"title": "wait"}})
    async with hub_with_v2(tmp_path / "home", *steps) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        await editor.until(lambda: editor.requests)
        params = {"sessionId": session_id, "toolCallId": "c1"}
        assert await editor.call("tool_call/cancel", **params) == {}

"""Values that no log and no wire can hold: refused with a message, and the host continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.storage import SqliteStorage
from tests.host.sessions.test_lifecycle import Stage, staged

pytestmark = pytest.mark.anyio


async def refused(stage: Stage, call: Any) -> str:
    """Return why a call was refused, after seeing that the host still works."""
    with pytest.raises(AcpError) as refusal:
        await call()
    assert refusal.value.code == "acpjs/config-invalid"
    await stage.create("after")
    return refusal.value.message


async def test_a_prompt_that_cannot_be_written_is_refused_and_leaves_the_session_active(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        await stage.create()
        prompt: Any = [{"type": "text", "text": object()}]
        reason = await refused(stage, lambda: stage.host.prompt("s", prompt))
        assert reason.startswith("the prompt cannot be written as JSON")
        assert stage.status() == "active"


async def test_servers_that_cannot_be_written_leave_a_session_that_was_to_be_loaded_as_it_was(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        await stage.create()
        reason = await refused(
            stage,
            lambda: stage.host.load_session(
                "agent-1", "s", cwd=stage.cwd, mcp_servers=[{"name": object()}]
            ),
        )
        assert reason.startswith("mcpServers cannot be written as JSON")
        assert stage.status() == "active"


async def test_a_directory_with_a_null_character_is_refused(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        reason = await refused(stage, lambda: stage.host.create_session("agent-1", cwd="a\0b"))
        assert "null character" in reason


async def test_an_outcome_that_cannot_be_written_leaves_the_request_pending(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        seen = await stage.create()
        stage.ask()
        request_id = (await stage.host_seen.first("permission-updated")).payload["requestId"]
        chosen = {"outcome": "selected", "optionId": "yes"}

        async def answer_badly() -> None:
            await stage.host.respond_permission(request_id, {**chosen, "_meta": object()})

        await refused(stage, answer_badly)
        await stage.host.respond_permission(request_id, chosen)
        resolved = seen.of("permission-request-resolved")
        assert resolved == [{"requestId": request_id, "status": "answered", "outcome": chosen}]


@pytest.mark.parametrize("tool_call", ["text", ["list"], 5, None])
async def test_a_permission_request_without_a_tool_call_is_answered_with_what_is_wrong(
    tmp_path: Path, tool_call: Any
) -> None:
    async with staged(tmp_path) as stage:
        await stage.create()
        params = {"sessionId": "s", "toolCall": tool_call, "options": []}
        request_id = stage.puppet.ask("session/request_permission", params)
        while not stage.puppet.answers[request_id]:
            await anyio.lowlevel.checkpoint()
        (answer,) = stage.puppet.answers[request_id]
        assert answer["error"]["code"] == -32602
        assert stage.host.get_permissions() == []


@pytest.mark.parametrize("title", [42, {"a": 1}, ["x"], True])
async def test_a_title_that_is_no_text_does_not_cost_a_session_its_record(
    tmp_path: Path, title: Any
) -> None:
    log = SqliteStorage(tmp_path / "log.db")
    async with staged(tmp_path, log) as stage:
        seen = await stage.create()
        update = {"sessionUpdate": "session_info_update", "title": title, "updatedAt": "today"}
        stage.puppet.update("s", update)
        host_seen = await seen.first("session-info-update")
        assert host_seen.payload["title"] == title
    async with staged(tmp_path, log) as stage:
        (restored,) = await stage.host.restore_sessions()
        assert (restored.cwd, restored.updated_at) == (stage.cwd, "today")


async def test_names_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    wrong: Any = ["s"]
    async with staged(tmp_path) as stage:
        await stage.create()
        host = stage.host
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: host.load_session("agent-1", wrong, cwd=stage.cwd),
            lambda: host.resume_session("agent-1", wrong, cwd=stage.cwd),
            lambda: host.authenticate("agent-1", wrong),
        ]
        for call in calls:
            with pytest.raises(AcpError, match="must be a text, not list"):
                await call()


async def test_a_number_to_begin_at_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong: Any = "0"
    async with staged(tmp_path) as stage:
        await stage.create()
        with pytest.raises(AcpError, match="from_seq must be a number, not str"):
            stage.host.subscribe("s", wrong, print)
        with pytest.raises(AcpError, match="from_seq must be a number, not str"):
            await anext(stage.host.events("s", wrong))


async def create(stage: Stage, session_id: str) -> None:
    """Create a session whose id the agent chooses; raise what the caller gets."""
    failures: list[AcpError] = []

    async def call() -> None:
        try:
            await stage.host.create_session("agent-1", cwd=stage.cwd)
        except AcpError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        stage.puppet.answer(await stage.received("session/new"), {"sessionId": session_id})
    raise failures[0]


@pytest.mark.parametrize("session_id", ["x" * 1025, "ü" * 513, "y" * 1_000_000])
async def test_a_session_id_that_has_no_address_is_refused(session_id: str, tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        reason = await refused(stage, lambda: create(stage, session_id))
        assert "the agent created a session that cannot be used" in reason
        assert "at most 1024 bytes" in reason
        assert len(reason) < 300
        assert [each.session_id for each in stage.host.get_sessions()] == ["after"]
    async with staged(tmp_path) as stage:
        reason = await refused(
            stage, lambda: stage.host.load_session("agent-1", session_id, cwd=stage.cwd)
        )
        assert "at most 1024 bytes" in reason


async def test_the_longest_session_id_is_taken(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.create("x" * 1024)
        assert stage.host.get_session("x" * 1024) is not None

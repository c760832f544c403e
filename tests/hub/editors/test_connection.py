"""An editor at the hub: the same session as everywhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import ConnectionClosed, RpcError
from quarterdeck.hub.editors.endpoints import EditorServer
from quarterdeck.wire import MemoryTransport, memory_pair
from tests.hub.api.kit import ASK, Json
from tests.hub.editors.kit import ALLOW, FakeEditor, editor_at, hub_with, owner_device
from tests.taping.tapes import Tapes

pytestmark = pytest.mark.anyio


async def test_a_turn_of_an_editor_is_in_the_log_and_its_updates_come_before_its_answer(
    tmp_path: Path, taping: Tapes
) -> None:
    checked = taping.count
    async with hub_with(tmp_path / "home", {"say": "hello"}) as (_, owner):
        async with editor_at(_) as editor:
            session_id = await editor.new(tmp_path)
            assert await editor.prompt(session_id, "hi") == {"stopReason": "end_turn"}
            assert editor.said() == ["hello"]
            assert editor.said("user_message_chunk") == [], "it knows what its user said"
        types = [event["type"] for event in await owner.events(session_id)]
        assert types.count("user-message-chunk") == 1
        assert types.count("prompt-finished") == 1
    taping.check()
    assert taping.count - checked >= 4, "what a hub says to an editor is held against the schema"


async def test_an_editor_allows_what_the_agent_asks_and_the_audit_names_it(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        editor.answer = ALLOW
        await editor.prompt(session_id)
        assert editor.said() == ["done"]
        (decision,) = (await owner.get("/api/decisions"))["decisions"]
        assert decision["by"]["deviceName"] == "owner via editor"


async def test_what_the_phone_answers_first_is_withdrawn_from_the_editor(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, session_id)
            await editor.until(lambda: editor.requests)
            (request,) = await owner.pending_permissions()
            await owner.post(
                f"/api/permissions/{request['requestId']}/answer",
                {"digest": request["digest"], "optionId": "reject_once"},
            )
        assert editor.said() == ["fine"]
        await editor.until(lambda: editor.withdrawn)


async def test_an_editor_that_cancels_its_own_prompt_decides_nothing_in_the_turn_of_another(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        # What ACP has it say to everything that is asked, when its user cancels a prompt.
        editor.answer = {"outcome": {"outcome": "cancelled"}}
        await owner.prompt(session_id, "phone")
        await editor.until(lambda: editor.requests)
        for _ in range(3):
            await editor.call("session/list")  # by now its answer was heard
        (request,) = await owner.pending_permissions()
        await owner.post(
            f"/api/permissions/{request['requestId']}/answer",
            {"digest": request["digest"], "optionId": "allow_once"},
        )
        await editor.until(editor.said)
        assert editor.said() == ["done"]


async def test_a_prompt_from_the_phone_shows_in_the_editor_with_its_answer(tmp_path: Path) -> None:
    say = {"say": "hello"}
    async with hub_with(tmp_path / "home", say) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await owner.prompt(session_id, "one", "from the phone")
        await editor.until(lambda: editor.said() == ["hello"])
        assert editor.said("user_message_chunk") == ["from the phone"]


async def test_an_editor_that_dies_in_a_turn_comes_back_and_sees_everything_once(
    tmp_path: Path,
) -> None:
    steps = ({"say": "before"}, ASK, {"say": "after"})
    async with hub_with(tmp_path / "home", *steps) as (hub, owner):
        async with editor_at(hub) as editor, anyio.create_task_group() as tasks:
            session_id = await editor.new(tmp_path)
            tasks.start_soon(_prompt_in_vain, editor, session_id)
            await editor.until(lambda: editor.requests)
            await editor.crash()
        assert (await owner.get(f"/api/sessions/{session_id}"))["session"]["status"] == "prompting"
        async with editor_at(hub) as again:
            await again.load(session_id, tmp_path)
            assert again.said("user_message_chunk") == ["go"]
            assert again.said() == ["before"]
            await again.until(lambda: again.requests)
            (request,) = await owner.pending_permissions()
            await owner.post(
                f"/api/permissions/{request['requestId']}/answer",
                {"digest": request["digest"], "optionId": "allow_once"},
            )
            await again.until(lambda: "after" in again.said())
            assert again.said() == ["before", "done", "after"]
            calls = [each for each in again.updates if each["sessionUpdate"] == "tool_call"]
            assert len(calls) == 1


async def _prompt_in_vain(editor: FakeEditor, session_id: str) -> None:
    with pytest.raises(ConnectionClosed):
        await editor.prompt(session_id)


async def test_a_second_prompt_of_the_same_editor_is_refused(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, session_id)
            await editor.until(lambda: editor.requests)
            with pytest.raises(RpcError, match="Invalid Request"):
                await editor.prompt(session_id)
            await editor.connection.notify("session/cancel", {"sessionId": session_id})


async def test_a_cancelled_turn_is_answered_with_cancelled(tmp_path: Path) -> None:
    answers = []

    async def prompt() -> None:
        answers.append(await editor.prompt(session_id))

    async with hub_with(tmp_path / "home", ASK) as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await editor.until(lambda: editor.requests)
            await editor.connection.notify("session/cancel", {"sessionId": session_id})
    assert answers == [{"stopReason": "cancelled"}]


async def test_an_editor_that_does_not_read_delays_no_other_and_misses_nothing(
    tmp_path: Path,
) -> None:
    steps = {"repeat": 2500, "steps": [{"say": "x" * 1000}]}
    async with hub_with(tmp_path / "home", steps) as (hub, owner):
        ours, theirs = memory_pair()
        async with EditorServer(hub, "mine", owner_device()).serve_client(theirs):
            await _send(ours, 1, "initialize", protocolVersion=1)
            await _send(ours, 2, "session/new", cwd=str(tmp_path), mcpServers=[])
            session_id = (await _answer(ours, 2))["sessionId"]
            blocks = [{"type": "text", "text": "go"}]
            await _send(ours, 3, "session/prompt", sessionId=session_id, prompt=blocks)
            path = f"/api/sessions/{session_id}/prompts"
            (key,) = {each["key"] for each in (await owner.until(path, _has_one))["prompts"]}
            assert (await owner.ended(session_id, key))["state"] == "done"
            received = b""
            while b'"id":3' not in received:
                received += await ours.receive()
        assert received.count(b"agent_message_chunk") == 2500
        assert b'"id":3' in received.splitlines()[-1]


def _has_one(listed: Any) -> bool:
    return len(listed["prompts"]) == 1


async def _answer(transport: MemoryTransport, number: int) -> Json:
    """Read up to the answer to a request, however what comes is cut."""
    received = b""
    while True:
        received += await transport.receive()
        for line in received.splitlines(keepends=True):
            if line.endswith(b"\n") and (message := json.loads(line)).get("id") == number:
                result: Json = message["result"]
                return result


async def _send(transport: MemoryTransport, number: int, method: str, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    await transport.send(json.dumps(message).encode() + b"\n")


async def test_a_notice_is_for_its_moment_and_all_else_is_replayed(tmp_path: Path) -> None:
    notice: Json = {"sessionUpdate": "notice", "severity": "info", "title": "hello"}
    other: Json = {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "failed"}
    steps: tuple[Json, ...] = ({"update": notice}, {"update": other}, {"say": "done"})
    async with hub_with(tmp_path / "home", *steps) as (hub, _):
        async with editor_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            await editor.prompt(session_id)
            live = [each["sessionUpdate"] for each in editor.updates]
        async with editor_at(hub) as late:
            await late.load(session_id, tmp_path)
            replayed = [each["sessionUpdate"] for each in late.updates]
    assert {"notice", "compaction_update"} <= set(live)
    assert "notice" not in replayed
    assert "compaction_update" in replayed

"""Ending an agent that ignores a cancel: the prompt queue continues with a new one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.hub.editors.kit import editor_at, hub_with

pytestmark = pytest.mark.anyio


async def test_the_queue_continues_after_the_agent_of_a_stuck_turn_is_ended(tmp_path: Path) -> None:
    more = {
        "capabilities": {"sessionCapabilities": {"resume": {}}},
        "methods": {"session/resume": [{"result": {}}]},
        "turns": [
            {"when": "first", "steps": [{"say": "stuck"}, {"stall": True, "deaf": True}]},
            {"steps": [{"say": "next"}]},
        ],
    }
    async with hub_with(tmp_path / "home", **more) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        path = f"/api/sessions/{session_id}"
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(60):
                block = [{"type": "text", "text": "first"}]
                await owner.post(f"{path}/prompts", {"prompt": block, "key": "k1"}, status=202)
                await editor.until(lambda: editor.said() == ["stuck"])
                again = [{"type": "text", "text": "second"}]
                await owner.post(f"{path}/prompts", {"prompt": again, "key": "k2"}, status=202)
                await owner.post(f"{path}/cancel")
                await owner.post(f"{path}/end-agent")
                await editor.until(lambda: editor.said() == ["stuck", "next"])
                (failed,) = [
                    each
                    for each in (await owner.get(f"{path}/prompts"))["prompts"]
                    if each["key"] == "k1"
                ]
                assert "it was ended by " in failed["error"]["message"]
            tasks.cancel_scope.cancel()

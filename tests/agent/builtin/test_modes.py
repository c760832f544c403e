"""Modes decide which tools exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent.builtin.modes import MODES, allows
from quarterdeck.agent.builtin.tools import TOOLS
from tests.agent.builtin.driver import ALLOW, ALWAYS, at_work, texts_of

READING = {"read", "list", "glob", "grep", "fetch", "plan"}
SANDBOX = {f"sandbox_{name}" for name in ("read", "list", "glob", "grep", "write", "edit", "shell")}
EXPECTED = {
    "full": READING | {"write", "edit", "shell"},
    "read-only": READING,
    "safe": READING | {"write", "edit"},
    "sandbox": SANDBOX | {"fetch", "plan"},
    "nonsense": set(),
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_a_mode_has_the_tools_of_its_kinds(mode: str) -> None:
    assert {t.name for t in TOOLS if allows(mode, t.kind, t.location)} == EXPECTED[mode]


def test_every_mode_is_tested() -> None:
    assert {mode["id"] for mode in MODES} == set(EXPECTED) - {"nonsense"}


def test_tools_that_change_run_or_leave_need_permission_except_in_the_sandbox() -> None:
    requiring = {tool.name for tool in TOOLS if tool.asks}
    assert requiring == {"write", "edit", "shell", "fetch"}


@pytest.mark.anyio
async def test_a_tool_of_another_mode_is_not_run_although_the_model_calls_it(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALLOW)
        await driver.set_mode("read-only")
        done = await driver.use("write", '{"path": "a.txt", "content": "x"}')
        assert "there is no tool write in mode read-only" in texts_of(done)
    assert permissions == []
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [ALLOW, ALWAYS])
async def test_a_mode_that_is_set_during_a_permission_request_counts_for_that_call_and_the_next(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    async with at_work(tmp_path) as driver:
        del driver.hand.answers["session/request_permission"]
        write = '{"path": "%s", "content": "x"}'
        script = f"/tool write {write % 'a.txt'}\n/also write {write % 'b.txt'}"
        prompt = await driver.hand.ask_prompt(driver.session_id, script)
        permission = await driver.hand.requested("session/request_permission")
        await driver.set_mode("read-only")
        await driver.hand.answer(permission, answer)
        assert (await driver.hand.answered(prompt))["result"] == {"stopReason": "end_turn"}
        ended = [each for each in driver.hand.updates("tool_call_update") if "rawOutput" in each]
        assert [each["status"] for each in ended] == ["failed", "failed"]
        assert all("there is no tool write in mode read-only" in texts_of(each) for each in ended)
    assert not (tmp_path / "a.txt").exists()
    assert not (tmp_path / "b.txt").exists()


@pytest.mark.anyio
async def test_planning_has_no_tool_that_the_mode_has_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("secret")
    async with at_work(tmp_path) as driver:
        await driver.set_mode("sandbox")
        await driver.say('/plan\n/tool read {"path": "a.txt"}')
        done = driver.hand.updates("tool_call_update")[-1]
        assert "no tool read in this read-only turn; there are: fetch, plan" in texts_of(done)

"""Modes decide which tools exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.agent.builtin.modes import MODES, allows
from quarterdeck.agent.builtin.tools import TOOLS
from tests.agent.builtin.desk import ALLOW, at_work, texts_of

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
    assert {t.name for t in TOOLS if allows(mode, t.kind, t.place)} == EXPECTED[mode]


def test_every_mode_is_tested() -> None:
    assert {mode["id"] for mode in MODES} == set(EXPECTED) - {"nonsense"}


def test_whatever_changes_runs_or_leaves_asks_except_in_the_sandbox() -> None:
    asking = {tool.name for tool in TOOLS if tool.asks}
    assert asking == {"write", "edit", "shell", "fetch"}


@pytest.mark.anyio
async def test_a_tool_of_another_mode_is_not_run_although_the_model_calls_it(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as desk:
        asked = desk.answer_permissions(ALLOW)
        await desk.set_mode("read-only")
        done = await desk.use("write", '{"path": "a.txt", "content": "x"}')
        assert "there is no tool write in mode read-only" in texts_of(done)
    assert asked == []
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.anyio
async def test_a_mode_that_is_set_while_a_turn_runs_counts_for_its_next_call(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as desk:
        del desk.hand.answers["session/request_permission"]
        write = '{"path": "%s", "content": "x"}'
        script = f"/tool write {write % 'a.txt'}\n/also write {write % 'b.txt'}"
        prompt = await desk.hand.ask_prompt(desk.session_id, script)
        question = await desk.hand.requested("session/request_permission")
        await desk.set_mode("read-only")
        await desk.hand.answer(question, ALLOW)
        await desk.hand.answered(prompt)
    assert (tmp_path / "a.txt").exists()
    assert not (tmp_path / "b.txt").exists()

"""Rollout files of Codex become updates."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from quarterdeck.agents.adapters.codex import CodexAdapter
from quarterdeck.agents.adapters.codex.rollout import Rollout
from quarterdeck.protocol import Normalized
from quarterdeck.testing.foreign import read_all
from quarterdeck.views.context import ForeignSession, ForeignUpdate

RECORDED = Path(__file__).parents[2] / "vectors" / "foreign" / "codex-rollout.jsonl"


def recorded() -> list[ForeignUpdate]:
    session = ForeignSession(id="s", cwd="/home/me/project", path=str(RECORDED))
    return read_all(CodexAdapter({"CODEX_HOME": str(RECORDED.parent)}), session)


def updates_of(kind: str, payload: Any) -> list[Normalized]:
    return Rollout(at=1).updates({"type": kind, "payload": payload})


def test_a_recorded_rollout_has_its_turns_and_calls() -> None:
    updates = recorded()
    counted = Counter(each.update.type for each in updates)
    assert counted["user-message-chunk"] == counted["prompt-finished"] == 4
    assert counted["agent-message-chunk"] == 5
    assert counted["agent-thought-chunk"] == 4
    assert counted["tool-call"] == counted["tool-call-update"] == 1
    prompts = [each.update.payload for each in updates if each.update.type == "user-message-chunk"]
    assert "environment_context" not in json.dumps(prompts)
    call = next(each.update.payload for each in updates if each.update.type == "tool-call")
    assert (call["title"], call["kind"]) == ("apply_patch", "edit")


def test_no_line_of_a_rollout_is_lost() -> None:
    kept = json.dumps([each.update.extensions for each in recorded()])
    for line in RECORDED.read_text().splitlines():
        assert json.dumps(json.loads(line)["timestamp"]) in kept


def test_a_shell_command_is_a_call_that_can_fail() -> None:
    arguments = json.dumps({"cmd": "make"})
    call = {"type": "function_call", "name": "exec_command", "call_id": "c"}
    (begun,) = updates_of("response_item", {**call, "arguments": arguments})
    assert (begun.payload["title"], begun.payload["kind"]) == ("make", "execute")
    assert begun.payload["rawInput"] == {"cmd": "make"}
    output = {"type": "function_call_output", "call_id": "c", "output": "Exit code: 2\nno"}
    (ended,) = updates_of("response_item", output)
    assert ended.payload["status"] == "failed"


def test_tokens_are_shown_if_the_size_of_the_context_is_known() -> None:
    info = {"last_token_usage": {"total_tokens": 5}, "model_context_window": 100}
    (usage,) = updates_of("event_msg", {"type": "token_count", "info": info})
    assert (usage.type, usage.payload) == ("usage-update", {"used": 5, "size": 100})
    (kept,) = updates_of("event_msg", {"type": "token_count", "info": None})
    assert (kept.type, kept.payload) == ("session-info-update", {})


def test_lines_of_any_shape_are_kept() -> None:
    shapes: list[Any] = [5, None, {}, {"type": "message"}, {"type": "message", "content": [3]}]
    shapes += [{"type": "function_call"}, {"type": "x_output"}, {"type": "reasoning"}]
    for shape in shapes:
        for kind in ("response_item", "event_msg", "new"):
            assert updates_of(kind, shape), (kind, shape)
    assert Rollout(at=1).updates([1])

"""Transcripts of Claude Code become the updates that its ACP agent would have sent."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from quarterdeck.agents.adapters.claude import ClaudeAdapter
from quarterdeck.agents.adapters.claude.transcript import Transcript
from quarterdeck.protocol import Normalized
from quarterdeck.testing.foreign import ClaudeProgram, read_all
from quarterdeck.views.context import ForeignSession, ForeignUpdate

RECORDED = Path(__file__).parents[2] / "vectors" / "foreign" / "claude-transcript.jsonl"


def adapter_in(folder: Path) -> ClaudeAdapter:
    return ClaudeAdapter({"CLAUDE_CONFIG_DIR": str(folder)})


def recorded() -> list[ForeignUpdate]:
    session = ForeignSession(id="s", cwd="/home/me/project", path=str(RECORDED))
    return read_all(adapter_in(RECORDED.parent), session)


def updates_of(*lines: dict[str, Any]) -> list[Normalized]:
    transcript = Transcript(cwd="/project", is_turn_open=False, at=1)
    return [update for line in lines for update in transcript.updates(line)]


def test_a_recorded_transcript_has_its_turns_calls_and_title() -> None:
    updates = recorded()
    counted = Counter(each.update.type for each in updates)
    assert counted["user-message-chunk"] == 4
    assert counted["tool-call"] == counted["tool-call-update"] == 3
    assert counted["prompt-finished"] == 4
    assert "unrecognized-update" not in counted
    prompts = [each for each in updates if each.update.type == "user-message-chunk"]
    assert "/exit" not in json.dumps([each.update.payload for each in prompts])
    failed = [each.update.payload for each in updates if each.update.payload.get("status")]
    assert [each["status"] for each in failed if each["status"] == "failed"] == ["failed"]
    titles = {each.update.payload.get("title") for each in updates} - {None}
    assert "Do what the user asked" in titles
    written = next(each.update.payload for each in updates if each.update.type == "tool-call")
    assert (written["title"], written["kind"]) == ("Write notes.txt", "edit")
    assert written["content"][0]["newText"] == "line one\nline two\n"


def test_no_line_of_a_transcript_is_lost() -> None:
    kept = json.dumps([(each.update.payload, each.update.extensions) for each in recorded()])
    for line in RECORDED.read_text().splitlines():
        for key, value in json.loads(line).items():
            if key in {"uuid", "timestamp", "parentUuid"} and value:
                assert json.dumps(value) in kept, line


def test_blocks_of_one_message_have_its_id() -> None:
    message = {"id": "m", "role": "assistant"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    blocks = [thought, {"type": "text", "text": "a"}]
    lines = [{"type": "assistant", "message": {**message, "content": [each]}} for each in blocks]
    updates = updates_of(*lines)
    assert [each.type for each in updates] == ["agent-thought-chunk", "agent-message-chunk"]
    assert {each.payload["messageId"] for each in updates} == {"m"}
    assert updates[0].extensions is not None
    assert updates[0].extensions["claude"]["block"] == {"signature": "s"}


def test_a_turn_ends_once_however_its_end_is_recorded() -> None:
    def said(reason: str | None) -> dict[str, Any]:
        content = [{"type": "text", "text": "done"}]
        return {"type": "assistant", "message": {"stop_reason": reason, "content": content}}

    prompt = {"type": "user", "message": {"content": "go"}}
    duration = {"type": "system", "subtype": "turn_duration", "durationMs": 5}
    interrupted = {"type": "user", "message": {"content": "[Request interrupted by user]"}}
    endings = {
        "end_turn": (said("end_turn"), duration),
        "max_tokens": (said("max_tokens"), duration),
        "cancelled": (said(None), interrupted, duration),
    }
    for reason, lines in endings.items():
        finished = [each for each in updates_of(prompt, *lines) if each.type == "prompt-finished"]
        assert [each.payload for each in finished] == [{"stopReason": reason}]
    older = [each.type for each in updates_of(prompt, said(None), duration)]
    assert older == ["user-message-chunk", "agent-message-chunk", "prompt-finished"]


def test_todos_are_a_plan_and_edits_keep_their_diff() -> None:
    def used(name: str, given: dict[str, Any]) -> dict[str, Any]:
        block = {"type": "tool_use", "id": "t", "name": name, "input": given}
        return {"type": "assistant", "message": {"content": [block]}}

    _, plan = updates_of(used("TodoWrite", {"todos": [{"content": "a", "status": "completed"}]}))
    expected = {"content": "a", "status": "completed", "priority": "medium"}
    assert plan == Normalized("plan", {"entries": [expected]})
    given = {"file_path": "/project/a.py", "old_string": "1", "new_string": "2"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "edited"}
    output: dict[str, Any] = {"structuredPatch": []}
    ended = {"type": "user", "message": {"content": [result]}, "toolUseResult": output}
    call, update = updates_of(used("Edit", given), ended)
    assert call.payload["content"] == [
        {"type": "diff", "path": "/project/a.py", "oldText": "1", "newText": "2"}
    ]
    assert "content" not in update.payload
    assert update.payload["rawOutput"] == output


def test_lines_of_any_shape_are_kept() -> None:
    shapes: list[Any] = [
        {},
        {"type": "user"},
        {"type": "user", "message": {"content": 5}},
        {"type": "user", "message": {"content": [None, 3, "text", {"type": "new"}]}},
        {"type": "assistant", "message": {"content": [None, {"type": "text"}, {"type": "x"}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": 5}]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": None}]}},
        {"type": "ai-title", "aiTitle": None},
        {"type": "system", "timestamp": "yesterday"},
    ]
    for shape in shapes:
        assert updates_of(shape), shape
    assert Transcript(cwd="", is_turn_open=False, at=1).updates([1])


def test_running_sessions_are_those_of_processes_that_live(tmp_path: Path) -> None:
    program, adapter = ClaudeProgram(tmp_path), adapter_in(tmp_path)
    program.run("waiting", waiting_for="permission prompt")
    ClaudeProgram(tmp_path, number=2).run(pid=2**22 + 1)  # no process has this number
    (tmp_path / "sessions" / "77.json").write_text("{half")
    (tmp_path / "sessions" / "note.txt").write_text("{}")
    (running,) = adapter.find_running()
    assert (running.id, running.pid, running.status) == (program.session_id, os.getpid(), "waiting")
    assert running.waiting_for == "permission prompt"
    program.run("idle").touch()
    assert [each.status for each in adapter.find_running()] == ["idle"]


def test_a_sub_agent_is_found_with_its_parent(tmp_path: Path) -> None:
    program, adapter = ClaudeProgram(tmp_path), adapter_in(tmp_path)
    program.prompt("go")
    program.sub_agent("a1", program.start_call("Agent", {"description": "Look"}))
    found = {each.id: each for each in adapter.find_sessions()}
    child = found["agent-a1"]
    assert (child.parent_id, child.title) == (program.session_id, "Look")
    assert child.parent_call_id
    assert read_all(adapter, child)[0].update.type == "agent-message-chunk"


def test_what_was_recorded_through_acp_is_skipped(tmp_path: Path) -> None:
    program, adapter = ClaudeProgram(tmp_path), adapter_in(tmp_path)
    program.prompt("before")
    (session,) = adapter.find_sessions()
    until = read_all(adapter, session)[-1].at
    program.answer("after")
    reader = adapter.open_reader(session, None, 0)
    reader.skip(until)
    kinds = [each.update.type for each in reader.read()]
    assert kinds == ["agent-message-chunk", "prompt-finished"]

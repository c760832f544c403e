"""Optional fields of events: present where the log has the fact, absent where it has not."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.views.context import (
    ContextProjector,
    EnvironmentRuntime,
    TextContent,
    TokenUsage,
    ToolResultContent,
    ToolUseContent,
)
from quarterdeck.views.context.contract import SessionFacts
from tests.views.context.support import OPTIONS, Log, every, only

TASK = {"description": "look", "prompt": "look well", "subagent_type": "explore"}
CLAUDE_USAGE = {
    "input_tokens": 3,
    "output_tokens": 40,
    "cache_read_input_tokens": 500,
    "cache_creation_input_tokens": 60,
    "service_tier": "standard",
}


def test_the_start_of_a_session_has_its_environment() -> None:
    option = {"id": "model", "category": "model", "currentValue": "m1", "options": []}
    facts = SessionFacts(
        session_id="s", cwd="/p", runtime=EnvironmentRuntime(os="linux", arch="x86_64")
    )
    projector = ContextProjector(facts)
    log = Log().started(configOptions=[option])
    emitted = [each for event in log.events for each in projector.feed(event)]
    started, info = only(emitted, "session:started"), only(emitted, "environment:info")
    assert started.environment == info.context
    assert (started.environment.model.id, started.environment.runtime.os) == ("m1", "linux")


@pytest.mark.parametrize("own_ms", [None, 5000.0])
@pytest.mark.parametrize("stored", ["2026-01-01T00:00:30Z", None, 7, [], {}])
def test_a_request_expires_when_its_event_says_so(own_ms: float | None, stored: Any) -> None:
    payload = {"requestId": "r", "toolCall": {"toolCallId": "c"}, "options": OPTIONS}
    derived = {} if stored is None else {"expiresAt": stored}
    log = Log().started().prompted()
    log.add("permission-request-created", payload, {"quarterdeck": {"request": derived}})
    expires_at = only(log.emitted(approval_expiry_ms=own_ms), "approval:requested").expires_at
    if isinstance(stored, str):
        assert expires_at == stored
    else:
        assert (expires_at is None) == (own_ms is None)


@pytest.mark.parametrize("more", [None, {}, {"quarterdeck": 1}, {"quarterdeck": {"request": 1}}])
def test_a_request_without_derived_facts_does_not_expire(more: Any) -> None:
    payload = {"requestId": "r", "toolCall": {"toolCallId": "c"}, "options": OPTIONS}
    log = Log().started().prompted().add("permission-request-created", payload, more)
    assert only(log.emitted(), "approval:requested").expires_at is None


@pytest.mark.parametrize(
    "ending",
    [
        {"_meta": {"claudeCode": {"toolResponse": {"usage": CLAUDE_USAGE}}}},
        {"rawOutput": {"output": "found", "usage": CLAUDE_USAGE}},
    ],
)
def test_a_sub_agent_ends_with_the_tokens_that_its_call_reports(ending: dict[str, Any]) -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="Task", kind="think", rawInput=TASK)
    log.update("tool_call_update", toolCallId="t", status="in_progress")
    log.update("tool_call_update", toolCallId="t", **ending)
    log.update("tool_call_update", toolCallId="t", status="completed")
    ended = only(log.finished().emitted(), "subagent:completed")
    assert ended.token_usage == TokenUsage(
        input_tokens=3, output_tokens=40, cache_read_tokens=500, cache_write_tokens=60
    )


@pytest.mark.parametrize("usage", [None, 5, [], {}, {"input_tokens": "many"}, {"total": 9}])
def test_a_sub_agent_without_counts_ends_without_tokens(usage: Any) -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="Task", kind="think", rawInput=TASK)
    meta = {"claudeCode": {"toolResponse": {"usage": usage}}, "other": 1}
    log.update("tool_call_update", toolCallId="t", status="completed", _meta=meta)
    assert only(log.emitted(), "subagent:completed").token_usage is None


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, None),
        ({"progress": 40}, 40.0),
        ({"percentage": 12.5}, 12.5),
        ({"current": 1, "total": 3}, 33.3),
        ({"progress": 400}, 100.0),
        ({"progress": "40"}, None),
        ({"progress": True}, None),
        ({"progress": -1}, None),
        ({"current": 1, "total": 0}, None),
    ],
)
def test_progress_is_a_percentage_if_it_is_reported(fields: dict[str, Any], meant: Any) -> None:
    log = Log().started()
    log.update("subagent_update", sessionId="c", state="running", **fields)
    log.update("compaction_update", compactionId="c", status="in_progress", **fields)
    emitted = log.emitted()
    assert only(emitted, "subagent:progress").progress == meant
    compacting = only(emitted, "progress:update")
    assert compacting.percentage == meant
    counts = {key: fields.get(key) for key in ("current", "total")}
    assert {"current": compacting.current, "total": compacting.total} == counts
    log.update("subagent_update", sessionId="c", state="idle", usage={"inputTokens": 1})
    ended = only(log.emitted(), "subagent:completed")
    assert ended.token_usage == TokenUsage(input_tokens=1, output_tokens=0)


@pytest.mark.parametrize(
    ("content", "meta", "text"),
    [
        ({"type": "redacted_thinking", "data": "Zm9v"}, None, "Hm. "),
        ({"type": "text", "text": "…"}, {"redacted": True}, "Hm. …"),
        ({"type": "text", "text": "…", "_meta": {"redacted": True}}, None, "Hm. …"),
    ],
)
def test_a_withheld_thought_is_redacted(content: Any, meta: Any, text: str) -> None:
    log = Log().started().prompted().think("Hm. ")
    more = {} if meta is None else {"_meta": meta}
    log.add("agent-thought-chunk", {"content": content}, more)
    thought = only(log.say("Well.").finished().emitted(), "thinking:complete")
    assert (thought.redacted, thought.content) == (True, text)
    plain = Log().started().prompted().think("Hm.").finished().emitted()
    assert only(plain, "thinking:complete").redacted is None


def test_calls_inside_a_message_are_blocks_of_it() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/p/a"}}
    parts = [{"type": "text", "text": "con"}, {"type": "text", "text": "tent"}]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "t1", "content": parts},
        {"type": "tool_result", "toolCallId": "t2", "content": "no", "isError": True},
    ]
    log = Log().started().prompted().say("I read. ", "m")
    for block in (use, *results):
        log.add("agent-message-chunk", {"content": block, "messageId": "m"})
    message = every(log.finished().emitted(), "message:complete")[-1]
    assert message.content == (
        TextContent(text="I read. "),
        ToolUseContent(tool_call_id="t1", name="Read", input={"file_path": "/p/a"}),
        ToolResultContent(tool_call_id="t1", content="content"),
        ToolResultContent(tool_call_id="t2", content="no", is_error=True),
    )


@pytest.mark.parametrize("block", [{"type": "tool_use"}, {"type": "tool_result", "id": []}])
def test_a_call_without_an_id_is_a_custom_event(block: dict[str, Any]) -> None:
    log = Log().started().prompted().add("agent-message-chunk", {"content": block})
    emitted = log.finished().emitted()
    assert [each.data["content"] for each in every(emitted, "custom")] == [block]

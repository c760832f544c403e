"""Packets back to what an ACP agent would have sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from quarterdeck.protocol import Event, normalize_session_update
from quarterdeck.views.packets import SessionUpdates
from quarterdeck.views.packets.acp_updates import PromptFailure, PromptResult, prompt_end
from tests.views.packets.logs import ANY_JSON, LOGS
from tests.views.packets.support import TIME, Json, project, text, update


def updates(*packets: Json, **options: Any) -> list[Json]:
    reader = SessionUpdates(**options)
    return [each for packet in packets for each in reader.feed(packet)]


def there_and_back(sent: Json) -> list[Json]:
    return updates(*project([update(sent)]))


@pytest.mark.parametrize(
    "sent",
    [
        {"sessionUpdate": "agent_message_chunk", "content": text("x")},
        {"sessionUpdate": "agent_message_chunk", "content": text("x"), "messageId": "m"},
        {"sessionUpdate": "agent_thought_chunk", "content": text("x"), "_meta": {"a": 1}},
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "a", "priority": "high", "status": "pending"}],
        },
        {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "Write a.ts",
            "kind": "edit",
            "status": "pending",
            "rawInput": {"filePath": "a.ts"},
            "content": [{"type": "diff", "path": "a.ts", "oldText": None, "newText": "x"}],
            "locations": [{"path": "a.ts"}],
        },
    ],
)
def test_an_update_comes_back_as_it_was(sent: Json) -> None:
    assert there_and_back(sent) == [sent]


def test_a_progress_comes_back_as_an_update_of_the_whole_call() -> None:
    sent = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "completed",
        "title": "List",
        "kind": "execute",
        "rawInput": {"command": "ls"},
        "rawOutput": {"output": "a"},
        "content": [{"type": "content", "content": text("a")}],
    }
    start, state = there_and_back(sent)
    assert start["sessionUpdate"] == "tool_call"
    assert state == sent


def test_stored_packets_in_the_older_spelling_are_read() -> None:
    packet = {
        "type": "tool_call_progress",
        "session_update": "tool_call_update",
        "tool_call_id": "c",
        "raw_input": {"command": "ls"},
        "raw_output": None,
        "status": "cancelled",
        "timestamp": TIME,
        "field_meta": None,
    }
    assert updates(packet) == [
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "c",
            "rawInput": {"command": "ls"},
            "status": "failed",
        }
    ]
    assert updates({"type": "agent_message", "content": text("whole")}) == [
        {"sessionUpdate": "agent_message_chunk", "content": text("whole")}
    ]


TODOS: Json = {
    "type": "tool_call_progress",
    "toolCallId": "c",
    "title": "1 todos",
    "rawInput": {"todos": [{"content": "A", "status": "in_progress", "activeForm": "Doing A"}]},
}


def test_todos_are_a_plan_where_there_are_no_plans() -> None:
    update_of_call, plan = updates(TODOS)
    assert update_of_call["sessionUpdate"] == "tool_call_update"
    assert plan == {
        "sessionUpdate": "plan",
        "entries": [
            {
                "content": "A",
                "status": "in_progress",
                "priority": "medium",
                "_meta": {"activeForm": "Doing A"},
            }
        ],
    }
    plan_packet: Json = {"type": "agent_plan_update", "entries": []}
    assert [each["sessionUpdate"] for each in updates(plan_packet, TODOS)] == [
        "plan",
        "tool_call_update",
    ]


def test_an_artifact_is_a_link_and_comes_back() -> None:
    packet = {
        "type": "artifact_created",
        "artifact": {"id": "1", "type": "file", "name": "n", "path": "outputs/n"},
    }
    (sent,) = updates(packet)
    assert sent["content"] == {"type": "resource_link", "uri": "outputs/n", "name": "n"}
    assert project([update(sent)]) == [packet]


def test_usage_needs_the_size_of_the_context() -> None:
    packet = {"type": "context_usage", "used_tokens": 5, "cost": 0.5}
    assert updates(packet) == []
    assert updates(packet, context_size=9) == [
        {
            "sessionUpdate": "usage_update",
            "used": 5,
            "size": 9,
            "cost": {"amount": 0.5, "currency": "USD"},
        }
    ]


def test_a_turn_ends_with_a_result_or_an_error() -> None:
    assert prompt_end({"type": "prompt_response", "stopReason": "cancelled"}) == PromptResult(
        "cancelled"
    )
    assert prompt_end({"type": "prompt_response", "stopReason": "stop_sequence"}) == PromptResult(
        "end_turn"
    )
    assert prompt_end({"type": "error", "message": "no", "code": "-2"}) == PromptFailure(
        "no", -32603, {"code": "-2"}
    )
    assert prompt_end({"type": "context_usage"}) is None


@pytest.mark.parametrize(
    "kind", ["approval_requested", "subagent_started", "compaction", "user_mess", "hologram"]
)
def test_what_acp_has_no_update_for_gives_none(kind: str) -> None:
    assert updates({"type": kind}) == []


@given(ANY_JSON)
def test_no_packet_makes_it_fail(packet: Any) -> None:
    if isinstance(packet, dict):
        updates(packet, context_size=1)
        prompt_end(packet)


@given(LOGS)
def test_every_update_is_one_that_acp_knows(log: list[Event]) -> None:
    for sent in updates(*project(log), context_size=100):
        assert normalize_session_update(sent).type != "unrecognized-update"

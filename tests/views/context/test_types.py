"""The names and shapes of the Agent Context Protocol, as its reference gives them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck.errors import AcpError, EventInvalid
from quarterdeck.jsontext import encode_json
from quarterdeck.views import context
from quarterdeck.views.context import (
    ACP_MIN_VERSION,
    ACP_VERSION,
    ACPCapabilities,
    ACPError,
    ContextEvent,
    MessageDeltaEvent,
    ToolCallExecutingEvent,
    create_event,
    decode_command,
    decode_context_event,
    encode_context_event,
    events_by_prefix,
    reset_all_sequences,
    reset_sequence,
)
from quarterdeck.views.context.contract import COMMAND_CLASSES
from quarterdeck.views.context.events import EVENT_CLASSES
from tests.views.context.support import Log

EXPORTED = """
ACP_VERSION ACP_MIN_VERSION ACPError ACPEventBase ACPEvent ACPEventByPrefix ACPCapabilities
IntegrationMethod ACPCommand SendMessageCommand ApproveToolCallCommand DenyToolCallCommand
AnswerQuestionCommand CancelCommand PauseCommand ResumeCommand TerminateCommand
SetPermissionPolicyCommand PermissionPolicy ACPAdapter ACPSession AgentDataPaths DiscoveredSession
SessionDiscoveryEvent StartSessionOptions SessionStatus SessionStartedEvent SessionResumedEvent
SessionPausedEvent SessionCompletedEvent SessionErrorEvent SessionStatusChangedEvent SessionSummary
MessageRole MessageContent MessageStartEvent MessageDeltaEvent MessageCompleteEvent
ThinkingStartEvent ThinkingDeltaEvent ThinkingCompleteEvent ToolCategory RiskLevel
ToolStructuredOutput ToolCallStartEvent ToolCallArgsDeltaEvent ToolCallExecutingEvent
ToolCallResultEvent ToolCallErrorEvent ApprovalPreview ApprovalRequestedEvent ApprovalResolvedEvent
FileChangeEvent FileChangeBatchEvent FileChangeSummary SubAgentSpawnedEvent SubAgentProgressEvent
SubAgentCompletedEvent TodoUpdateEvent PlanModeEvent ProgressEvent TokenUsage CostBreakdown
TokenUsageEvent CostUpdateEvent ContextWindowEvent RateLimitEvent EnvironmentContext
EnvironmentInfoEvent UserQuestionEvent NotificationEvent GitOperation GitOperationEvent WebOperation
WebOperationEvent CustomEvent create_event reset_sequence reset_all_sequences categorize_tool
assess_risk describe_tool_call
""".split()  # noqa: SIM905 - a list to be compared with a document
TYPES = {
    "session": "started resumed paused completed error status_changed",
    "message": "start delta complete",
    "thinking": "start delta complete",
    "tool": "start args_delta executing result error",
    "approval": "requested resolved",
    "file": "change batch",
    "subagent": "spawned progress completed",
    "progress": "todo_update plan_mode update",
    "resource": "token_usage cost context_window rate_limit",
    "environment": "info",
    "interaction": "question notification",
    "git": "operation",
    "web": "operation",
}
CAPABILITIES: dict[str, Any] = {
    "protocolVersion": "1.0.0",
    "agent": {
        "name": "claude-code",
        "displayName": "Claude Code",
        "icon": "🟠",
        "version": "1.0.0",
        "integrationMethod": "sdk",
    },
    "features": {
        "streaming": {"messages": True, "toolArgs": False, "thinking": True},
        "approval": {"toolCalls": True, "preview": True},
        "sessionControl": {"pause": False, "resume": True, "cancel": True},
        "subAgents": True,
        "planning": {"todos": True, "planMode": True},
        "resources": {"tokenUsage": True, "costTracking": False, "contextWindow": False},
        "fileOperations": {"diffs": True, "batchedChanges": False},
        "git": True,
        "webSearch": True,
        "multimodal": True,
        "userInteraction": {"questions": True, "notifications": False},
        "thinking": True,
        "customEvents": [],
    },
}
COMMANDS: list[dict[str, Any]] = [
    {"command": "send_message", "message": "Fix the login bug"},
    {"command": "approve_tool_call", "requestId": "req-1", "toolCallId": "tc-1"},
    {
        "command": "deny_tool_call",
        "requestId": "req-1",
        "toolCallId": "tc-1",
        "reason": "Too risky",
    },
    {"command": "cancel"},
    {"command": "pause"},
    {"command": "resume", "prompt": "Continue with the tests"},
    {"command": "terminate"},
    {"command": "answer_question", "questionId": "q-1", "answer": "Use PostgreSQL"},
    {
        "command": "set_permission_policy",
        "policy": {
            "autoApprove": {
                "reads": True,
                "writes": ["src/**/*.ts"],
                "commands": ["npm test"],
                "searches": True,
            }
        },
    },
]
DELTA = {"type": "message:delta", "messageId": "msg-1", "role": "assistant", "delta": "Hello "}


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_of_the_reference_is_here(name: str) -> None:
    assert name in context.__all__
    assert hasattr(context, name)


def test_the_version_is_that_of_the_reference() -> None:
    assert (ACP_VERSION, ACP_MIN_VERSION) == ("1.0.0", "1.0.0")


def test_the_event_types_are_those_of_the_reference() -> None:
    expected = [f"{family}:{name}" for family, names in TYPES.items() for name in names.split()]
    assert [*EVENT_CLASSES] == [*expected, "custom"]


def test_the_capabilities_example_reads_and_writes_as_it_is() -> None:
    capabilities = msgspec.convert(CAPABILITIES, ACPCapabilities)
    assert json.loads(encode_json(capabilities)) == CAPABILITIES


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command["command"]))
def test_every_command_example_reads_and_writes_as_it_is(command: dict[str, Any]) -> None:
    read = decode_command(command)
    assert read.command == command["command"]
    written = json.loads(encode_json(read))
    assert written == command
    assert decode_command(json.dumps(command)) == read


def test_there_are_nine_commands() -> None:
    assert len(COMMAND_CLASSES) == 9
    assert {command["command"] for command in COMMANDS} == set(COMMAND_CLASSES)


@pytest.mark.parametrize("wrong", [{"command": "fly"}, {"command": "send_message"}, {}, "no json"])
def test_what_is_no_command_is_refused_with_a_reason(wrong: Any) -> None:
    with pytest.raises(AcpError, match="not a command"):
        decode_command(wrong)


def test_errors_have_the_shape_of_the_reference() -> None:
    error = ACPError(code="X", message="m", recoverable=True, details={"a": 1}, agent_code="7")
    assert json.loads(encode_json(error)) == {
        "code": "X",
        "message": "m",
        "recoverable": True,
        "details": {"a": 1},
        "agentCode": "7",
    }
    short = ACPError(code="X", message="m", recoverable=False)
    assert json.loads(encode_json(short)) == {"code": "X", "message": "m", "recoverable": False}


SHAPES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("message:complete", {"messageId": "m", "role": "system"}, {"content": [content]})
    for content in (
        {"type": "text", "text": "x"},
        {"type": "image", "url": "u", "mimeType": "image/png"},
        {"type": "tool_use", "toolCallId": "t", "name": "n", "input": {"a": 1}},
        {"type": "tool_result", "toolCallId": "t", "content": "c", "isError": True},
    )
]
SHAPES += [
    ("tool:result", {"toolCallId": "t", "name": "n", "output": "o"}, {"structured": structured})
    for structured in (
        {"type": "file_diff", "path": "p", "diff": "d", "changeType": "created"},
        {"type": "search_results", "results": [{"file": "f", "line": 1, "content": "c"}]},
        {"type": "command_output", "exitCode": 0, "stdout": "o", "stderr": "e"},
        {"type": "web_content", "url": "u", "title": "t", "summary": "s"},
    )
]
ASKED = {"requestId": "r", "toolCallId": "t", "toolName": "n", "toolInput": {}, "description": "d"}
SHAPES += [
    ("approval:requested", {**ASKED, "riskLevel": "low", "expiresAt": "x"}, {"preview": preview})
    for preview in (
        {"type": "diff", "path": "p", "diff": "d"},
        {"type": "command", "command": "c", "workingDir": "w"},
        {"type": "description", "text": "t"},
    )
]
SHAPES += [
    ("git:operation", {}, {"operation": operation})
    for operation in (
        {"kind": "commit", "hash": "h", "message": "m", "filesChanged": 1},
        {"kind": "branch_create", "name": "n", "from": "f"},
        {"kind": "branch_switch", "name": "n"},
        {"kind": "pr_create", "number": 1, "title": "t", "url": "u"},
        {"kind": "push", "remote": "r", "branch": "b"},
        {"kind": "stash", "action": "pop"},
    )
]
FOUND = [{"title": "t", "url": "u", "snippet": "s"}]
SHAPES += [
    ("web:operation", {}, {"operation": operation})
    for operation in (
        {"kind": "search", "query": "q", "results": FOUND},
        {"kind": "fetch", "url": "u", "title": "t", "statusCode": 200},
    )
]
SHAPES += [
    ("thinking:complete", {"messageId": "m", "content": ""}, {"redacted": True}),
    ("subagent:progress", {"subAgentId": "a", "message": "m"}, {"progress": 50.5}),
    ("progress:update", {"label": "l"}, {"current": 1.5, "total": 3.5, "percentage": 42.5}),
    ("interaction:question", {"questionId": "q", "question": "?"}, {"defaultValue": "d"}),
]


@pytest.mark.parametrize(("kind", "fields", "more"), SHAPES, ids=lambda each: str(each)[:40])
def test_every_shape_of_the_reference_reads_and_writes_as_it_is(
    kind: str, fields: dict[str, Any], more: dict[str, Any]
) -> None:
    duration = {"duration": 1.5} if kind == "tool:result" else {}
    base = {"type": kind, "seq": 1, "sessionId": "s", "timestamp": "2025-01-01T00:00:00.000Z"}
    whole = {**base, **fields, **duration, **more}
    assert json.loads(encode_context_event(decode_context_event(whole))) == whole


# ---- prefixes --------------------------------------------------------------------------------


def test_a_prefix_gives_the_classes_of_its_family() -> None:
    tools = events_by_prefix("tool:")
    assert tools.types == (
        "tool:start",
        "tool:args_delta",
        "tool:executing",
        "tool:result",
        "tool:error",
    )
    assert ToolCallExecutingEvent in tools


def test_a_prefix_filters_events_and_narrows_their_type() -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="Read", status="in_progress")
    events = log.emitted()
    names = [event.tool_call_id for event in filter(events_by_prefix("tool:"), events)]
    assert names == ["t", "t"]
    family = events_by_prefix("session:")
    assert all(isinstance(event, family) == event.type.startswith("session:") for event in events)


def test_every_event_is_of_exactly_one_family() -> None:
    families = [events_by_prefix(f"{name}:") for name in TYPES] + [events_by_prefix("custom")]
    for event_class in EVENT_CLASSES.values():
        assert sum(event_class in family for family in families) == 1


def test_a_prefix_that_nothing_has_gives_nothing() -> None:
    assert events_by_prefix("nothing:") == ()


# ---- create_event ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _fresh_numbers() -> None:
    reset_all_sequences()


def test_create_event_numbers_per_session_and_stamps_the_time() -> None:
    first = create_event("session-123", DELTA)
    second = create_event("session-123", {**DELTA, "delta": "world!"})
    other = create_event("session-456", DELTA)
    assert isinstance(first, MessageDeltaEvent)
    assert (first.seq, second.seq, other.seq) == (1, 2, 1)
    assert (first.session_id, first.delta) == ("session-123", "Hello ")
    assert first.timestamp[10] == "T"
    assert first.timestamp.endswith("Z")


def test_a_reset_starts_a_session_at_one_again() -> None:
    create_event("a", DELTA)
    create_event("b", DELTA)
    reset_sequence("a")
    assert (create_event("a", DELTA).seq, create_event("b", DELTA).seq) == (1, 2)
    reset_all_sequences()
    assert (create_event("a", DELTA).seq, create_event("b", DELTA).seq) == (1, 1)
    reset_sequence("never seen")


def test_create_event_takes_pythons_spelling_and_a_time() -> None:
    event = create_event(
        "s", type="session:status_changed", from_="idle", to="running", timestamp="2025-01-01"
    )
    assert json.loads(encode_context_event(event)) == {
        "type": "session:status_changed",
        "seq": 1,
        "sessionId": "s",
        "timestamp": "2025-01-01",
        "from": "idle",
        "to": "running",
    }


def test_fields_cannot_set_the_number_or_session_of_an_event() -> None:
    event = create_event("s", {**DELTA, "seq": 99, "sessionId": "other"})
    assert (event.seq, event.session_id) == (1, "s")


def test_what_is_no_event_takes_no_number() -> None:
    with pytest.raises(EventInvalid):
        create_event("s", {"type": "message:delta"})
    assert create_event("s", DELTA).seq == 1


def test_an_event_comes_back_from_json_as_it_was() -> None:
    events: list[ContextEvent] = Log().started().prompted().say("hi").finished().emitted()
    for event in events:
        written = encode_context_event(event)
        assert decode_context_event(written) == event
        assert decode_context_event(json.loads(written)) == event


def test_half_a_character_survives_writing() -> None:
    event = create_event("s", {**DELTA, "delta": "\ud83d"})
    assert json.loads(encode_context_event(event))["delta"] == "\ud83d"
    assert decode_context_event(encode_context_event(event)) == event


# ---- purity --------------------------------------------------------------------------------------

IMPURE = {"anyio", "asyncio", "os", "pathlib", "random", "socket", "subprocess", "time", "uuid"}


def test_only_create_event_has_a_clock() -> None:
    folder = Path(context.__file__).parent
    found = {
        (path.name, name)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if name in IMPURE
    }
    assert found == {("codec.py", "time")}


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return [alias.name.partition(".")[0] for alias in node.names]

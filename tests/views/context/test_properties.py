"""Whatever agents send: no exception, only valid events, the same ones however the log is cut."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    Event,
    make_session_event,
    normalize_session_update,
)
from quarterdeck.views.context import (
    ContextEvent,
    ContextProjector,
    decode_context_event,
    encode_context_event,
)
from tests.views.context.example_log import everything
from tests.views.context.support import OPTIONS, SESSION

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXTS = st.sampled_from(
    ["", "Edit", "bash", "Task", "AskUserQuestion", "TodoWrite", "ExitPlanMode", "WebFetch", "a b"]
)
IDS = st.sampled_from(["t1", "t2", "run_shell_command__0123456789"])
BLOCKS = (
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=5))
    | st.sampled_from(
        [
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk="},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "hi"}},
        ]
    )
    | JSON
)
CONTENT = st.lists(
    st.builds(lambda block: {"type": "content", "content": block}, BLOCKS)
    | st.builds(
        lambda old, new: {"type": "diff", "path": "/p/a.py", "oldText": old, "newText": new},
        st.none() | st.text("ab\n", max_size=6),
        st.text("ab\n", max_size=6),
    )
    | st.just({"type": "terminal", "terminalId": "term"})
    | JSON,
    max_size=3,
)
INPUTS = (
    st.sampled_from(
        [
            {},
            {"command": "git commit -m x; rm -rf /"},
            {"command": ["bash", "-lc", "ls"]},
            {"file_path": "/p/a.py", "old_string": "a", "new_string": "b"},
            {"questions": [{"question": "?", "options": [{"label": "a"}, 1]}]},
            {"todos": [{"content": "x", "status": "strange"}]},
            {"description": "d", "subagent_type": "x"},
            {"url": "http://x", "plan": "p"},
        ]
    )
    | JSON
)
CALLS = st.fixed_dictionaries(
    {"toolCallId": IDS | JSON},
    optional={
        "title": TEXTS | JSON,
        "kind": st.sampled_from(["read", "edit", "execute", "search", "fetch", "delete"]) | JSON,
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed"]) | JSON,
        "content": CONTENT | JSON,
        "locations": st.just([{"path": "/p/a.py"}]) | JSON,
        "rawInput": INPUTS,
        "rawOutput": st.just({"exit_code": 0, "stdout": "[main 1234567] x"}) | JSON,
        "name": TEXTS | JSON,
        "_meta": st.just({"x": {"toolName": "Edit"}}) | JSON,
    },
)
VARIANTS = st.sampled_from(
    [
        "plan",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
        "compaction_update",
        "plan_update",
        "compaction_summary_chunk",
        "plan_removed",
        "subagent_update",
        "subagent_spawned",
        "new",
    ]
)
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "entries",
            "availableCommands",
            "currentModeId",
            "configOptions",
            "title",
            "used",
            "size",
            "cost",
            "severity",
            "status",
            "summary",
            "plan",
            "planId",
            "sessionId",
            "state",
        ]
    ),
    JSON,
    max_size=4,
)


def _update(variant: str, fields: dict[str, Any]) -> tuple[str, Any, Any]:
    update = normalize_session_update({"sessionUpdate": variant, **fields})
    return update.type, update.payload, update.extensions


def _plain(kind: str) -> Any:
    return lambda payload: (kind, payload, None)


CHUNKS = st.builds(
    _update,
    st.sampled_from(["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]),
    st.fixed_dictionaries(
        {"content": BLOCKS}, optional={"messageId": st.sampled_from("mn") | JSON}
    ),
)
STATUS = st.sampled_from(
    ["creating", "active", "prompting", "disconnected", "resuming", "closed", "deleted"]
)
REQUESTS = st.sampled_from(["p1", "p2"]) | JSON
HOST = (
    st.builds(
        lambda status, resumed: (
            "session-status-change",
            {"status": status, "resumed": resumed},
            None,
        ),
        STATUS,
        st.booleans(),
    )
    | st.just(("session-reset", {"reason": "load"}, None))
    | st.builds(
        _plain("prompt-finished"),
        st.fixed_dictionaries(
            {},
            optional={
                "stopReason": st.sampled_from(["end_turn", "cancelled"]) | JSON,
                "usage": JSON,
                "error": st.just({"code": -32000, "message": "sign in"}) | JSON,
            },
        ),
    )
    | st.builds(
        _plain("permission-request-created"),
        st.fixed_dictionaries(
            {"requestId": REQUESTS, "toolCall": CALLS | JSON, "options": st.just(OPTIONS) | JSON}
        ),
    )
    | st.builds(
        _plain("permission-request-resolved"),
        st.fixed_dictionaries(
            {
                "requestId": REQUESTS,
                "status": st.sampled_from(["answered", "superseded"]),
                "outcome": st.just({"outcome": "selected", "optionId": "yes"}) | JSON,
            }
        ),
    )
    | st.builds(
        _plain("terminal-output"),
        st.fixed_dictionaries(
            {"terminalId": st.just("term") | JSON},
            optional={"delta": st.text(max_size=5) | JSON, "exit": st.just({"exitCode": 1}) | JSON},
        ),
    )
    | st.builds(
        _plain("session-config-init"),
        st.dictionaries(st.sampled_from(["modes", "configOptions"]), JSON),
    )
)
FIELD = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "boolean", "integer", "number", "array"]) | JSON,
        "title": TEXTS | JSON,
        "enum": st.lists(JSON, max_size=2) | JSON,
        "enumNames": st.lists(JSON, max_size=2) | JSON,
        "oneOf": st.lists(st.fixed_dictionaries({"const": JSON}) | JSON, max_size=2) | JSON,
        "items": st.fixed_dictionaries({"enum": JSON}) | JSON,
        "default": JSON,
    },
)
FORM = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["form", "url"]) | JSON,
        "message": TEXTS | JSON,
        "url": TEXTS | JSON,
        "requestedSchema": st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(TEXTS, FIELD | JSON, max_size=3) | JSON,
                "required": st.lists(TEXTS | JSON, max_size=2) | JSON,
            },
        )
        | JSON,
    },
)
MARK = {"quarterdeck": {"added": "the agent asked a person"}}
ASKED = st.fixed_dictionaries(
    {"sessionUpdate": st.just(ELICITATION_UPDATED), "requestId": st.sampled_from(["e1", "e2"])},
    optional={
        "status": st.sampled_from(["pending", "answered", "superseded"]) | JSON,
        "request": FORM | JSON,
        "action": st.just("accept") | JSON,
        "completed": st.booleans() | JSON,
    },
).map(lambda payload: ("unrecognized-update", payload, MARK))
BESIDE: st.SearchStrategy[tuple[str, Any, Any]] = st.builds(
    lambda kind, meta, info: (kind, {}, {"_meta": meta, "agentInfo": info}),
    st.sampled_from(["prompt-finished", "session-config-init"]),
    st.fixed_dictionaries({"quota": st.fixed_dictionaries({"token_count": JSON}) | JSON}) | JSON,
    st.fixed_dictionaries({}, optional={"name": JSON, "title": JSON, "version": JSON}) | JSON,
)
UPDATES = (
    CHUNKS
    | ASKED
    | BESIDE
    | st.builds(_update, st.sampled_from(["tool_call", "tool_call_update"]), CALLS)
    | st.builds(_update, VARIANTS, FIELDS)
    | HOST
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    updates = draw(st.lists(UPDATES, max_size=25))
    return [
        make_session_event(kind, "s", seq=seq, ts=seq * 7, payload=payload, extensions=more)
        for seq, (kind, payload, more) in enumerate(updates, 1)
    ]


def emitted(projector: ContextProjector, log: list[Event]) -> list[ContextEvent]:
    return [each for event in log for each in projector.feed(event)]


@pytest.mark.slow
@given(logs(), st.integers(0, 25))
def test_any_log_gives_valid_events_and_in_two_pieces_the_same_as_whole(
    log: list[Event], cut: int
) -> None:
    whole = emitted(ContextProjector(SESSION), log)
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    for event in whole:
        assert decode_context_event(encode_context_event(event)) == event
    first = ContextProjector(SESSION)
    before = emitted(first, log[:cut])
    assert before + emitted(copy.deepcopy(first), log[cut:]) == whole


def test_after_a_restart_the_numbers_are_the_same() -> None:
    log = everything().events
    whole = emitted(ContextProjector(SESSION), log)
    for cut in range(0, len(log), 9):
        seen = emitted(ContextProjector(SESSION), log[:cut])
        assert whole[: len(seen)] == seen


def test_feeding_changes_no_event_of_the_log() -> None:
    log = everything().events
    before = copy.deepcopy(log)
    emitted(ContextProjector(SESSION), log)
    assert log == before

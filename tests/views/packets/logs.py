"""Logs and packets of any kind, for property tests: right, odd and wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from quarterdeck.protocol import Event
from tests.views.packets.support import event, text, update

KEYS = st.sampled_from(
    [
        "type",
        "sessionUpdate",
        "session_update",
        "title",
        "kind",
        "status",
        "content",
        "rawInput",
        "raw_input",
        "rawOutput",
        "_meta",
        "todos",
        "subagent_type",
        "path",
        "text",
        "oldText",
        "newText",
        "output",
        "metadata",
        "entries",
        "artifact",
        "command",
        "description",
        "code",
    ]
)
PACKET_WORDS = st.sampled_from(
    [
        "tool_call_start",
        "tool_call_progress",
        "agent_message_chunk",
        "plan",
        "diff",
        "text",
        "edit",
        "read",
        "task",
        "todowrite",
        "error",
        "context_usage",
        "connect_app_request",
        "a/b",
    ]
)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | PACKET_WORDS
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)

WORDS = st.sampled_from(["", "a", "task", "Edit `a.py`", "c1", "c2", "t", "in_progress", "x\ud800"])
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "path", "content", "oldText", "terminalId", "_meta"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
BLOCK = st.one_of(
    WORDS.map(text),
    st.just({"type": "image", "data": "QUJD", "mimeType": "image/png"}),
    st.just({"type": "resource_link", "uri": "a", "name": "b"}),
    ANY,
)
ITEM = st.one_of(
    BLOCK.map(lambda block: {"type": "content", "content": block}),
    st.just({"type": "diff", "path": "a", "oldText": None, "newText": "b"}),
    st.just({"type": "terminal", "terminalId": "t"}),
    ANY,
)
ENTRY = st.fixed_dictionaries({"content": WORDS, "status": WORDS, "priority": WORDS}) | ANY
META = st.none() | st.dictionaries(st.sampled_from(["toolName", "artifact", "x"]), ANY, max_size=2)
CALLS = st.fixed_dictionaries(
    {"toolCallId": st.sampled_from(["c1", "c2"])},
    optional={
        "title": WORDS,
        "kind": st.sampled_from(["edit", "execute", "fetch", "odd"]) | ANY,
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed", "odd"]) | ANY,
        "content": st.lists(ITEM, max_size=3) | ANY,
        "locations": st.lists(st.fixed_dictionaries({"path": WORDS}) | ANY, max_size=2) | ANY,
        "rawInput": ANY,
        "rawOutput": ANY,
        "_meta": META,
    },
)


def updates(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    shape = st.fixed_dictionaries({"sessionUpdate": st.just(name)}, optional=fields)
    return shape.map(update)


def own(name: str, payload: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return payload.map(lambda fields: event(name, fields))


def tool_updates(name: str) -> st.SearchStrategy[Event]:
    return CALLS.map(lambda fields: update({"sessionUpdate": name, **fields}))


def marked(fields: Any) -> Event:
    """Return an update that the host adds to what an agent sent."""
    payload = {key: value for key, value in fields.items() if key != "_meta"}
    return event("tool-call-update", payload, extensions={"quarterdeck": {"added": "before"}})


def of_a_subagent(fields: Any) -> Event:
    return update({"sessionUpdate": "tool_call", **fields}, session_id="child")


EVENTS = st.one_of(
    CALLS.map(marked),
    CALLS.map(of_a_subagent),
    BLOCK.map(lambda block: event("agent-message-chunk", {"content": block}, session_id="child")),
    st.just(event("prompt-finished", {"stopReason": "end_turn"}, session_id="child")),
    *(
        updates(name, content=BLOCK, messageId=WORDS, _meta=META)
        for name in ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
    ),
    tool_updates("tool_call"),
    tool_updates("tool_call_update"),
    updates("plan", entries=st.lists(ENTRY, max_size=3) | ANY, _meta=META),
    updates("current_mode_update", currentModeId=ANY, modeId=ANY),
    updates("usage_update", used=ANY | st.integers(), size=ANY, cost=ANY),
    updates("available_commands_update", availableCommands=ANY),
    updates("config_option_update", configOptions=ANY),
    updates("session_info_update", title=ANY, updatedAt=ANY),
    updates("plan_update", plan=st.fixed_dictionaries({"entries": st.lists(ENTRY)}) | ANY),
    updates("plan_removed"),
    updates("compaction_update", compactionId=ANY, status=ANY, summary=ANY),
    updates("compaction_summary_chunk", compactionId=ANY, content=BLOCK),
    updates("subagent_spawned", sessionId=ANY),
    updates("hologram", anything=ANY),
    own("terminal-output", st.fixed_dictionaries({"terminalId": WORDS, "delta": WORDS | ANY})),
    own(
        "session-status-change",
        st.sampled_from(["active", "prompting", "disconnected", "closed", "odd"]).map(
            lambda name: {"status": name}
        ),
    ),
    own("session-reset", st.just({"reason": "load"})),
    own(
        "permission-request-created",
        st.fixed_dictionaries({"requestId": WORDS | ANY, "toolCall": CALLS | ANY, "options": ANY}),
    ),
    own(
        "prompt-finished",
        st.fixed_dictionaries(
            {"stopReason": st.sampled_from(["end_turn", "cancelled", "odd"]) | ANY},
            optional={"error": st.fixed_dictionaries({"code": ANY, "message": ANY}) | ANY},
        ),
    ),
)
LOGS = st.lists(EVENTS, max_size=12)
STYLES = st.sampled_from(["plain", "tagged"])

"""Whatever an agent sends, the demo has words for it."""

import io
from contextlib import redirect_stdout
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from quarterdeck.cli.terminal.demo_printer import DemoTextPrinter
from quarterdeck.cli.terminal.event_text import UNICODE_MARKS, cost_words, final_lines
from quarterdeck.protocol import (
    Normalized,
    initial_state,
    make_session_event,
    normalize_session_update,
    reduce,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
block_keys = ("type", "text", "content", "newText", "oldText", "path", "terminalId")
words = st.sampled_from(("text", "content", "diff", "terminal", "image", "completed"))
blocks = st.dictionaries(
    st.sampled_from((*block_keys, "status", "amount", "currency", "name", "id")),
    words | json_values,
    max_size=4,
)
keys = st.sampled_from(
    [
        "content",
        "messageId",
        "toolCallId",
        "title",
        "kind",
        "status",
        "locations",
        "rawInput",
        "entries",
        "availableCommands",
        "currentModeId",
        "configOptions",
        "used",
        "size",
        "cost",
    ]
)
values = json_values | blocks | st.lists(blocks | json_values, max_size=3) | words
names = st.sampled_from(
    [
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "available_commands_update",
        "current_mode_update",
        "usage_update",
        "config_option_update",
        "session_info_update",
        "hologram_update",
    ]
)
updates = st.builds(
    lambda name, fields: {"sessionUpdate": name, **fields},
    names,
    st.dictionaries(keys, values, max_size=5),
)


def shown(*happened: Normalized) -> str:
    """Return what a person sees of a session in which this happened."""
    state, screen = initial_state("sess-1"), io.StringIO()
    with redirect_stdout(screen):
        view = DemoTextPrinter(coloured=True, cwd="/work")
        for seq, fact in enumerate(happened, 1):
            event = make_session_event(fact.type, "sess-1", seq=seq, ts=0, payload=fact.payload)
            state = reduce(state, event)
            view.event(event, state)
        view.state(state, len(happened))
    return screen.getvalue()


@pytest.mark.slow
@example([{"sessionUpdate": "plan", "entries": 5}])
@example([{"sessionUpdate": "plan", "entries": ["a"]}])
@example([{"sessionUpdate": "agent_message_chunk"}])
@example([{"sessionUpdate": "agent_message_chunk", "content": [1]}])
@example([{"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": 5}])
@example([{"sessionUpdate": "tool_call", "toolCallId": "x", "kind": ["a"], "status": {}}])
@given(st.lists(updates | st.dictionaries(st.text(max_size=5), json_values), max_size=5))
def test_any_update_of_an_agent_can_be_shown(sent: list[Any]) -> None:
    text = shown(*map(normalize_session_update, sent))
    assert f"sess-1 after {len(sent)} events" in text


@given(json_values, json_values, json_values)
def test_any_result_and_request_of_an_agent_can_be_shown(
    modes: Any, usage: Any, options: Any
) -> None:
    text = shown(
        Normalized("session-config-init", {"modes": modes, "configOptions": options}),
        Normalized(
            "permission-request-created",
            {"requestId": "perm-1", "toolCall": usage, "options": options},
        ),
        Normalized("prompt-finished", {"stopReason": "end_turn", "usage": usage}),
    )
    assert "stopped      end_turn" in text


@pytest.mark.parametrize(
    ("update", "row"),
    [
        ({"sessionUpdate": "agent_message_chunk"}, ("messages", ["agent    [unreadable]"])),
        (
            {"sessionUpdate": "tool_call", "toolCallId": "x", "title": "T", "kind": ["a"]},
            ("tool calls", ["· ['a']    T (None)"]),
        ),
        (
            {"sessionUpdate": "usage_update", "used": 1, "size": 2000, "cost": 5},
            ("usage", ["1 of 2,000 tokens"]),
        ),
    ],
)
def test_unreadable_content_is_marked_or_left_out(update: Any, row: tuple[str, list[str]]) -> None:
    fact = normalize_session_update(update)
    event = make_session_event(fact.type, "sess-1", seq=1, ts=0, payload=fact.payload)
    state = reduce(initial_state("sess-1"), event)
    assert row in final_lines(state, UNICODE_MARKS)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0.05498999999999999, "0.05499 USD"),
        (0.1 + 0.2, "0.3 USD"),
        (0.07, "0.07 USD"),
        (2, "2 USD"),
        (12.0, "12 USD"),
        ("free", "free USD"),
        (None, "None USD"),
        (float("inf"), "inf USD"),
    ],
)
def test_an_amount_of_money_is_not_shown_as_a_sum_of_floats(amount: Any, words: str) -> None:
    assert cost_words({"amount": amount, "currency": "USD"}) == words

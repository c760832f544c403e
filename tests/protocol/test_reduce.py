from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import astuple

from quarterdeck.protocol import (
    HOST_EVENT_TYPES,
    SESSION_EVENT_TYPES,
    Event,
    decode_event,
    encode_event,
    initial_state,
    make_session_event,
    normalize_session_update,
    reduce,
    to_json,
)
from tests.protocol.support import (
    MODELLED_UPDATES,
    any_json,
    chunk,
    event,
    expand,
    fold,
    objects,
    vectors,
    words,
)

REDUCE = vectors("reduce")

# Every key that `reduce` looks at.
KEYS = re.findall(
    r"\w+",
    """content messageId toolCallId title kind status locations rawInput rawOutput entries
    availableCommands currentModeId modes configOptions updatedAt used size cost stopReason usage
    error resumed reason requestId toolCall options outcome terminalId delta truncated exit""",
)

payloads = objects | st.dictionaries(st.sampled_from(KEYS), any_json, max_size=5)
events = st.builds(
    lambda name, payload, extensions: event(name, extensions=extensions, **payload),
    st.sampled_from(sorted(SESSION_EVENT_TYPES | HOST_EVENT_TYPES)),
    payloads.map(lambda payload: {k: v for k, v in payload.items() if k not in {"seq", "name"}}),
    st.none() | objects,
)


@given(st.lists(events, max_size=6))
@settings(max_examples=50)
def test_no_payload_makes_reduce_or_to_json_fail(events: list[Event]) -> None:
    state = fold(events)
    assert json.loads(json.dumps(to_json(state))) == to_json(state)


@given(st.lists(events, max_size=6))
@settings(max_examples=50)
def test_events_read_back_from_their_json_give_the_same_state(events: list[Event]) -> None:
    assert fold(decode_event(encode_event(one)) for one in events) == fold(events)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted({*MODELLED_UPDATES, "plan_update"})), payloads), max_size=8
    )
)
@settings(max_examples=50)
def test_any_update_can_be_normalized_and_reduced(
    updates: list[tuple[str, dict[str, Any]]],
) -> None:
    state = initial_state("s")
    for seq, (name, fields) in enumerate(updates, 1):
        update = normalize_session_update({**fields, "sessionUpdate": name})
        state = reduce(
            state,
            make_session_event(
                update.type,
                "s",
                seq=seq,
                ts=seq,
                payload=update.payload,
                extensions=update.extensions,
            ),
        )
    assert to_json(state)["sessionId"] == "s"


@pytest.mark.parametrize("name", REDUCE)
def test_folding_on_changes_no_older_state(name: str) -> None:
    events = [decode_event(raw) for raw in REDUCE[name]["events"]]
    state = initial_state("s")
    history = [(state, to_json(state))]
    for one in events:
        state = reduce(state, one)
        history.append((state, to_json(state)))
    assert all(to_json(old) == then for old, then in history)


@pytest.mark.parametrize("name", [name for name in REDUCE if not name.startswith("term-")])
def test_two_futures_of_one_state_do_not_know_each_other(name: str) -> None:
    events = [decode_event(raw) for raw in REDUCE[name]["events"]]
    others = [chunk("x"), chunk("y", messageId="m"), event("tool-call", toolCallId="z", title="t")]
    state = initial_state("s")
    for position, one in enumerate(events):
        branch = fold([*others, one], state)
        alone = fold([*events[:position], *others, one])
        assert branch == alone
        state = reduce(state, one)
    assert to_json(state) == to_json(fold(events))


def long_message(seq: int) -> Event:
    return chunk(f"{seq}", seq, messageId="m")


def many_messages(seq: int) -> Event:
    return chunk(f"{seq}", seq, messageId=f"m{seq}")


def many_tool_calls(seq: int) -> Event:
    name = "tool-call" if seq % 2 else "tool-call-update"
    return event(name, seq, toolCallId=f"c{(seq + 1) // 2}", title=f"t{seq}")


def long_terminal(seq: int) -> Event:
    return event("terminal-output", seq, terminalId="t", delta=f"{seq:>99}\n")


@pytest.mark.parametrize("make", [long_message, many_messages, many_tool_calls, long_terminal])
def test_the_state_at_event_500_is_unchanged_after_100_000_events(
    make: Callable[[int], Event],
) -> None:
    early = fold(make(seq) for seq in range(1, 501))
    then = to_json(early)
    late = fold((make(seq) for seq in range(501, 100_001)), early)
    assert late != early
    assert to_json(early) == then
    assert early == fold(make(seq) for seq in range(1, 501))


def test_a_chunk_of_a_long_message_copies_nothing_of_it() -> None:
    state = fold(long_message(seq) for seq in range(1, 1001))
    following = reduce(state, long_message(1001))
    _, blocks, _ = astuple(state.messages[0].content)
    _, blocks_of_following, _ = astuple(following.messages[0].content)
    assert blocks_of_following is blocks
    assert (len(state.messages[0].content), len(following.messages[0].content)) == (1000, 1001)


def test_the_quick_start_of_acpjs_gives_the_documented_state() -> None:
    events = [
        {
            "sessionId": "sess-1",
            "seq": seq,
            "ts": 0,
            "type": "agent-message-chunk",
            "payload": {"content": {"type": "text", "text": text}, "messageId": "m1"},
        }
        for seq, text in ((1, "Hel"), (2, "lo"))
    ]
    state = initial_state("sess-1")
    for one in events:
        state = reduce(state, decode_event(one))
    assert to_json(state)["messages"] == [
        {
            "kind": "agent",
            "messageId": "m1",
            "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
            "seq": 1,
        }
    ]


def test_an_event_shares_what_it_does_not_change() -> None:
    state = fold([chunk("a"), event("tool-call", toolCallId="c", title="t")])
    following = reduce(state, event("usage-update", used=1, size=2))
    assert following.messages is state.messages
    assert following.tool_calls is state.tool_calls
    assert following.terminals is state.terminals


def test_messages_of_one_id_and_different_kinds_are_kept_apart() -> None:
    ids: list[Any] = ["user 5", "5", 5, ["5"], "", True]
    kinds = ["agent", "thought", "user"]
    chunks = [chunk("x", kind=kind, messageId=one) for one in ids for kind in kinds]
    assert words(fold([*chunks, *chunks])) == ["x|x"] * len(chunks)


def test_an_empty_message_id_is_an_id() -> None:
    state = fold([chunk("a", messageId=""), chunk("t", kind="thought"), chunk("b", messageId="")])
    assert words(state) == ["a|b", "t"]


def test_a_null_message_id_is_none() -> None:
    assert words(fold([chunk("a", messageId=None), chunk("b")])) == ["a|b"]


def test_a_chunk_without_content_leaves_a_null_block() -> None:
    state = fold([event("agent-message-chunk"), chunk("a")])
    assert list(state.messages[0].content) == [None, {"type": "text", "text": "a"}]


def test_a_single_thing_where_a_list_belongs_is_its_only_element() -> None:
    state = fold([event("tool-call", toolCallId="c", title="t", content={"type": "diff"})])
    assert state.tool_calls["c"].content == ({"type": "diff"},)


def test_a_second_tool_call_with_an_id_replaces_the_first_at_its_position() -> None:
    calls = [
        event("tool-call", 1, toolCallId="a", title="1", rawInput=1, extensions={"x": 1}),
        event("tool-call", 2, toolCallId="b", title="2"),
        event("tool-call", 3, toolCallId="a", title="3"),
    ]
    state = to_json(fold(calls))["toolCalls"]
    assert list(state) == ["a", "b"]
    assert "rawInput" not in state["a"]
    assert "extensions" not in state["a"]
    assert state["a"]["seq"] == 3


def test_raw_input_and_output_take_null_as_a_value() -> None:
    call = event("tool-call", toolCallId="c", title="t", rawInput=1, rawOutput=2)
    state = fold([call, event("tool-call-update", toolCallId="c", rawInput=None)])
    assert to_json(state)["toolCalls"]["c"]["rawInput"] is None
    assert state.tool_calls["c"].raw_output == 2


def test_a_prompt_error_is_kept_until_the_next_prompt_ends() -> None:
    error = {"code": -32000, "message": "no", "data": {"x": 1}}
    state = fold([event("prompt-finished", stopReason="end_turn", error=error)])
    assert state.last_prompt_error == error
    assert reduce(state, event("prompt-finished", stopReason="end_turn")).last_prompt_error is None


def test_a_reset_gives_the_initial_state_of_the_events_session() -> None:
    reset = make_session_event("session-reset", "other", seq=9, ts=9, payload={"reason": "load"})
    assert reduce(fold([chunk("a")]), reset) == initial_state("other")


def test_every_pending_request_with_the_id_is_resolved() -> None:
    created = [
        event(
            "permission-request-created", requestId=one, toolCall={"toolCallId": call}, options=[]
        )
        for one, call in (("p", "1"), ("q", "2"), ("p", "3"))
    ]
    state = fold([*created, event("permission-request-resolved", requestId="p", status="answered")])
    assert [one.request_id for one in state.pending_permission_requests] == ["q"]
    assert [one.tool_call for one in state.resolved_permission_requests] == [{"toolCallId": "1"}]


def test_a_terminal_remembers_its_exit_and_that_it_was_truncated() -> None:
    outputs: list[dict[str, Any]] = [{"exit": {"exitCode": 1}, "truncated": True}, {"delta": "a"}]
    state = fold(event("terminal-output", terminalId="t", **output) for output in outputs)
    assert to_json(state)["terminals"]["t"] == {
        "output": "a",
        "truncated": True,
        "exit": {"exitCode": 1},
    }


def test_to_json_shares_nothing_with_the_state() -> None:
    state = fold([chunk("a"), event("tool-call", toolCallId="c", title="t", content=[{"x": [1]}])])
    before = json.dumps(to_json(state))
    changed = to_json(state)
    changed["messages"][0]["content"][0]["text"] = "b"
    changed["toolCalls"]["c"]["content"][0]["x"].append(2)
    assert json.dumps(to_json(state)) == before


def test_a_state_cannot_be_changed_and_has_no_hash() -> None:
    state = initial_state("s")
    with pytest.raises(AttributeError):
        state.plan = None  # type: ignore[misc]  # what the test is about
    with pytest.raises(TypeError):
        hash(state)


def test_a_state_is_readable() -> None:
    text = repr(fold([chunk("hello", messageId="m")]))
    assert text.startswith("SessionState(session_id='s', messages=KeyedSequence([SessionMessage(")
    assert "{'type': 'text', 'text': 'hello'}" in text


def test_recipes_are_written_out() -> None:
    assert expand({"a": [{"$str": [["x", 2], ["y", 1]]}]}) == {"a": ["xxy"]}


def test_states_differ_where_their_events_do() -> None:
    base = fold([chunk("a")])
    for other in (chunk("b"), event("plan", entries=[]), event("terminal-output", terminalId="t")):
        assert reduce(base, other) != base


@pytest.mark.parametrize("depth", [100, 600])
def test_deep_payloads_are_folded_and_shown(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    state = initial_state("s")
    for seq, (kind, payload) in enumerate(
        [
            ("tool-call", f'{{"toolCallId":"t","title":"T","rawInput":{nested}}}'),
            ("plan", f'{{"entries":{nested}}}'),
            ("agent-message-chunk", f'{{"messageId":{nested},"content":{nested}}}'),
            ("agent-message-chunk", f'{{"messageId":{nested},"content":1}}'),
        ],
        start=1,
    ):
        text = f'{{"sessionId":"s","seq":{seq},"ts":0,"type":"{kind}","payload":{payload}}}'
        state = reduce(state, decode_event(text))
    assert len(state.messages) == 1
    assert len(to_json(state)["plan"]["entries"]) == 1

"""Updates of ACP 2 become events and updates again, and a client sees the same session."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.protocol import (
    Event,
    SessionState,
    acp2_messages,
    decode_event,
    encode_event,
    initial_state,
    make_session_event,
    reduce,
    to_json,
)
from quarterdeck.protocol.acp2_updates import UpdateFold
from quarterdeck.views.acp_v2 import AcpV2Updates
from tests.protocol.acp2_client import Client

IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", "x", "tick 1\n", "ä", "\0", "日本"])
JSON = st.sampled_from([None, 0, False, "", "t", [], {}, {"k": 1}, [1, None]])
META = st.none() | st.dictionaries(st.sampled_from(["k", "old"]), JSON, max_size=2)
BLOCKS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.just({"type": "text", "text": "x", "annotations": {"priority": 1}}),
    st.just({"type": "image", "data": "AA==", "mimeType": "image/png"}),
    st.just({"type": "_later", "more": None}),
)
CONTENT = st.one_of(
    BLOCKS.map(lambda block: {"type": "content", "content": block}),
    IDS.map(lambda key: {"type": "terminal", "terminalId": key}),
    st.just({"type": "diff", "changes": [{"operation": "add", "path": "/f"}], "patch": None}),
)
PIECES = st.sampled_from(
    [b"", b"x", b"tick 1\n", "ä".encode()[:1], "ä".encode()[1:], b"\xff", b"\0"]
)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def update(
    kind_of_update: str,
    required: dict[str, st.SearchStrategy[Any]],
    /,
    **fields: st.SearchStrategy[Any],
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"sessionUpdate": st.just(kind_of_update), **required}, optional={**fields, "_meta": META}
    )


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


GROUP = {"groupId": "g", "name": "G", "options": [{"value": "m", "name": "M"}]}
SELECT = {"configId": "model", "name": "Model", "type": "select", "currentValue": "m"}
SWITCH = {"configId": "fast", "name": "Fast", "type": "boolean", "currentValue": False}
OPTIONS = st.lists(
    st.sampled_from(
        [
            {**SELECT, "options": []},
            {**SELECT, "options": [GROUP]},
            SWITCH,
            {**SWITCH, "configId": "both", "id": "an agent's own"},
        ]
    ),
    max_size=3,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "content": TEXTS,
            "priority": st.just("high"),
            "status": st.sampled_from(["pending", "cancelled"]),
        }
    ),
    max_size=2,
)
PLANS = st.one_of(
    st.fixed_dictionaries({"type": st.just("items"), "planId": IDS, "entries": ENTRIES}),
    st.fixed_dictionaries(
        {"type": st.just("items"), "planId": IDS, "entries": ENTRIES, "_meta": META}
    ),
    st.fixed_dictionaries({"type": st.just("markdown"), "planId": IDS, "content": TEXTS}),
    st.fixed_dictionaries({"type": st.just("file"), "planId": IDS, "uri": st.just("file:///p")}),
    st.fixed_dictionaries({"type": st.just("_later"), "planId": IDS, "x": JSON}),
)
UPDATES = st.one_of(
    *(
        update(f"{name}_chunk", {"messageId": IDS, "content": BLOCKS})
        for name in ("user_message", "agent_message", "agent_thought")
    ),
    *(
        update(name, {"messageId": IDS}, content=nullable(st.lists(BLOCKS, max_size=3)))
        for name in ("user_message", "agent_message", "agent_thought")
    ),
    update(
        "tool_call_update",
        {"toolCallId": IDS},
        name=nullable(st.sampled_from(["Bash", "Edit"])),
        title=nullable(TEXTS),
        kind=nullable(st.sampled_from(["edit", "execute", "_later"])),
        status=nullable(st.sampled_from(["pending", "paused", "cancelled", "completed", "_x"])),
        content=nullable(st.lists(CONTENT, max_size=3)),
        locations=nullable(st.lists(st.just({"path": "/f", "line": 3}), max_size=2)),
        rawInput=JSON,
        rawOutput=JSON,
        capabilities=nullable(st.sampled_from([{}, {"cancel": {}}])),
    ),
    update("tool_call_content_chunk", {"toolCallId": IDS, "content": CONTENT}),
    update("terminal_output_chunk", {"terminalId": IDS, "data": PIECES.map(base64_text)}),
    update(
        "terminal_update",
        {"terminalId": IDS},
        command=nullable(TEXTS),
        cwd=nullable(st.just("/p")),
        output=nullable(
            st.lists(PIECES, max_size=3).map(lambda some: {"data": base64_text(b"".join(some))})
        ),
        exitStatus=nullable(st.sampled_from([{}, {"exitCode": 3}, {"signal": "SIGTERM"}])),
        size=nullable(st.just({"cols": 80, "rows": 24})),
        capabilities=nullable(st.sampled_from([{}, {"cancel": {}}])),
    ),
    update(
        "state_update",
        {"state": st.sampled_from(["running", "requires_action", "unknown", "_later"])},
        background=nullable(st.lists(IDS.map(lambda key: {"type": "terminal", "terminalId": key}))),
    ),
    update(
        "state_update",
        {"state": st.just("idle")},
        background=nullable(st.lists(IDS.map(lambda key: {"type": "terminal", "terminalId": key}))),
        stopReason=nullable(st.sampled_from(["end_turn", "cancelled", "error", "_later"])),
        usage=nullable(st.just({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2})),
        error=nullable(st.just({"code": -32603, "message": "m"})),
    ),
    update("plan_update", {"plan": PLANS}),
    update("plan_removed", {"planId": IDS}),
    update("config_option_update", {"configOptions": OPTIONS}),
    update(
        "available_commands_update",
        {
            "availableCommands": st.lists(
                st.just(
                    {
                        "type": "command",
                        "name": "compact",
                        "description": "",
                        "input": {"type": "text", "hint": "h"},
                    }
                ),
                max_size=2,
            )
        },
    ),
    update("session_info_update", {}, title=nullable(TEXTS), updatedAt=nullable(TEXTS)),
    update(
        "usage_update",
        {"used": st.just(1), "size": st.just(2)},
        cost=nullable(st.just({"amount": 1})),
    ),
    update("notice", {"severity": st.just("info"), "title": TEXTS}),
    update("subagent_update", {"sessionId": IDS}, title=nullable(TEXTS)),
    update("_private", {"x": JSON}),
)


def folded(updates: Iterable[dict[str, Any]]) -> list[Event]:
    """The events of a log, as they are after they were stored."""
    fold, events = UpdateFold(), list[Event]()
    for given_update in updates:
        for made in fold.fold(given_update):
            event = make_session_event(
                made.type,
                "s",
                seq=len(events) + 1,
                ts=0,
                payload=made.payload,
                extensions=made.extensions,
            )
            events.append(decode_event(encode_event(event)))
    return events


def unfolded(events: Iterable[Event]) -> list[dict[str, Any]]:
    view = AcpV2Updates()
    return [each for event in events for each in view.updates(event)]


def shown(updates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    client = Client()
    for each in updates:
        client.take(each)
    return client.shown()


def reduced(events: Iterable[Event]) -> SessionState:
    state = initial_state("s")
    for event in events:
        state = reduce(state, event)
    return state


@settings(max_examples=400, deadline=None)
@given(st.lists(UPDATES, max_size=12))
def test_a_client_sees_the_same_after_fold_and_unfold(updates: list[dict[str, Any]]) -> None:
    assert shown(unfolded(folded(updates))) == shown(updates)


@settings(max_examples=200, deadline=None)
@given(st.lists(UPDATES, max_size=12))
def test_our_state_shows_what_a_client_sees(updates: list[dict[str, Any]]) -> None:
    client, state = Client(), reduced(folded(updates))
    for each in updates:
        client.take(each)
    seen, ours = client.shown(), to_json(state)
    calls = ours["toolCalls"]
    assert set(calls) == set(client.calls)
    for key, call in client.calls.items():
        assert calls[key]["content"] == call["content"]
        assert (calls[key]["status"] or "pending") == call["status"]
        assert calls[key]["title"] == (call["title"] or "")
    for key, terminal in seen["terminals"].items():
        text = terminal.get("output", b"").decode(errors="replace")
        written = ours["terminals"].get(key, {"output": ""})["output"]
        assert text.rstrip("\ufffd") == written.rstrip("\ufffd")
        assert ours["terminals"].get(key, {}).get("command") in (terminal.get("command"), "")
    texts = {
        (each["kind"], each["messageId"]): "".join(
            block.get("text", "#") for block in each["content"]
        )
        for each in ours["messages"]
    }
    for key, message in seen["messages"].items():
        wanted = "".join(block.get("text", "#") for block in message.get("content", []))
        assert texts.get(key, "") == wanted


@settings(max_examples=200, deadline=None)
@given(st.lists(UPDATES, max_size=8), st.integers(0, 7))
def test_updates_that_are_repeated_change_nothing(
    updates: list[dict[str, Any]], position: int
) -> None:
    """A replay over what a client has gives the same, except for what only appends."""
    again = [
        each
        for each in updates[position : position + 1]
        if not each["sessionUpdate"].endswith("_chunk")
        and each["sessionUpdate"] not in ("notice", "_private", "subagent_update")
    ]
    before = [*updates[: position + 1], *again]
    assert shown(unfolded(folded(before))) == shown(before)


@pytest.mark.parametrize("most", [0, 1, 2])
@settings(max_examples=100, deadline=None)
@given(updates=st.lists(UPDATES, max_size=12))
def test_a_fold_that_has_forgotten_messages_loses_nothing(
    most: int, updates: list[dict[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acp2_messages, "MESSAGES", most)
        patch.setattr(acp2_messages, "DIGESTS", most)
        assert shown(unfolded(folded(updates))) == shown(updates)


@pytest.mark.parametrize(
    "broken",
    [
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}},
        {"sessionUpdate": "agent_message_chunk", "messageId": "a", "content": "x"},
        {"sessionUpdate": "agent_message", "messageId": "a", "content": {}},
        {"sessionUpdate": "tool_call_update", "toolCallId": 3},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": "x"},
        {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c"},
        {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "?"},
        {"sessionUpdate": "terminal_update", "terminalId": "t", "output": "x"},
        {"sessionUpdate": "state_update"},
        {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p"}},
        {"sessionUpdate": "plan_removed"},
        {"sessionUpdate": "config_option_update"},
        {"sessionUpdate": "available_commands_update", "availableCommands": {}},
        {"sessionUpdate": "usage_update", "used": "1"},
    ],
)
def test_a_broken_update_is_stored_with_the_reason_and_not_acted_on(broken: dict[str, Any]) -> None:
    (event,) = folded([broken])
    assert (event.type, event.payload) == ("unrecognized-update", broken)
    assert (event.extensions or {})["quarterdeck"]["invalid"]
    assert unfolded([event]) == []


def test_whatever_is_not_an_object_is_kept() -> None:
    (event,) = folded([None])  # type: ignore[list-item]  # an agent may send anything
    assert event.payload == {"update": None}


def test_a_repeated_idle_is_no_event() -> None:
    idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
    assert len(folded([idle, idle])) == 1


def test_a_snapshot_that_continues_the_output_is_appended_and_another_replaces_it() -> None:
    def snapshot(data: bytes) -> dict[str, Any]:
        output = {"data": base64_text(data)}
        return {"sessionUpdate": "terminal_update", "terminalId": "t", "output": output}

    chunk = {"sessionUpdate": "terminal_output_chunk", "terminalId": "t"}
    tick = {**chunk, "data": base64_text(b"tick 2\n")}
    events = folded([tick, snapshot(b"tick 2\ntick 3\n")])
    assert [(each.type, each.payload["delta"]) for each in events] == [
        ("terminal-output", "tick 2\n"),
        ("terminal-output", "tick 3\n"),
    ]
    (*_, last) = folded(
        [{**chunk, "data": base64_text(b"tick 2\n")}, snapshot(b"tick 1\ntick 2\n")]
    )
    assert last.type == "terminal-update"
    assert last.payload["output"] == {"text": "tick 1\ntick 2\n"}

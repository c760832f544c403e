"""What is added to what agents leave out: the table in `quarterdeck.host.repair`, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.host import repair
from quarterdeck.host.repair import ToolCalls
from quarterdeck.protocol import (
    Normalized,
    SessionState,
    initial_state,
    make_session_event,
    reduce,
    to_json,
)


def call(call_id: str = "c", **fields: Any) -> Normalized:
    return Normalized("tool-call", {"toolCallId": call_id, "title": "Read", **fields})


def update(call_id: str = "c", **fields: Any) -> Normalized:
    return Normalized("tool-call-update", {"toolCallId": call_id, **fields})


def is_added(event: Normalized) -> bool:
    return "quarterdeck" in (event.extensions or {})


def fold(events: Iterable[Normalized]) -> SessionState:
    state = initial_state("s")
    for seq, each in enumerate(events, 1):
        event = make_session_event(
            each.type, "s", seq=seq, ts=0, payload=each.payload, extensions=each.extensions
        )
        state = reduce(state, event)
    return state


def after(*sent: Normalized) -> dict[str, Any]:
    """Return the call `c` as clients see it."""
    calls = ToolCalls()
    state = fold(event for each in sent for event in calls.repaired(each))
    found: dict[str, Any] = to_json(state)["toolCalls"]["c"]
    return found


def test_an_update_for_a_call_never_announced_gets_its_announcement_before_it() -> None:
    sent = update(kind="edit", title="Edit a.py", status="completed")
    added, same = ToolCalls().repaired(sent)
    assert same is sent
    assert is_added(added)
    assert added.payload == {
        "toolCallId": "c",
        "title": "Edit a.py",
        "kind": "edit",
        "status": "pending",
    }


def test_a_call_without_a_title_is_named_by_its_id() -> None:
    added, _ = ToolCalls().repaired(update(status="completed"))
    assert added.payload["title"] == "c"


def test_a_permission_request_for_a_call_never_announced_gets_its_announcement() -> None:
    calls = ToolCalls()
    (added,) = calls.requested({"toolCallId": "c", "title": "rm -r /"}).added
    assert is_added(added)
    assert added.payload["title"] == "rm -r /"
    assert calls.requested({"toolCallId": "c"}).added == ()
    assert len(calls.repaired(update(status="completed"))) == 1


def test_what_a_second_announcement_would_erase_is_restored() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "found"}}]
    first = call(kind="read", rawInput={"path": "a"}, content=content, status="in_progress")
    second = call(status="in_progress")
    seen = after(first, second)
    assert seen["kind"] == "read"
    assert seen["content"] == content
    assert seen["rawInput"] == {"path": "a"}


def test_what_a_second_announcement_changes_is_changed() -> None:
    seen = after(call(kind="read", status="pending"), call(kind="edit", status="completed"))
    assert (seen["kind"], seen["status"]) == ("edit", "completed")


def test_raw_input_that_is_reset_to_nothing_is_restored() -> None:
    calls = ToolCalls()
    calls.repaired(call(rawInput={"path": "a"}))
    sent = update(rawInput={}, status="completed")
    same, added = calls.repaired(sent)
    assert same is sent
    assert is_added(added)
    assert added.payload == {"toolCallId": "c", "rawInput": {"path": "a"}}


def test_raw_input_that_was_never_known_is_not_restored() -> None:
    calls = ToolCalls()
    calls.repaired(call(rawInput={}))
    assert len(calls.repaired(update(rawInput={}))) == 1


def test_a_call_without_an_id_is_left_alone() -> None:
    sent = Normalized("tool-call-update", {"status": "completed"})
    assert ToolCalls().repaired(sent) == (sent,)


def test_an_update_of_another_kind_that_names_a_call_is_left_alone() -> None:
    calls = ToolCalls()
    sent = Normalized("unrecognized-update", {"toolCallId": "c"})
    assert calls.repaired(sent) == (sent,)
    assert len(calls.repaired(update())) == 2


def test_after_a_reset_every_call_is_new() -> None:
    calls = ToolCalls()
    calls.repaired(call())
    calls.forget()
    assert len(calls.repaired(update())) == 2


def test_what_is_said_of_a_call_a_thousand_times_is_kept_once() -> None:
    calls = ToolCalls()
    calls.repaired(call(rawInput={"n": 1}))
    for number in range(1000):
        calls.repaired(update(content=[number]))
    _, added = calls.repaired(call())
    assert added.payload == {"toolCallId": "c", "rawInput": {"n": 1}, "content": [999]}


def test_a_session_with_very_many_calls_forgets_the_oldest_and_adds_nothing_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "KNOWN", 50)
    monkeypatch.setattr(repair, "REMEMBERED", 10)
    calls = ToolCalls()
    for number in range(60):
        calls.repaired(call(f"c{number}", rawInput={"n": number}))
    for number in range(60):  # a call added by mistake would erase the real one
        assert len(calls.repaired(update(f"c{number}", status="completed"))) == 1
    assert calls.requested({"toolCallId": "new"}).added == ()
    calls.forget()
    assert len(calls.repaired(update("new"))) == 2


KINDS = st.sampled_from(("tool-call", "tool-call-update"))
FIELDS = st.fixed_dictionaries(
    {"toolCallId": st.sampled_from("cd")},
    optional={
        "title": st.sampled_from(("Read", "Edit")),
        "status": st.sampled_from(("pending", "in_progress", "completed")),
        "rawInput": st.sampled_from(({}, {"a": 1}, None)),
        "content": st.sampled_from(([], [{"type": "diff"}])),
    },
)


@given(st.lists(st.builds(Normalized, KINDS, FIELDS), max_size=30))
def test_whatever_an_agent_sends_is_kept_and_no_call_is_missing(sent: list[Normalized]) -> None:
    calls = ToolCalls()
    events = [event for each in sent for event in calls.repaired(each)]
    assert [event for event in events if not is_added(event)] == sent
    assert set(fold(events).tool_calls) == {each.payload["toolCallId"] for each in sent}

"""What repair adds to what agents leave out: its table, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.host.log import tool_call_repair
from quarterdeck.host.log.tool_call_repair import (
    LARGE_BYTES,
    REMEMBERED,
    REMEMBERED_BYTES,
    ToolCallRepair,
)
from quarterdeck.protocol import (
    Normalized,
    SessionState,
    ToolCallFacts,
    initial_state,
    make_session_event,
    reduce,
    to_json,
)
from quarterdeck.protocol.tool_calls import announced, corrections, requested, updated


def call(call_id: str = "c", **fields: Any) -> Normalized:
    return Normalized("tool-call", {"toolCallId": call_id, "title": "Read", **fields})


def update(call_id: str = "c", **fields: Any) -> Normalized:
    return Normalized("tool-call-update", {"toolCallId": call_id, **fields})


def is_added(event: Normalized) -> bool:
    return "quarterdeck" in (event.extensions or {})


def fold(events: Iterable[Normalized], state: SessionState | None = None) -> SessionState:
    state = state or initial_state("s")
    for seq, each in enumerate(events, 1):
        event = make_session_event(
            each.type, "s", seq=seq, ts=0, payload=each.payload, extensions=each.extensions
        )
        state = reduce(state, event)
    return state


def after(*sent: Normalized) -> dict[str, Any]:
    """Return the call `c` as clients see it."""
    calls = ToolCallRepair()
    state = fold(event for each in sent for event in calls.repaired(each))
    found: dict[str, Any] = to_json(state)["toolCalls"]["c"]
    return found


def test_an_update_for_a_call_never_announced_gets_its_announcement_before_it() -> None:
    sent = update(kind="edit", title="Edit a.py", status="completed")
    added, same = ToolCallRepair().repaired(sent)
    assert same is sent
    assert is_added(added)
    assert added.payload == {
        "toolCallId": "c",
        "title": "Edit a.py",
        "kind": "edit",
        "status": "pending",
    }


def test_a_call_without_a_title_is_named_by_its_id() -> None:
    added, _ = ToolCallRepair().repaired(update(status="completed"))
    assert added.payload["title"] == "c"


def test_a_permission_request_for_a_call_never_announced_gets_its_announcement() -> None:
    calls = ToolCallRepair()
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
    calls = ToolCallRepair()
    calls.repaired(call(rawInput={"path": "a"}))
    sent = update(rawInput={}, status="completed")
    same, added = calls.repaired(sent)
    assert same is sent
    assert is_added(added)
    assert added.payload == {"toolCallId": "c", "rawInput": {"path": "a"}}


def test_raw_input_that_was_never_known_is_not_restored() -> None:
    calls = ToolCallRepair()
    calls.repaired(call(rawInput={}))
    assert len(calls.repaired(update(rawInput={}))) == 1


def test_a_call_without_an_id_is_left_alone() -> None:
    sent = Normalized("tool-call-update", {"status": "completed"})
    assert ToolCallRepair().repaired(sent) == (sent,)


def test_an_update_of_another_kind_that_names_a_call_is_left_alone() -> None:
    calls = ToolCallRepair()
    sent = Normalized("unrecognized-update", {"toolCallId": "c"})
    assert calls.repaired(sent) == (sent,)
    assert len(calls.repaired(update())) == 2


def test_after_a_reset_every_call_is_new() -> None:
    calls = ToolCallRepair()
    calls.repaired(call())
    calls.forget()
    assert len(calls.repaired(update())) == 2


def test_a_field_of_a_call_that_is_sent_a_thousand_times_is_kept_once() -> None:
    calls = ToolCallRepair()
    calls.repaired(call(rawInput={"n": 1}))
    for number in range(1000):
        calls.repaired(update(content=[number]))
    _, added = calls.repaired(call())
    assert added.payload == {"toolCallId": "c", "rawInput": {"n": 1}, "content": [999]}


def test_a_session_with_very_many_calls_forgets_the_oldest_and_adds_nothing_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_call_repair, "KNOWN", 50)
    monkeypatch.setattr(tool_call_repair, "REMEMBERED", 10)
    calls = ToolCallRepair()
    for number in range(60):
        calls.repaired(call(f"c{number}", rawInput={"n": number}))
    for number in range(60):  # a call added by mistake would erase the real one
        assert len(calls.repaired(update(f"c{number}", status="completed"))) == 1
    assert calls.requested({"toolCallId": "new"}).added == ()
    calls.forget()
    assert len(calls.repaired(update("new"))) == 2


# ---- both columns agree after every event ------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "added"),
    [
        ({"rawInput": {}}, {"rawInput": {"a": 1}}),
        ({"rawInput": ""}, {"rawInput": {"a": 1}}),
        ({"rawInput": None}, {"rawInput": {"a": 1}}),
        ({"rawInput": 0}, {}),
        ({"rawOutput": None}, {"rawOutput": "out"}),
        ({"rawOutput": {}}, {}),
        ({"title": ""}, {"title": "Read"}),
        ({"title": 5}, {"title": "Read"}),
        ({"kind": ""}, {"kind": "read"}),
        ({"kind": 7}, {"kind": "read"}),
        ({"content": []}, {}),
        ({"content": "x"}, {"content": [{"type": "content"}]}),
        ({"content": [5]}, {}),
        ({"status": "in_progress"}, {}),
        ({"status": "paused"}, {}),
    ],
)
def test_an_update_that_loses_something_known_gets_it_back(sent: Any, added: Any) -> None:
    calls = ToolCallRepair()
    content = [{"type": "content"}]
    calls.repaired(call(kind="read", rawInput={"a": 1}, rawOutput="out", content=content))
    same, *more = calls.repaired(update(**sent))
    assert same.payload == {"toolCallId": "c", **sent}
    assert [each.payload for each in more] == ([{"toolCallId": "c", **added}] if added else [])


def test_a_call_that_has_ended_does_not_reopen_and_may_end_otherwise() -> None:
    assert after(call(status="completed"), update(status="in_progress"))["status"] == "completed"
    assert after(call(status="failed"), update(status="completed"))["status"] == "completed"


@pytest.mark.parametrize("is_next_turn", [False, True])
def test_a_call_with_the_id_of_one_that_has_ended_inherits_nothing(is_next_turn: bool) -> None:
    calls = ToolCallRepair()
    calls.repaired(call(kind="execute", rawInput={"command": "git status"}))
    calls.repaired(update(status="completed", rawOutput="clean"))
    if is_next_turn:
        calls.next_turn()
    assert len(calls.repaired(call(title="rm -rf dist", kind="execute"))) == 1
    facts, added = calls.requested({"toolCallId": "c", "title": "rm -rf dist"})
    assert (facts.raw_input, facts.raw_output, facts.generation) == (None, None, 2)
    assert added == ()


def test_a_call_with_the_id_of_an_open_one_of_an_earlier_turn_inherits_nothing() -> None:
    calls = ToolCallRepair()
    calls.repaired(call(kind="execute", rawInput={"command": "git status"}))
    calls.next_turn()
    assert len(calls.repaired(call(kind="execute"))) == 1
    assert calls.requested({"toolCallId": "c"}).facts.raw_input is None


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_request_for_an_old_call_is_announced_as_a_new_one(is_ended: bool) -> None:
    calls = ToolCallRepair()
    events = [*calls.repaired(call(kind="execute", rawInput={"command": "git status"}))]
    if is_ended:
        events += calls.repaired(update(status="completed"))
    else:
        calls.next_turn()
    facts, added = calls.requested({"toolCallId": "c", "title": "rm", "kind": "execute"})
    assert facts.raw_input is None
    assert [each.type for each in added] == ["tool-call"]
    assert all(map(is_added, added))
    seen = to_json(fold([*events, *added]))["toolCalls"]["c"]
    assert "rawInput" not in seen
    assert seen["title"] == "rm"


def test_what_only_a_request_has_is_added_before_it() -> None:
    calls = ToolCallRepair()
    events = [*calls.repaired(call(kind="execute", status="pending"))]
    tool_call = {
        "toolCallId": "c",
        "rawInput": {"command": "ls"},
        "content": [],
        "status": "pending",
    }
    facts, added = calls.requested(tool_call)
    assert [each.payload for each in added] == [{"toolCallId": "c", "rawInput": {"command": "ls"}}]
    assert all(map(is_added, added))
    assert facts.raw_input == {"command": "ls"}
    assert fold([*events, *added]).tool_calls["c"].raw_input == {"command": "ls"}
    assert calls.requested(tool_call).added == ()


def test_a_request_without_an_id_is_known_by_what_it_has() -> None:
    facts, added = ToolCallRepair().requested({"title": "ls", "kind": "execute"})
    assert (facts.id, facts.title, added) == ("", "ls", ())


def test_what_the_log_had_before_a_restart_is_known() -> None:
    calls = ToolCallRepair()
    calls.learn(call(rawInput={"a": 1}))
    _, added = calls.repaired(update(rawInput={}))
    assert added.payload == {"toolCallId": "c", "rawInput": {"a": 1}}
    calls.learn(Normalized("prompt-finished", {"stopReason": "end_turn"}))
    assert calls.requested({"toolCallId": "c"}).facts.raw_input is None


def test_the_call_after_ten_thousand_is_folded_and_nothing_wrong_is_added() -> None:
    calls = ToolCallRepair()
    for number in range(tool_call_repair.KNOWN):
        calls.repaired(call(f"c{number}"))
    calls.repaired(call("last", rawInput={"a": 1}))
    _, added = calls.repaired(update("last", rawInput={}))
    assert added.payload == {"toolCallId": "last", "rawInput": {"a": 1}}
    assert len(calls.repaired(update("another", status="completed"))) == 1


KINDS = st.sampled_from(("tool-call", "tool-call-update"))
FIELDS = st.fixed_dictionaries(
    {"toolCallId": st.sampled_from("cd")},
    optional={
        "title": st.sampled_from(("Read", "Edit", "", 5)),
        "kind": st.sampled_from(("read", "", 7)),
        "status": st.sampled_from(("pending", "in_progress", "completed", "failed", "paused")),
        "rawInput": st.sampled_from(({}, {"a": 1}, "", 0, None)),
        "rawOutput": st.sampled_from(({}, "out", None)),
        "content": st.sampled_from(([], [{"type": "diff"}], "x", [5])),
    },
)


@given(st.lists(st.builds(Normalized, KINDS, FIELDS), max_size=30))
def test_whatever_an_agent_sends_is_kept_and_no_call_is_missing(sent: list[Normalized]) -> None:
    calls = ToolCallRepair()
    events = [event for each in sent for event in calls.repaired(each)]
    assert [event for event in events if not is_added(event)] == sent
    assert set(fold(events).tool_calls) == {each.payload["toolCallId"] for each in sent}


STEPS = st.lists(
    st.one_of(
        st.builds(Normalized, KINDS, FIELDS),
        FIELDS.map(lambda fields: Normalized("permission-request-created", fields)),
        st.just(Normalized("prompt-finished", {})),
    ),
    max_size=30,
)


@given(STEPS)
def test_after_every_event_states_show_what_is_known(steps: list[Normalized]) -> None:
    calls, state, turn = ToolCallRepair(), initial_state("s"), 0
    known: dict[str, ToolCallFacts] = {}
    for step in steps:
        if step.type == "prompt-finished":
            calls.next_turn()
            turn += 1
            continue
        call_id = step.payload["toolCallId"]
        old = known.get(call_id)
        if step.type == "permission-request-created":
            facts, events = calls.requested(step.payload)
            known[call_id] = requested(old, step.payload, turn)
            assert facts.raw_input == known[call_id].raw_input
        else:
            events = calls.repaired(step)
            if old is None or step.type == "tool-call":
                known[call_id] = announced(old, step.payload, turn)
            else:
                known[call_id] = updated(old, step.payload)
        state = fold(events, state)
        assert corrections(state.tool_calls[call_id], known[call_id]) == {}


def announce(calls: ToolCallRepair, call_id: str, size: int) -> None:
    sent = Normalized("tool-call", {"toolCallId": call_id, "title": "x" * size})
    calls.repaired(sent)
    calls.measure(call_id, size)


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, REMEMBERED_BYTES * 2)), max_size=60))
def test_what_is_remembered_of_calls_is_bounded_by_bytes(sent: list[tuple[int, int]]) -> None:
    calls, sizes = ToolCallRepair(), dict[str, int]()
    for number, size in sent:
        announce(calls, f"c{number}", size)
        sizes[f"c{number}"] = max(size, sizes.get(f"c{number}", 0))
        assert calls.remembered[-1] == f"c{number}"  # the newest is always known
        older = sum(sizes[each] for each in calls.remembered[:-1] if sizes[each] >= LARGE_BYTES)
        assert older <= REMEMBERED_BYTES
        assert len(calls.remembered) <= REMEMBERED
        sizes = {each: sizes[each] for each in calls.remembered}


def test_of_a_closed_session_only_the_ids_of_calls_are_kept() -> None:
    calls = ToolCallRepair()
    announce(calls, "c", 50_000)
    calls.release()
    assert not calls.remembered
    sent = update(status="completed")
    assert calls.repaired(sent) == (sent,)  # it was announced: no second announcement
    announce(calls, "d", REMEMBERED_BYTES)
    assert calls.remembered[-1] == "d"


@pytest.mark.parametrize("call_id", [None, 7, ["c"], {"c": 1}])
def test_an_event_without_a_proper_id_is_not_counted(call_id: Any) -> None:
    calls = ToolCallRepair()
    sent = Normalized("tool-call", {"toolCallId": call_id, "title": "x"})
    assert calls.repaired(sent) == (sent,)
    calls.measure(call_id, REMEMBERED_BYTES)
    assert calls.remembered == ()

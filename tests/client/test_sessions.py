"""The live store: what acpjs's client does with each event, and what ours does on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from quarterdeck.client import LiveSession
from quarterdeck.protocol import (
    SessionSnapshotWire,
    decode_event,
    initial_state,
    make_session_event,
    reduce,
    to_json,
)

FOLDER = Path(__file__).parents[1] / "vectors" / "client-store"
VECTORS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))
}


class Count:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.mark.parametrize("name", VECTORS)
def test_the_store_does_with_each_step_what_the_vector_has(name: str) -> None:
    vector = VECTORS[name]
    store, count = LiveSession(vector["sessionId"]), Count()
    store.subscribe(count)
    for step in vector["steps"]:
        before, calls = store.state, count.calls
        if step["op"] == "apply":
            store.apply(decode_event(step["event"]))
        else:
            snapshot = msgspec.convert(step["snapshot"], SessionSnapshotWire)
            assert store.apply_snapshot(snapshot) is step["returns"]
        assert (store.state is before) is step["sameSnapshot"]
        assert count.calls - calls == step["notifications"]
        assert store.last_seq == step["lastSeqAfter"]
    assert to_json(store.state) == vector["finalState"]


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 16


def _chunk(seq: int) -> Any:
    payload = {"content": {"type": "text", "text": str(seq)}}
    return make_session_event("agent-message-chunk", "s", seq=seq, ts=0, payload=payload)


def test_after_a_reset_that_does_not_start_again_numbering_continues() -> None:
    store = LiveSession("s")
    reset = make_session_event("session-reset", "s", seq=3, ts=0, payload={"reason": "load"})
    for event in (_chunk(1), _chunk(2), reset, _chunk(2), _chunk(4)):
        store.apply(event)
    assert store.last_seq == 4
    (message,) = to_json(store.state)["messages"]
    assert message["content"] == [{"type": "text", "text": "4"}]


@given(st.lists(st.integers(0, 4), max_size=8))
def test_however_a_log_is_cut_and_repeated_the_state_is_its_fold(starts: list[int]) -> None:
    log = [_chunk(seq) for seq in range(1, 6)]
    store = LiveSession("s")
    for start in [0, *starts]:
        for event in log[min(start, store.last_seq) :]:
            store.apply(event)
    state = initial_state("s")
    for event in log:
        state = reduce(state, event)
    assert store.state == state


def test_a_listener_that_fails_or_leaves_disturbs_no_other() -> None:
    store, count = LiveSession("s"), Count()

    def fail() -> None:
        raise ValueError("no")

    store.subscribe(fail)
    leave = store.subscribe(count)
    store.subscribe(count)
    store.apply(_chunk(1))
    assert count.calls == 2
    leave()
    leave()
    store.apply(_chunk(2))
    assert count.calls == 3


def test_a_listener_removed_by_another_is_not_called_any_more() -> None:
    store, count = LiveSession("s"), Count()
    removals: list[Any] = []

    def remove_the_other() -> None:
        removals.pop()()

    store.subscribe(remove_the_other)
    removals.append(store.subscribe(count))
    store.apply(_chunk(1))
    assert count.calls == 0

"""Spans are made from the log alone: the same from any place where a turn begins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.protocol import Event, decode_event
from quarterdeck.views.traces import MOST_CALLS, Span, TraceProjector, TurnIdentity

PROMPTING = ("session-status-change", {"status": "prompting"})
DONE = (
    "prompt-finished",
    {"stopReason": "end_turn", "usage": {"inputTokens": 7, "totalTokens": 9}},
)
SECRET = "SECRET"


def log(*entries: tuple[str, dict[str, Any]]) -> list[Event]:
    """Return a log, one event a second."""
    return [
        decode_event(
            {"sessionId": "s", "seq": seq, "ts": seq * 1000, "type": kind, "payload": payload}
        )
        for seq, (kind, payload) in enumerate(entries, 1)
    ]


def chunk(kind: str) -> tuple[str, dict[str, Any]]:
    return kind, {"content": {"type": "text", "text": SECRET}}


def call(name: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "tool-call", {"toolCallId": name, "title": SECRET, "kind": "edit", **more}


def update(name: str, status: str) -> tuple[str, dict[str, Any]]:
    return "tool-call-update", {"toolCallId": name, "status": status, "rawOutput": SECRET}


TURN = (
    PROMPTING,
    chunk("user-message-chunk"),
    call("a", rawInput={"x": SECRET}),
    update("a", "failed"),
    call("b"),
    chunk("agent-message-chunk"),
    DONE,
    ("session-status-change", {"status": "active"}),
)


def spans_of(events: list[Event], *, with_content: bool = False) -> list[Span]:
    projector = TraceProjector("s", agent="mine", scope="e", with_content=with_content)
    return [span for event in events for span in projector.feed(event)]


def test_a_turn_and_its_calls_are_nested_with_the_times_of_their_events() -> None:
    first, second, turn = spans_of(log(*TURN))
    assert (turn.began, turn.ended) == (1000, 7000)
    assert (first.began, first.ended, first.error) == (3000, 4000, "failed")
    assert (second.began, second.ended, second.error) == (5000, 7000, None)  # never ended
    assert {first.parent_id, second.parent_id} == {turn.span_id}
    assert len({turn.trace_id, first.trace_id, second.trace_id}) == 1
    assert turn.attributes["gen_ai.usage.input_tokens"] == 7
    assert turn.error is None


def test_the_identity_is_that_of_the_event_that_begins_the_turn() -> None:
    *_, turn = spans_of(log(*TURN))
    identity = TurnIdentity.of("e", "s", 1)
    assert (turn.trace_id, turn.span_id) == (identity.trace_id, identity.span_id)
    assert identity.traceparent == f"00-{turn.trace_id}-{turn.span_id}-01"
    others = {
        TurnIdentity.of("f", "s", 1),
        TurnIdentity.of("e", "t", 1),
        TurnIdentity.of("e", "s", 2),
    }
    assert identity not in others


def test_content_is_only_there_if_it_is_wanted() -> None:
    assert SECRET not in repr(spans_of(log(*TURN)))
    first, _, turn = spans_of(log(*TURN), with_content=True)
    assert SECRET in str(turn.attributes["gen_ai.input.messages"])
    assert SECRET in str(turn.attributes["gen_ai.output.messages"])
    assert SECRET in str(first.attributes["gen_ai.tool.call.arguments"])
    assert SECRET in str(first.attributes["gen_ai.tool.call.result"])


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (("session-status-change", {"status": "disconnected"}), "disconnected"),
        (("session-status-change", {"status": "closed"}), "closed"),
        (("session-reset", {"reason": "load"}), "session-reset"),
        (PROMPTING, "interrupted"),
        (
            (
                "prompt-finished",
                {"stopReason": "end_turn", "error": {"code": -1, "message": SECRET}},
            ),
            "-1",
        ),
    ],
)
def test_a_turn_without_a_good_end_has_an_error(
    ending: tuple[str, dict[str, Any]], error: str
) -> None:
    (turn,) = spans_of(log(PROMPTING, chunk("agent-message-chunk"), ending))
    assert turn.error == error
    # What no answer ended has the time of its last event: a runner may start days later.
    assert turn.ended == (3000 if ending[0] == "prompt-finished" else 2000)
    assert SECRET not in repr(turn)


def test_a_turn_has_a_bounded_number_of_spans_and_counts_the_rest() -> None:
    calls = [call(str(number)) for number in range(MOST_CALLS + 5)]
    spans = spans_of(log(PROMPTING, *calls, DONE))
    assert len(spans) == MOST_CALLS + 1
    assert spans[-1].attributes["quarterdeck.tool_calls"] == MOST_CALLS + 5


@given(st.lists(st.sampled_from(TURN), max_size=30), st.integers(0, 30))
def test_turns_are_the_same_for_a_reader_that_begins_between_two_turns(
    entries: list[tuple[str, dict[str, Any]]], cut: int
) -> None:
    events = log(*entries)
    projector = TraceProjector("s", agent="mine", scope="e")
    before = [span for event in events[:cut] for span in projector.feed(event)]
    after = [span for event in events[cut:] for span in projector.feed(event)]
    last_end = max((int(span.ended) for span in before if span.parent_id is None), default=0)
    again = spans_of([event for event in events if event.ts > last_end])
    assert [span for span in again if span in after] == after
    identifiers = [span.span_id for span in (*before, *after)]
    assert len(set(identifiers)) == len(identifiers)

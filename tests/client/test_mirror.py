"""Answers that events have overtaken."""

from __future__ import annotations

from quarterdeck.client.mirror import Mirror


def test_a_result_does_not_undo_what_events_changed_meanwhile() -> None:
    mirror: Mirror[str] = Mirror()
    mirror.put("gone", "old")
    mirror.put("kept", "old")
    mirror.put("unnamed", "old")
    with mirror.fetching() as changed:
        mirror.put("changed", "by an event")
        mirror.put("came", "later")
        mirror.remove("gone")
        answer = {"changed": "older", "gone": "older", "kept": "answered"}
        mirror.replace(answer, changed)
    assert mirror.all() == ("answered", "by an event", "later")


def test_two_calls_at_once_see_the_same_changes() -> None:
    mirror: Mirror[str] = Mirror()
    with mirror.fetching() as first:
        with mirror.fetching() as second:
            mirror.put("a", "new")
        mirror.put("b", "new")
    assert (first, second) == ({"a", "b"}, {"a"})


def test_what_does_not_change_is_the_same_object_and_notifies_no_listener() -> None:
    mirror: Mirror[str] = Mirror()
    calls: list[int] = []
    mirror.subscribe(lambda: calls.append(1))
    mirror.put("a", "x")
    listed = mirror.all()
    mirror.put("a", "x")
    mirror.remove("b")
    assert mirror.all() is listed
    assert len(calls) == 1


def test_batched_changes_notify_once() -> None:
    mirror: Mirror[str] = Mirror()
    calls: list[tuple[str, ...]] = []
    mirror.subscribe(lambda: calls.append(mirror.all()))
    with mirror.batched():
        mirror.put("a", "x")
        mirror.put("a", "y")
    with mirror.batched():
        mirror.put("a", "y")
    assert calls == [("y",)]

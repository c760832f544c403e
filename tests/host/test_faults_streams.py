"""Subscribers that misbehave: what one does disturbs no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quarterdeck.host.log.stream import Stream, Subscriber
from quarterdeck.protocol import Event, make_session_event


def event(seq: int) -> Event:
    payload = {"content": {"type": "text", "text": str(seq)}}
    return make_session_event("agent-message-chunk", "s", seq=seq, ts=0, payload=payload)


Publish = Callable[[Stream, int], None]


def one_by_one(stream: Stream, count: int) -> None:
    for _ in range(count):
        stream.publish([event(stream.next_seq())])


def at_once(stream: Stream, count: int) -> None:
    stream.publish([event(stream.next_seq()) for _ in range(count)])


@pytest.fixture(params=[one_by_one, at_once])
def publish(request: pytest.FixtureRequest) -> Publish:
    chosen: Publish = request.param
    return chosen


def joined(stream: Stream, callback: Callable[[Event], None], from_seq: int = 0) -> Subscriber:
    subscriber = Subscriber(callback, from_seq)
    assert stream.join(subscriber)
    return subscriber


def quiet_stream(failures: list[str] | None = None) -> Stream:
    host_seen = [] if failures is None else failures
    return Stream(None, lambda failed, error: host_seen.append(f"{failed.seq}: {error}"))


def test_a_subscriber_ahead_of_the_stream_gets_what_follows_its_number(publish: Publish) -> None:
    stream, ahead, live = quiet_stream(), list[int](), list[int]()
    joined(stream, lambda each: ahead.append(each.seq), from_seq=3)
    joined(stream, lambda each: live.append(each.seq))
    publish(stream, 5)
    assert (ahead, live) == ([4, 5], [1, 2, 3, 4, 5])


def test_a_subscriber_ahead_of_the_stream_can_leave_before_it_got_anything(
    publish: Publish,
) -> None:
    stream, ahead = quiet_stream(), list[int]()
    subscriber = joined(stream, lambda each: ahead.append(each.seq), from_seq=3)
    stream.remove(subscriber)
    publish(stream, 5)
    assert ahead == []


def test_a_subscriber_removed_by_another_callback_does_not_get_that_event(
    publish: Publish,
) -> None:
    stream, others = quiet_stream(), list[Subscriber]()
    seen: list[int] = []
    joined(stream, lambda _each: stream.remove(others[0]))
    others.append(joined(stream, lambda each: seen.append(each.seq)))
    publish(stream, 2)
    assert seen == []


def test_a_subscriber_that_joins_in_a_callback_gets_that_event_once(publish: Publish) -> None:
    stream, seen = quiet_stream(), list[int]()

    def join_once(each: Event) -> None:
        if each.seq == 2:
            joined(stream, lambda other: seen.append(other.seq))

    joined(stream, join_once)
    publish(stream, 3)
    assert seen == [1, 2, 3]


@pytest.mark.anyio
async def test_a_callback_that_raises_is_reported_and_the_others_get_the_event(
    publish: Publish,
) -> None:
    failures: list[str] = []
    stream, seen = quiet_stream(failures), list[int]()

    def fail(_each: Event) -> None:
        raise ValueError("broken")

    joined(stream, fail)
    joined(stream, lambda each: seen.append(each.seq))
    publish(stream, 2)
    assert failures == ["1: broken", "2: broken"]
    assert seen == [1, 2]


def test_a_subscriber_that_leaves_in_its_own_callback_gets_no_more(
    publish: Publish,
) -> None:
    stream, seen = quiet_stream(), list[int]()
    subscribers: list[Subscriber] = []

    def once(each: Event) -> None:
        seen.append(each.seq)
        stream.remove(subscribers[0])

    subscribers.append(joined(stream, once))
    publish(stream, 3)
    assert seen == [1]


@pytest.mark.anyio
async def test_a_callback_that_raises_stop_iteration_gets_all_the_same_what_follows(
    publish: Publish,
) -> None:
    failures: list[str] = []
    stream, seen = quiet_stream(failures), list[int]()

    def fail(each: Event) -> None:
        seen.append(each.seq)
        raise StopIteration

    joined(stream, fail)
    publish(stream, 3)
    assert seen == [1, 2, 3]
    assert len(failures) == 3


def test_a_subscriber_that_joins_between_many_events_gets_each_once(
    publish: Publish,
) -> None:
    stream, seen = quiet_stream(), list[int]()

    def join_others(each: Event) -> None:
        joined(stream, lambda other: seen.append(other.seq), from_seq=each.seq)

    joined(stream, join_others)
    publish(stream, 3)
    publish(stream, 1)
    assert sorted(seen) == [2, 3, 3, 4, 4, 4]

"""The buffers behind the streams of one client: numbered, bounded, read again after a cut."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from quarterdeck.agent.http.outgoing import (
    CONNECTION,
    LostMessages,
    OutgoingStreams,
    UnknownEvent,
)
from quarterdeck.http.sse import ReplayLimits

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2)),
        st.tuples(st.just("read"), st.integers(0, 2)),
        st.tuples(st.just("cut"), st.integers(0, 2)),
    ),
    max_size=200,
)


@given(steps=STEPS)
def test_over_any_cuts_a_reader_that_names_its_last_event_reads_everything_once(
    steps: list[tuple[str, int]],
) -> None:
    streams = OutgoingStreams(ReplayLimits(messages=1000, size=1 << 20))
    put: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    read: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    last: dict[int, str] = {0: "", 1: "", 2: ""}
    for what, which in (
        *steps,
        *(("cut", each) for each in put),
        *(("read", each) for each in put),
    ):
        stream = streams.get(b"%d" % which)
        if what == "put":
            message = b"%d of %d" % (len(put[which]), which)
            put[which].append(message)
            streams.put(stream.key, message)
        elif what == "read":
            for number, message in stream.take():
                read[which].append(message)
                last[which] = stream.event_id(number).decode()
            streams.took()
        else:
            # Half of what was sent last did not arrive.
            arrived = len(read[which]) - (len(read[which]) and 1)
            read[which] = read[which][:arrived]
            last[which] = stream.event_id(arrived).decode()
            streams.begin(stream, last[which])
    assert read == put


def test_what_was_sent_is_dropped_first_and_of_the_stream_that_has_most_of_it() -> None:
    streams = OutgoingStreams(ReplayLimits(messages=1000, size=1000))
    for _ in range(8):
        streams.put(b"read", b"x" * 100)
    before = streams.get(b"read").event_id(0).decode()
    streams.get(b"read").take()
    for _ in range(8):
        streams.put(b"unread", b"y" * 100)
    assert len(streams.get(b"unread").take()) == 8
    assert not streams.get(b"unread").is_lost
    with pytest.raises(LostMessages):
        streams.begin(streams.get(b"read"), before)


def test_a_stream_that_is_not_read_is_lost_and_the_others_are_not() -> None:
    streams = OutgoingStreams(ReplayLimits(messages=1000, size=1000))
    for _ in range(30):
        streams.put(b"unread", b"x" * 100)
        streams.put(b"read", b"y" * 100)
        assert streams.get(b"read").take()
        streams.took()
    lost = streams.get(b"unread")
    assert lost.is_lost
    with pytest.raises(LostMessages):
        streams.begin(lost, "")
    streams.begin_anew(lost)
    streams.begin(lost, "")
    streams.put(b"unread", b"fresh")
    assert [message for _, message in lost.take()] == [b"fresh"]


@pytest.mark.parametrize("event", ["0123abcd-1", "x", "-", "0123abcd-"])
def test_an_event_of_another_stream_is_unknown(event: str) -> None:
    streams = OutgoingStreams(ReplayLimits())
    with pytest.raises(UnknownEvent):
        streams.begin(streams.get(CONNECTION), event)


def test_one_message_is_kept_however_large_it_is() -> None:
    streams = OutgoingStreams(ReplayLimits(messages=10, size=10))
    streams.put(b"s", b"x" * 100)
    assert [message for _, message in streams.get(b"s").take()] == [b"x" * 100]


def test_memory_is_bounded_whatever_is_read() -> None:
    streams = OutgoingStreams(ReplayLimits(messages=50, size=5000))
    for number in range(2000):
        key = b"%d" % (number % 7)
        streams.put(key, b"x" * (number % 90))
        if number % 3:
            streams.get(key).take()
            streams.took()
        kept = streams.all()
        assert sum(stream.size for stream in kept) <= 5000
        assert sum(stream.count for stream in kept) <= 50

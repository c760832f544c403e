"""Server-sent events from bytes in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.event_parser import EventParser, ReceivedEvent

STREAM = (
    b"\xef\xbb\xbfretry: 1000\nid: e-0\n: connected\n\n"
    b'id: e-1\ndata: {"a":1}\n\n'
    b": ping\n\n"
    b"event: x\r\ndata:two\r\ndata: lines\r\nid: e-2\r\n\r\n"
    b"data: \xe2\x80\xa8 no line end\r\r"
    b"data: unfinished"
)
EVENTS = [
    ReceivedEvent(b'{"a":1}', "e-1"),
    ReceivedEvent(b"two\nlines", "e-2"),
    ReceivedEvent(b"\xe2\x80\xa8 no line end", "e-2"),
]


def read(*pieces: bytes) -> list[ReceivedEvent]:
    parser = EventParser(1000)
    return [event for piece in pieces for event in parser.feed(piece)]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_any_cut_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    points = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(points)]
    assert read(*pieces) == EVENTS


def test_an_id_without_data_counts() -> None:
    parser = EventParser(1000)
    assert list(parser.feed(b"id: e-7\n\n")) == []
    assert parser.last_id == "e-7"
    assert list(parser.feed(b"id: e-8\ndata: cut off")) == []
    assert parser.last_id == "e-7"


def test_an_event_may_name_the_one_of_another_stream_that_it_follows() -> None:
    events = read(b": after s-7\nid: e-1\ndata: x\n\ndata: y\n\n")
    assert [each.after for each in events] == ["s-7", None]


def test_a_server_without_ids_has_none() -> None:
    assert read(b"data: x\n\n") == [ReceivedEvent(b"x", None)]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n" * 20])
def test_an_event_without_end_is_an_error(piece: bytes) -> None:
    with pytest.raises(ConnectionClosed, match="more than 1000 bytes"):
        read(*[piece] * 20)


def test_many_events_are_no_long_one() -> None:
    assert len(read(*[b"data: 0123456789\n\n"] * 1000)) == 1000

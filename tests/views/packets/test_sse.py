"""Event streams: written, read, cut anywhere, and not quite as they should be."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.views.packets import HEADERS, KEEPALIVE, PacketReader, encode_packet
from quarterdeck.views.packets.builders import agent_message_chunk
from tests.views.packets.support import Json, vectors

# The reader of the vectors takes every line of data for a packet. The standard joins the lines of
# one event, and so do we.
JOINED = {"10/multi-line-data": ([{"type": "a"}], 0)}


@pytest.mark.parametrize("vector", vectors("10"), ids=lambda vector: vector["id"])
def test_the_bytes_of_a_vector_are_its_packets(vector: Json) -> None:
    reader = PacketReader()
    chunks = [base64.b64decode(chunk) for chunk in vector["chunks_b64"]]
    packets = [packet for chunk in chunks for packet in reader.feed(chunk)] + reader.finish()
    expected = (vector["packets"], vector["parseErrors"])
    assert (packets, reader.skipped) == JOINED.get(vector["id"], expected)


def read(*chunks: bytes, **options: Any) -> tuple[list[Json], PacketReader]:
    reader = PacketReader(**options)
    return [packet for chunk in chunks for packet in reader.feed(chunk)], reader


def test_a_packet_is_one_event() -> None:
    packet = agent_message_chunk("two\nlines\r\n ")
    written = encode_packet(packet)
    assert written.startswith(b'event: message\ndata: {"_meta":null,')
    assert written.endswith(b"}\n\n")
    assert written.count(b"\n") == 3
    assert read(written)[0] == [packet]


def test_a_packet_may_carry_the_number_of_its_event() -> None:
    packets, reader = read(encode_packet({"type": "a"}, seq=17), encode_packet({"type": "b"}))
    assert packets == [{"type": "a"}, {"type": "b"}]
    assert reader.last_id == "17"
    assert read(b"id: 1\nid: 2\x003\ndata: {}\n\n")[1].last_id == "1"


def test_a_keepalive_is_no_packet() -> None:
    packets, reader = read(KEEPALIVE, encode_packet({"type": "a"}), KEEPALIVE)
    assert (packets, reader.skipped) == ([{"type": "a"}], 0)


def test_proxies_may_neither_cache_nor_change_the_stream() -> None:
    assert HEADERS["Content-Type"] == "text/event-stream"
    assert HEADERS["Cache-Control"] == "no-cache, no-transform"
    assert HEADERS["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize(
    ("stream", "packets"),
    [
        (b'\xef\xbb\xbfdata: {"a":1}\n\n', [{"a": 1}]),
        (b'data: {"a":1}\r\rdata: {"b":2}\r\r', [{"a": 1}, {"b": 2}]),
        (b'data: {"a":\r\ndata: 1}\r\n\r\n', [{"a": 1}]),
        (b'data: {"a":1}\ndata: {"b":2}\n\n', [{"a": 1}, {"b": 2}]),
        (b'retry: 9\nunknown\n: c\ndata:{"a":1}\n\n', [{"a": 1}]),
        (b'event: error\ndata: {"type":null}\n\n', [{"type": "error"}]),
        (b"data\n\ndata: [1]\n\ndata: 7\n\n", []),
        (b"event: x\n\n\n\n", []),
        (b'event: x\n\ndata: {"a":1}\n\n', [{"a": 1}]),
        (b'data: {"a":"\xff"}\n\ndata: {"b":2}\n\n', [{"b": 2}]),
        (b'data: {"a":1}', []),
    ],
)
def test_streams_of_other_writers_are_read(stream: bytes, packets: list[Json]) -> None:
    assert read(stream)[0] == packets
    assert read(*(stream[i : i + 1] for i in range(len(stream))))[0] == packets
    assert read(*(part for i in range(len(stream)) for part in (stream[i : i + 1], b"")))[0] == (
        packets
    )


def test_a_packet_whose_empty_line_was_cut_off_is_not_lost() -> None:
    _, reader = read(b'data: {"a":1}\n')
    assert reader.finish() == [{"a": 1}]
    assert reader.finish() == []
    _, reader = read(b'data: {"a":1}\ndata: {"b"')
    assert reader.finish() == [{"a": 1}]


def test_a_line_without_end_is_dropped_and_the_next_packet_is_read() -> None:
    reader = PacketReader(limit_bytes=1000)
    reader.feed(b'data: {"a":"')
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
        assert len(reader._line) <= 1000  # noqa: SLF001 - what it holds is the claim
    assert reader.feed(b'"}\n\n' + encode_packet({"type": "b"})) == [{"type": "b"}]
    assert reader.skipped == 1


def test_many_lines_of_one_event_are_bounded_together() -> None:
    packets, reader = read(
        b"data: " + b"[" * 90 + b"\n",
        *[b"data: " + b"]" * 90 + b"\n"] * 100,
        b'\ndata: {"a":1}\n\n',
        limit_bytes=1000,
    )
    assert (packets, reader.skipped) == ([{"a": 1}], 1)


def test_a_packet_of_the_limit_is_read() -> None:
    line = b'data: {"a":"' + b"x" * 980 + b'"}'
    assert len(read(line + b"\n\n", limit_bytes=len(line))[0]) == 1
    assert read(line + b"\n\n", limit_bytes=len(line) - 1)[0] == []


PACKETS = st.lists(
    st.dictionaries(st.text(max_size=3), st.text(max_size=9) | st.none() | st.integers(0, 9)),
    max_size=4,
)


@given(PACKETS, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 400), max_size=6))
def test_any_cut_of_a_stream_gives_the_same_packets(
    packets: list[Json], newline: str, cuts: list[int]
) -> None:
    stream = b"".join(map(encode_packet, packets)).replace(b"\n", newline.encode())
    positions = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[a:b] for a, b in pairwise(positions)]
    got, reader = read(*chunks)
    assert (got, reader.skipped) == (packets, 0)


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_make_the_reader_fail(chunks: list[bytes]) -> None:
    packets, reader = read(*chunks, limit_bytes=30)
    assert all(isinstance(packet, dict) for packet in packets + reader.finish())

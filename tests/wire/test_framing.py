"""Framing: lines and Content-Length, any cut of the bytes, and a defined outcome for every flaw."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from quarterdeck.wire.framing import (
    HEAD,
    Fault,
    FaultKind,
    Frame,
    FrameReader,
    Framing,
    Lines,
    Payload,
    frame,
)

MESSAGES = [
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}',
    b'{"jsonrpc":"2.0","method":"session/update","params":{"text":"na\xc3\xafve \xe2\x9c\x93"}}',
    b'{"a":"content-length: 7"}',
    b"{}",
]


def flat(frames: list[Frame]) -> list[Frame]:
    """Take blocks of lines apart: how many lines one read delivered is not part of the outcome."""
    result: list[Frame] = []
    for each in frames:
        if isinstance(each, Lines):
            result.extend(Payload(line.rstrip(b"\r")) for line in each.data.split(b"\n") if line)
        else:
            result.append(each)
    return result


def read(*pieces: bytes, reader: FrameReader | None = None) -> list[Frame]:
    reader = reader or FrameReader()
    frames = [each for piece in pieces for each in reader.feed(piece)]
    return flat([*frames, *reader.feed_eof()])


def payloads(*pieces: bytes) -> list[bytes]:
    return [each.data for each in read(*pieces) if isinstance(each, Payload)]


def faults(frames: list[Frame]) -> list[Fault]:
    return [each for each in frames if isinstance(each, Fault)]


STREAM_PARTS = st.sampled_from(
    [
        *(frame(message, Framing.LINES) for message in MESSAGES),
        *(frame(message, Framing.HEADERS) for message in MESSAGES),
        *(message + b"\r\n" for message in MESSAGES),
        b"content-type: application/json\r\nCONTENT-LENGTH:2\r\nX-A: b\r\n\r\n{}",
        b"\n",
        b"\r\n",
        b"  \t\n",
        b"Welcome back\n",
        b"Warning: low disk\n",
        b"\xef\xbb\xbf{}\n",
        b"Content-Length: abc\r\n\r\n{}\n",
        b"Content-Length: 3000\r\n\r\n" + b"x" * 3000,
        b'{"long":"' + b"y" * 3000 + b'"}\n',
        b"[1,2]\n42\nnull\n",
        b"\xff\xfe\n",
    ]
)


@given(st.lists(STREAM_PARTS, max_size=8), st.lists(st.integers(min_value=0, max_value=9000)))
def test_any_cut_of_the_bytes_gives_the_same_frames(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    whole = read(stream, reader=FrameReader(max_message=2000, max_header=200))
    assert read(*pieces, reader=FrameReader(max_message=2000, max_header=200)) == whole


def test_one_byte_at_a_time_gives_every_message() -> None:
    stream = b"".join(frame(each, way) for each in MESSAGES for way in Framing)
    expected = [each for each in MESSAGES for _ in Framing]
    assert payloads(*(stream[i : i + 1] for i in range(len(stream)))) == expected


def test_a_block_of_plain_lines_is_one_frame() -> None:
    block = b"".join(message + b"\n" for message in MESSAGES)
    assert FrameReader().feed(block) == [Lines(block, len(MESSAGES))]


@pytest.mark.parametrize("way", list(Framing))
def test_the_first_message_decides_the_framing_of_the_peer(way: Framing) -> None:
    reader = FrameReader()
    assert reader.peer_framing is None
    reader.feed(b"\r\n \nhello there\n")
    assert reader.peer_framing is None, "neither blank lines nor noise decide"
    reader.feed(frame(MESSAGES[0], way))
    assert reader.peer_framing is way


@pytest.mark.parametrize("first", list(Framing))
def test_a_later_message_in_the_other_framing_does_not_change_it(first: Framing) -> None:
    reader = FrameReader()
    for way in (first, *Framing):
        reader.feed(frame(b"{}", way))
    assert reader.peer_framing is first


def test_input_accepts_both_framings_for_ever() -> None:
    ways = [Framing.LINES, Framing.HEADERS, Framing.HEADERS, Framing.LINES, Framing.HEADERS]
    assert payloads(b"".join(frame(b'{"n":1}', way) for way in ways)) == [b'{"n":1}'] * 5


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\n",
        b"content-length:2\r\n",
        b"CONTENT-LENGTH :  2 \r\n",
        b"Content-Length: 2\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n",
        b"Content-Length: 2\r\nX-Other: 1\r\nContent-Type: text/plain\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n",
    ],
)
def test_headers_come_in_any_order_and_case(headers: bytes) -> None:
    assert payloads(headers + b"\r\n{}{}\n") == [b"{}", b"{}"]


def test_a_content_length_counts_bytes_not_characters() -> None:
    body = '{"t":"✓é"}'.encode()
    assert payloads(b"Content-Length: %d\r\n\r\n%b\n" % (len(body), body)) == [body]


def test_a_body_may_hold_newlines() -> None:
    assert payloads(frame(b'{\n "a":\n 1}', Framing.HEADERS)) == [b'{\n "a":\n 1}']


def test_an_empty_body_is_skipped() -> None:
    assert payloads(b"Content-Length: 0\r\n\r\n{}\n") == [b"{}"]


@pytest.mark.parametrize("length", [b"abc", b"-1", b"+5", b"", b"1.5", b"2\r\nContent-Length: 3"])
def test_a_bad_length_is_reported_and_reading_continues(length: bytes) -> None:
    frames = read(b"Content-Length: " + length + b"\r\n\r\n{}\n{}\n")
    assert [each.kind for each in faults(frames)] == [FaultKind.BAD_HEADER]
    assert frames[1:] == [Payload(b"{}"), Payload(b"{}")]


def test_after_a_bad_length_the_next_header_is_found_behind_the_body() -> None:
    good = frame(b'{"n":2}', Framing.HEADERS)
    frames = read(b'Content-Length: x\r\n\r\n{"n":1}' + good + good)
    assert frames[1:] == [Payload(b'{"n":1}'), Payload(b'{"n":2}'), Payload(b'{"n":2}')]


def test_text_that_looks_like_a_header_but_has_no_body_is_noise() -> None:
    frames = read(b"Warning: low disk\nINFO: started\n\n{}\n")
    assert frames == [Payload(b"Warning: low disk"), Payload(b"INFO: started"), Payload(b"{}")]


def test_a_header_block_beyond_its_limit_is_refused_and_forgotten() -> None:
    reader = FrameReader(max_header=100)
    frames = read(b"X-Long: " + b"a" * 200 + b"\r\n", b"\r\n{}\n", reader=reader)
    assert [each.kind for each in faults(frames)] == [FaultKind.BAD_HEADER]
    assert frames[1:] == [Payload(b"{}")]


def test_all_of_a_header_block_beyond_its_limit_is_skipped_with_its_body() -> None:
    lines = b"".join(b"X-%d: y\r\n" % n for n in range(2000))
    block = b"Content-Length: 7\r\n" + lines + b"\r\n" + b'{"n":1}'
    for way in Framing:
        reader = FrameReader(max_header=1000)
        frames = read(frame(b"{}", way), block, frame(b'{"n":2}', way), reader=reader)
        assert [each.kind for each in faults(frames)] == [FaultKind.BAD_HEADER]
        assert [each for each in frames if isinstance(each, Payload)] == [
            Payload(b"{}"),
            Payload(b'{"n":2}'),
        ]


def test_a_peer_that_speaks_in_lines_may_print_headers_without_being_cut_off() -> None:
    noise = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n"
    lines = b'{"n":1}\n{"n":2}\n'
    frames = read(b"{}\n", noise, lines)
    messages = [each for each in frames if isinstance(each, Payload) and each.data[:1] == b"{"]
    assert messages == [Payload(b"{}"), Payload(b'{"n":1}'), Payload(b'{"n":2}')]
    assert Payload(b"Content-Length: 5000") in frames, "nothing disappears without a report"


def test_a_length_that_no_message_can_have_does_not_swallow_the_lines_behind_it() -> None:
    frames = read(b"{}\n", b"Content-Length: 999999999999\r\n\r\n", b'{"n":1}\n')
    assert [each.kind for each in faults(frames)] == [FaultKind.BAD_HEADER]
    assert frames[-1] == Payload(b'{"n":1}')


def test_one_message_on_two_lines_is_none_however_it_arrives() -> None:
    stream = b'{"a":1}{"b":\n{}}\n{"c":1}\n'
    assert read(stream) == read(*(stream[i : i + 1] for i in range(len(stream))))


@pytest.mark.parametrize("way", list(Framing))
def test_a_message_at_the_limit_passes_and_one_byte_more_is_refused(way: Framing) -> None:
    limit = 1000
    fits = b'{"a":"' + b"x" * (limit - 8) + b'"}'
    stream = frame(fits, way) + frame(fits + b" ", way) + frame(fits[:-3] + b'yy"}', way)
    frames = read(stream + frame(b"{}", way), reader=FrameReader(max_message=limit))
    assert frames[0] == Payload(fits)
    assert [each.kind for each in faults(frames)] == [FaultKind.TOO_LONG] * 2
    assert frames[-1] == Payload(b"{}")


def test_a_refused_message_shows_its_head_and_is_not_kept() -> None:
    reader = FrameReader(max_message=10_000)
    head = b'{"jsonrpc":"2.0","id":7,"result":"'
    frames = list(reader.feed(head + b"x" * 10_000))
    assert [each.head[: len(head)] for each in faults(frames)] == [head]
    for _ in range(1000):
        assert reader.feed(b"y" * 10_000) == []
    assert not reader._parts, "a refused line is skipped, not stored"  # noqa: SLF001
    assert flat(reader.feed(b'"}\n{}\n')) == [Payload(b"{}")]


def test_a_refused_body_is_reported_as_soon_as_its_head_is_there() -> None:
    reader = FrameReader(max_message=1000)
    assert reader.feed(b"Content-Length: 5000\r\n\r\n" + b"z" * (HEAD - 1)) == []
    (fault,) = faults(reader.feed(b"z"))
    assert fault.kind is FaultKind.TOO_LONG
    assert fault.head == b"z" * HEAD


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"\xef\xbb\xbf{}\n", [Payload(b"{}")]),
        (b"{}\r\n\r\n{}\r\n", [Payload(b"{}"), Payload(b"{}")]),
        (b"\n\n \t \n{}\n\n", [Payload(b"{}")]),
        (b"  {}  \n", [Payload(b"{}")]),
        (b'{"a":"\xff"}\n', [Payload(b'{"a":"\xff"}')]),
        (b"{}\n{", [Payload(b"{}"), Payload(b"{")]),
        (b"", []),
    ],
    ids=["bom", "crlf", "blank", "padded", "invalid utf-8", "no last newline", "nothing"],
)
def test_small_flaws_of_lines_have_a_defined_outcome(stream: bytes, expected: list[Frame]) -> None:
    assert read(stream) == expected


def test_a_body_cut_by_the_end_of_the_stream_is_reported() -> None:
    (fault,) = read(b'Content-Length: 20\r\n\r\n{"a":')
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.CUT_OFF
    assert "15 bytes" in fault.reason


def test_headers_cut_by_the_end_of_the_stream_are_noise() -> None:
    assert read(b"Content-Length: 20\r\n") == [Payload(b"Content-Length: 20")]


def test_a_line_of_64_mebibytes_passes_in_time_linear_to_its_length() -> None:
    reader = FrameReader()
    line = b'{"a":"' + b"x" * (64 * 1024 * 1024 - 8) + b'"}'
    pieces = [line[start : start + 65536] for start in range(0, len(line), 65536)]
    assert read(*pieces, b"\n", reader=reader) == [Payload(line)]


@given(st.binary(max_size=400))
def test_no_bytes_whatever_raise(data: bytes) -> None:
    read(data, b"\n", reader=FrameReader(max_message=50, max_header=20))

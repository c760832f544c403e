"""Awkward peers, part 1: what arrives is no message, or an answer to no request.

| no | the peer sends | defined outcome |
| --- | --- | --- |
| 1 | a line of text | reported as noise; continues |
| 2 | blank lines | nothing; continues |
| 3 | lines that end with CRLF | read like any other |
| 4 | bytes that are not UTF-8 | reported; continues |
| 5 | 200,000 nested brackets | reported as malformed; continues |
| 6 to 8 | `42`, `"x"`, `true` alone on a line | reported as noise; continues |
| 9 | an array (a batch) | refused as malformed; continues |
| 10 | `null` alone on a line | reported as noise, not taken for the end |
| 11 to 14 | an `error` that is a string, a number, an array, an empty object | its call fails so |
| 15, 16 | an answer with the id `[]`, `{}` | reported; calls go on waiting |
| 17, 18 | an answer with an id we never used, with the id `null` | reported; continues |
| 19 | the id `"1"` for our `1` | taken and reported |
| 20 | the id `true` for our `1` | refused and reported |
| 21 | the id `1.0` for our `1` | taken and reported |
| 22 | two answers to one call | the first is taken, the second reported |
| 23 | an answer of 64 MiB | delivered (`test_awkward_memory.py`) |
| 24 | an answer beyond the limit | its call fails, the others do not |
| 25 | a request beyond the limit | answered with an error under its id |
| 26 | an answer that is broken inside | its call fails, the others do not |
| 27 | headers (`Content-Length`) instead of lines | understood, and answered the same way |
| 28 | now lines, now headers | both understood; answered as the first was |
| 29 | half a message, then the end | reported; the waiting calls fail |
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AnswerInvalid, CallTimedOut, ConnectionClosed, RpcError
from quarterdeck.wire import ConnectionOptions, ReportKind
from tests.wire.awkward.helpers import PATIENCE, awkward_peer, line

pytestmark = pytest.mark.anyio

NOISE, MALFORMED = ReportKind.NOISE, ReportKind.MALFORMED
UNKNOWN, ODD = ReportKind.UNKNOWN_ANSWER, ReportKind.ODD_ANSWER


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("Welcome back, you have new mail\n", [NOISE]),
        ("Warning: low disk\nDone\n", [NOISE, NOISE]),
        ("\n\n  \t \n\r\n", []),
        (line(method="crlf").replace("\n", "\r\n") + "\r\n", []),
        ("42\n", [NOISE]),
        ('"x"\n', [NOISE]),
        ("true\n", [NOISE]),
        ("null\n", [NOISE]),
        ("[]\n", [MALFORMED]),
        ("[" + line(method="in a batch").strip() + "]\n", [MALFORMED]),
        ("[" * 200_000 + "\n", [MALFORMED]),
        ("{}\n", [MALFORMED]),
        ('{"jsonrpc":"2.0"\n', [MALFORMED]),
        (line(id=7), [MALFORMED]),
        ('{"jsonrpc":"1.0","method":"old"}\n', [MALFORMED]),
        ('{"jsonrpc":"2.0","method":["m"]}\n', [MALFORMED]),
        (line(method="positions", params=[1, 2]), [MALFORMED]),
    ],
    ids=[
        *("text", "text like a header", "blank", "crlf", "42", '"x"', "true", "null", "[]"),
        *("batch", "nested brackets", "{}", "cut off", "neither", "version 1", "odd method"),
        "positions",
    ],
)
async def test_what_is_no_message_is_reported_and_the_connection_continues(
    text: str, reported: list[ReportKind]
) -> None:
    # The text arrives as its own argument: 200,000 brackets would be too long for a command line.
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", text])
            assert await peer.connection.call("echo", {"still": "there"}) == {"still": "there"}
    assert peer.kinds == reported
    assert [method for method, _ in peer.notifications] == (["crlf"] if "crlf" in text else [])


@pytest.mark.parametrize("digits", ["fffe0a", "7b226122 3a22ff227d0a", "00000a", "efbbbf0a"])
async def test_bytes_that_are_no_text_are_reported_or_skipped(digits: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["hex", digits])
            assert await peer.connection.call("echo", {"a": 1}) == {"a": 1}
    assert len(peer.reports) == (0 if digits == "efbbbf0a" else 1)


async def test_text_that_is_not_utf_8_fails_only_the_call_it_answers() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            head = '{"jsonrpc":"2.0","id":$ID,"result":"'
            with pytest.raises(AnswerInvalid):
                await peer.do(["unanswered"], ["write", head], ["hex", "ff"], ["write", '"}\n'])
            assert await peer.connection.call("echo") == {}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ('"out of tokens"', -32603, "out of tokens"),
        ("7", -32603, "7"),
        ('[1,"x"]', -32603, '[1,"x"]'),
        ("{}", -32603, "an error without a message"),
        ('{"code":"E42","message":null}', -32603, "an error without a message"),
        ('{"code":429,"message":"slow down","data":{"seconds":5}}', 429, "slow down"),
        ('{"code":1,"message":"\\ud83d"}', 1, "\ud83d"),
        ("true", -32603, "true"),
    ],
)
async def test_an_error_of_any_shape_fails_its_call_with_what_it_says(
    error: str, code: int, message: str
) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(RpcError) as caught:
                await peer.do(
                    ["unanswered"], ["write", f'{{"jsonrpc":"2.0","id":$ID,"error":{error}}}\n']
                )
            assert await peer.connection.call("echo") == {}
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    ("answer_id", "reported"),
    [
        ("[]", MALFORMED),
        ("{}", MALFORMED),
        ("[0]", MALFORMED),
        ("true", MALFORMED),
        ("null", UNKNOWN),
        ("4711", UNKNOWN),
        ('"4711"', UNKNOWN),
        ('"one"', UNKNOWN),
        ("-1", UNKNOWN),
        ("1e999", UNKNOWN),
        ("9" * 5000, UNKNOWN),
    ],
    ids=lambda value: value[:10] if isinstance(value, str) else None,
)
async def test_an_answer_to_nothing_is_reported_and_disturbs_no_call(
    answer_id: str, reported: ReportKind
) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            stray = f'{{"jsonrpc":"2.0","id":{answer_id},"result":"stray"}}\n'
            assert await peer.do(["write", stray]) is None
    assert peer.kinds == [reported]


@pytest.mark.parametrize("spelled", ['"$ID"', "$ID.0", "$IDe0"])
async def test_an_answer_whose_id_is_spelled_otherwise_is_taken_and_reported(spelled: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            answer = f'{{"jsonrpc":"2.0","id":{spelled},"result":"mine"}}\n'
            assert await peer.do(["unanswered"], ["write", answer]) == "mine"
    assert peer.kinds == [ODD]


async def test_the_second_answer_to_a_call_is_reported() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            assert await peer.do(["answer", "first"], ["write", line(id=0, result="second")])
            assert await peer.connection.call("echo") == {}
    assert peer.kinds == [UNKNOWN]


async def test_an_answer_after_the_time_was_up_is_reported_as_late() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(CallTimedOut):
                await peer.connection.call("never", timeout_seconds=0.01)
            await peer.do(["write", line(id=0, result="late")])
    assert [report.reason for report in peer.reports] == ["an answer that came too late"]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('{"jsonrpc":"2.0","id":$ID,"result":"', '"}\n'),
        ('{"id":$ID,"jsonrpc":"2.0","result":"', '"}\n'),
        ('{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"message":"', '"}}\n'),
        ('{"jsonrpc":"2.0","result":"', '","id":$ID}\n'),
        ('{"error":{"code":1,"message":"', '"},"jsonrpc":"2.0","id":$ID}\n'),
    ],
    ids=["id first", "keys sorted", "error", "id last", "error, id last"],
)
async def test_an_answer_beyond_the_limit_fails_its_call_and_no_other(start: str, end: str) -> None:
    async with awkward_peer(options=ConnectionOptions(max_message=100_000)) as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(AnswerInvalid, match="100000 bytes"):
                await peer.do(["unanswered"], ["write", start], ["repeat", 300_000, "x", end])
            assert await peer.connection.call("echo") == {}
    assert peer.kinds == [ReportKind.REFUSED]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('{"jsonrpc":"2.0","id":"r1","method":"m","params":{"text":"', '"}}\n'),
        ('{"jsonrpc":"2.0","method":"m","id":"r1","params":{"text":"', '"}}\n'),
        ('{"jsonrpc":"2.0","method":"m","params":{"text":"', '"},"id":"r1"}\n'),
    ],
    ids=["id first", "method first", "id last"],
)
async def test_a_request_beyond_the_limit_is_answered_with_an_error(start: str, end: str) -> None:
    options = ConnectionOptions(max_message=100_000, answers_garbage=False)
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", start], ["repeat", 300_000, "x", end])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == ("r1", -32600)


@pytest.mark.parametrize(
    "broken",
    ['{"text":"\\q"}', '"tab\there"', "{Welcome back!", "[" * 200_000, "1} {", "nul"],
    ids=["bad escape", "raw tab", "text in between", "nested", "two in one line", "no value"],
)
async def test_an_answer_that_is_broken_inside_fails_its_call(broken: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            answer = f'{{"jsonrpc":"2.0","id":$ID,"result":{broken}}}\n'
            with pytest.raises(AnswerInvalid):
                await peer.do(["unanswered"], ["write", answer])
            assert await peer.connection.call("echo") == {}


def with_header(**message: Any) -> str:
    body = json.dumps({"jsonrpc": "2.0", **message})
    return f"Content-Length: {len(body)}\r\n\r\n{body}"


async def test_a_peer_that_speaks_with_headers_is_answered_with_headers() -> None:
    steps = [["write", with_header(id="h", method="ask", params={})], ["mirror", "seen"]]
    async with awkward_peer(*steps) as peer:
        with anyio.fail_after(PATIENCE):
            while not peer.notifications:
                await anyio.lowlevel.checkpoint()
    ((_, mirrored),) = peer.notifications
    body = '{"jsonrpc":"2.0","id":"h","result":{"seen":{}}}'
    assert mirrored["text"] == f"Content-Length: {len(body)}\r\n\r\n{body}"


async def test_a_peer_may_change_between_lines_and_headers_at_any_time() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            mixed = [line(method="m", params={"n": 0}), with_header(method="m", params={"n": 1})]
            mixed += ["\n", line(method="m", params={"n": 2}), with_header(id=9, method="ask")]
            await peer.do(["write", "".join(mixed)])
            (answer,) = await peer.heard()
    assert peer.notifications == [("m", {"n": n}) for n in range(3)]
    assert answer["id"] == 9
    assert not peer.reports


@pytest.mark.parametrize("half", ['{"jsonrpc":"2.0","id":0,"resu', "Content-Length: 99\r\n\r\n{"])
async def test_half_a_message_at_the_end_is_reported_and_the_calls_fail(half: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(ConnectionClosed, match="exited with status 0"):
                await peer.do(["write", half], ["exit", 0])
            await peer.connection.wait_closed()
    assert len(peer.reports) == 1

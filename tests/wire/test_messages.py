"""Messages: the whole error table, ids of any legal type, and nothing that raises."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import RpcError
from quarterdeck.jsontext import NESTED_TOO_DEEPLY
from quarterdeck.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NULL_ID,
    PARSE_ERROR,
    Failure,
    Malformed,
    MessageWriter,
    Noise,
    Notification,
    Request,
    Result,
    owner,
    parse,
    read_error,
)


def test_the_error_table_is_that_of_json_rpc() -> None:
    codes = (PARSE_ERROR, INVALID_REQUEST, -32601, INVALID_PARAMS, INTERNAL_ERROR)
    assert codes == (-32700, -32600, -32601, -32602, -32603)


@pytest.mark.parametrize(
    "request_id",
    [
        *(b"1", b"-7", b"0", b"1.0", b"1.5", b"1e3", b"123456789012345678901234567890"),
        *(b'"1"', b'"a-b"', b'""', b'"\\u00e9\\n"', '"é"'.encode(), b"null"),
    ],
)
def test_ids_of_any_legal_type_are_echoed_unchanged(request_id: bytes) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":' + request_id + b',"method":"m"}')
    assert message == Request(request_id, "m", b"{}")
    assert b'"id":' + request_id + b"," in MessageWriter().result(request_id, {})
    assert b'"id":' + request_id + b"," in MessageWriter().failure(request_id, RpcError(-1, "x"))


@pytest.mark.parametrize("request_id", ["[]", "{}", "true", "false", "[1]"])
def test_ids_of_no_legal_type_are_refused(request_id: str) -> None:
    message = parse(f'{{"jsonrpc":"2.0","id":{request_id},"method":"m"}}'.encode())
    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (INVALID_REQUEST, b"null")


def test_an_id_that_is_not_utf_8_is_not_echoed() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":"\xff","method":"m"}')
    assert isinstance(message, Malformed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"jsonrpc":"2.0","method":"m","params":{"a":1}}', Notification("m", b'{"a":1}')),
        ('{"jsonrpc":"2.0","method":"m"}', Notification("m", b"{}")),
        ('{"jsonrpc":"2.0","method":"m","params":null}', Notification("m", b"{}")),
        ('{"method":"m","id":1}', Request(b"1", "m", b"{}")),
        ('{"jsonrpc":"2.0","id":1,"result":null}', Result(b"1", b"null")),
        ('{"jsonrpc":"2.0","id":1,"result":{},"error":null}', Result(b"1", b"{}")),
        ('{"jsonrpc":"1.0","id":1,"result":{}}', Result(b"1", b"{}")),
        ('{"id":1,"error":{"code":1},"result":2}', Failure(b"1", b'{"code":1}')),
        ('{"id":1,"error":"no"}', Failure(b"1", b'"no"')),
        ('{"id":null,"error":{}}', Failure(b"null", b"{}")),
        ("42", Noise(INVALID_REQUEST)),
        ('"x"', Noise(INVALID_REQUEST)),
        ("true", Noise(INVALID_REQUEST)),
        ("null", Noise(INVALID_REQUEST)),
        ("Welcome back", Noise(PARSE_ERROR)),
        ("{'a': 1}", Malformed(PARSE_ERROR, "")),
        ('{"a":1', Malformed(PARSE_ERROR, "")),
        ('{"id":1,"method":"m"} x', Malformed(PARSE_ERROR, "")),
        ("[]", Malformed(INVALID_REQUEST, "")),
        ('[{"jsonrpc":"2.0","id":1,"method":"m"}]', Malformed(INVALID_REQUEST, "")),
        ("{}", Malformed(INVALID_REQUEST, "")),
        ('{"jsonrpc":"2.0","id":5}', Malformed(INVALID_REQUEST, "", b"5", is_answer=True)),
        ('{"id":[],"result":1}', Malformed(INVALID_REQUEST, "", is_answer=True)),
        ('{"id":3,"method":7}', Malformed(INVALID_REQUEST, "", b"3")),
        ('{"jsonrpc":"1.0","id":3,"method":"m"}', Malformed(INVALID_REQUEST, "", b"3")),
        ('{"jsonrpc":2.0,"id":3,"method":"m"}', Malformed(INVALID_REQUEST, "", b"3")),
        ('{"id":3,"method":"m","params":[1]}', Malformed(INVALID_PARAMS, "", b"3")),
        ('{"id":3,"method":"m","params":"x"}', Malformed(INVALID_PARAMS, "", b"3")),
    ],
)
def test_what_a_payload_is_read_as(text: str, expected: Any) -> None:
    message = parse(text.encode())
    if isinstance(expected, Malformed):
        assert isinstance(message, Malformed)
        assert message.reason
        facts = (message.code, message.id, message.is_answer)
        assert facts == (expected.code, expected.id, expected.is_answer)
    else:
        assert message == expected


def test_a_batch_is_rejected_with_what_to_do_instead() -> None:
    message = parse(b'[{"jsonrpc":"2.0","id":1,"method":"m"}]')
    assert isinstance(message, Malformed)
    assert message.reason == "batches are not supported; send one message at a time"


def test_lone_surrogates_and_nan_are_read() -> None:
    message = parse(b'{"id":1,"method":"m","params":{"t":"\\ud83d","n":NaN}}')
    assert isinstance(message, Request)
    assert json.loads(message.params) == {"t": "\ud83d", "n": None}


def test_deep_nesting_is_refused_not_fatal() -> None:
    message = parse(b'{"method":"m","params":' + b"[" * 200_000)
    assert isinstance(message, Malformed)
    assert message.code == PARSE_ERROR


@pytest.mark.parametrize(
    ("text", "request_id", "is_answer"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":{"d":%b}}', b"5", False),
        (b'{"jsonrpc":"2.0","method":"m","params":{"d":%b},"id":"five"}', b'"five"', False),
        (b'{"jsonrpc":"2.0","result":%b,"id":5}', b"5", True),
        (b'{"jsonrpc":"2.0","method":"m","params":{"d":%b,"id":5}}', NULL_ID, False),
    ],
    ids=["request", "id at the end", "answer", "notification"],
)
def test_a_message_that_is_nested_too_deeply_is_answered_or_fails_its_call(
    text: bytes, request_id: bytes, is_answer: bool
) -> None:
    message = parse(text % (b"[" * 5000 + b"]" * 5000))
    assert message == Malformed(PARSE_ERROR, NESTED_TOO_DEEPLY, request_id, is_answer=is_answer)


@pytest.mark.parametrize("depth", [400, 700, 990, 5000])
def test_deep_nesting_beside_everything_else_that_is_odd_is_not_fatal(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    text = b'{"method":"m","x":NaN,"params":{"s":"\\ud800","i":1e999,"d":%b}}' % nested
    assert isinstance(parse(text), Notification | Malformed)


def test_an_id_without_an_end_costs_no_more_than_its_size() -> None:
    tracemalloc.start()
    try:
        message = parse(b'{"id":"' + b"a" * 4_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(message, Malformed)
    assert peak < 40_000_000


def test_an_id_keeps_its_spelling_beside_what_is_read_slowly() -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1.10,"method":"m","params":{"n":NaN}}')
    assert isinstance(message, Request)
    assert message.id == b"1.10"
    answer = MessageWriter().result(b"1e2", {"t": "\ud83d"})
    assert answer.startswith(b'{"jsonrpc":"2.0","id":1e2,"result":')
    assert json.loads(answer)["result"] == {"t": "\ud83d"}


@given(st.binary())
def test_no_payload_raises(payload: bytes) -> None:
    parse(payload)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELD = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])


@given(st.dictionaries(FIELD, ANY_JSON))
def test_no_object_raises(fields: dict[str, Any]) -> None:
    parse(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("error", "code", "message", "data"),
    [
        (b'{"code":-32602,"message":"Invalid params","data":"x"}', -32602, "Invalid params", "x"),
        (b'"plain text"', INTERNAL_ERROR, "plain text", None),
        (b"7", INTERNAL_ERROR, "7", None),
        (b"{}", INTERNAL_ERROR, "an error without a message", None),
        (b'{"code":"x","message":5}', INTERNAL_ERROR, "an error without a message", None),
        (b'{"code":true,"message":"m"}', INTERNAL_ERROR, "m", None),
        (b'{"code":1,"message":"\\ud83d"}', 1, "\ud83d", None),
    ],
)
def test_an_error_of_any_shape_is_read(error: bytes, code: int, message: str, data: Any) -> None:
    found = read_error(error)
    assert (found.code, found.message, found.data) == (code, message, data)


def test_our_messages_are_json_rpc_on_one_line() -> None:
    writer = MessageWriter()
    written = [
        writer.request(1, "initialize", {"protocolVersion": 1}),
        writer.notification("session/update", {"text": "two\nlines\u2028"}),
        writer.result(b'"a"', None),
        writer.failure(b"1", RpcError(-32602, "Invalid params", "cwd is required")),
    ]
    assert [json.loads(each) for each in written] == [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "method": "session/update", "params": {"text": "two\nlines\u2028"}},
        {"jsonrpc": "2.0", "id": "a", "result": None},
        {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32602, "message": "Invalid params", "data": "cwd is required"},
        },
    ]
    assert not any(b"\n" in each for each in written)


def test_a_lone_surrogate_of_ours_is_written_as_an_escape() -> None:
    assert json.loads(MessageWriter().result(b"1", {"t": "\ud83d"}))["result"] == {"t": "\ud83d"}


@pytest.mark.parametrize(
    ("head", "found", "is_answer"),
    [
        (b'{"jsonrpc":"2.0","id":12,"result":{"a', b"12", True),
        (b'{ "id" : "x\\"y" , "error" : {', b'"x\\"y"', True),
        (b'{"jsonrpc":"2.0","id":"q","method":"fs/write', b'"q"', False),
        (b'{"jsonrpc":"2.0","method":"m","id":4,"params"', b"4", False),
        (b'{"jsonrpc":"2.0","method":"session/update","params":{"id":4', b"null", False),
        (b'{"params":{"id":1', b"null", False),
        (b"garbage", b"null", False),
    ],
)
def test_the_head_of_a_rejected_message_shows_its_id(
    head: bytes, found: bytes, is_answer: bool
) -> None:
    message = owner(head)
    assert (message.id, message.is_answer) == (found, is_answer)

"""Which stream a message is sent on, and in which order."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from quarterdeck.agent.http.outgoing import CONNECTION
from quarterdeck.agent.http.streamable import (
    MOST_ROUTES,
    RequestConflict,
    StreamableTransport,
    session_of,
)
from quarterdeck.http.keepalive import LiveConnection
from quarterdeck.http.sse import ReplayLimits
from quarterdeck.wire import Request, parse

S = b"s"


class Desk:
    """A transport with the messages that each of its streams was given."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.transport = StreamableTransport(ReplayLimits(), self.ended.append)

    def send(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.transport.send_now(line + b"\n") == len(line) + 1

    def request(self, request_id: Any, method: str, stream: bytes = CONNECTION) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method}).encode()
        message = parse(body)
        assert isinstance(message, Request)
        self.transport.feed_request(message, stream, body)

    def taken(self, key: bytes) -> list[Any]:
        stream = self.transport.streams.get(key)
        lines = [message.rpartition(b"\n")[2] for _, message in stream.take()]
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("method", "asked_on", "answered_on"),
    [
        ("session/new", CONNECTION, CONNECTION),
        ("session/list", CONNECTION, CONNECTION),
        ("session/load", S, CONNECTION),
        ("session/resume", S, S),
        ("session/fork", S, S),
        ("session/prompt", S, S),
        ("session/close", S, S),
        ("_anything/else", S, S),
    ],
)
async def test_an_answer_is_on_the_stream_of_its_request(
    method: str, asked_on: bytes, answered_on: bytes
) -> None:
    desk = Desk()
    desk.request("a", method, asked_on)
    desk.send(id="a", result={})
    assert [each["id"] for each in desk.taken(answered_on)] == ["a"]


async def test_what_names_a_session_is_on_its_stream_and_all_else_on_that_of_the_connection() -> (
    None
):
    desk = Desk()
    desk.send(method="session/update", params={"sessionId": "s", "update": {}})
    desk.send(method="_auth/status_update", params={})
    desk.send(id=7, method="session/request_permission", params={"sessionId": "s"})
    desk.send(id=8, method="elicitation/create", params={"requestId": 1})
    desk.send(method="$/cancel_request", params={"requestId": 7})
    desk.send(method="$/cancel_request", params={"requestId": 8})
    desk.send(id=None, error={"code": -32700, "message": "Parse error"})
    on_session = [each["method"] for each in desk.taken(S)]
    assert on_session == ["session/update", "session/request_permission", "$/cancel_request"]
    on_connection = [each.get("method") for each in desk.taken(CONNECTION)]
    assert on_connection == ["_auth/status_update", "elicitation/create", "$/cancel_request", None]
    assert desk.transport.session_of_request(b"7") == S
    assert desk.transport.session_of_request(b"8") == CONNECTION


async def test_the_answer_to_load_waits_until_the_replay_was_written() -> None:
    desk = Desk()
    stream = desk.transport.streams.get(S)
    stream.reader = LiveConnection()
    desk.request(1, "session/load", S)
    for number in range(3):
        desk.send(method="session/update", params={"sessionId": "s", "update": {"n": number}})
    desk.send(id=1, result={})
    assert desk.taken(CONNECTION) == []
    taken = stream.take()
    desk.transport.reader_wrote()
    assert desk.taken(CONNECTION) == []
    stream.written = taken[-1][0]
    desk.transport.reader_wrote()
    assert [each["id"] for each in desk.taken(CONNECTION)] == [1]


@pytest.mark.parametrize("cause", ["the reader leaves", "the connection ends"])
async def test_the_answer_to_load_does_not_wait_for_ever(cause: str) -> None:
    desk = Desk()
    stream = desk.transport.streams.get(S)
    stream.reader = LiveConnection()
    desk.request(1, "session/load", S)
    desk.send(method="session/update", params={"sessionId": "s", "update": {}})
    desk.send(id=1, result={})
    if cause == "the reader leaves":
        stream.reader = None
        desk.transport.reader_wrote()
    else:
        await desk.transport.aclose()
    assert [each["id"] for each in desk.taken(CONNECTION)] == [1]


async def test_an_id_can_be_used_again_when_it_was_answered() -> None:
    desk = Desk()
    desk.request(1, "session/list")
    desk.request(1, "session/list")  # the same bytes: sent again, not run again
    with pytest.raises(RequestConflict):
        desk.request(1, "session/new")
    desk.send(id=1, result={})
    desk.request(1, "session/new")


async def test_requests_that_are_never_answered_fill_no_memory() -> None:
    desk = Desk()
    for number in range(MOST_ROUTES + 10):
        desk.request(number, "session/list")
        desk.send(id=number, method="x", params={"sessionId": "s"})
    assert desk.transport.session_of_request(b"0") is None
    assert desk.transport.session_of_request(str(MOST_ROUTES).encode()) == S


@pytest.mark.parametrize(
    ("params", "session"),
    [
        (b'{"sessionId":"s"}', "s"),
        (b'{"sessionId":"\\ud800"}', "\ud800"),
        (b'{"sessionId":7}', None),
        (b'{"sessionId":null}', None),
        (b"{}", None),
        (b'{"a":"\\ud800"}', None),
        (b'{"a":NaN,"sessionId":"s"}', "s"),
    ],
)
def test_the_session_of_params_is_found_whatever_else_is_in_them(
    params: bytes, session: str | None
) -> None:
    assert session_of(params) == session


async def test_a_sender_waits_for_a_reader_and_then_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quarterdeck.agent.http.streamable.PATIENCE_SECONDS", 0.01)
    ended: list[str] = []
    transport = StreamableTransport(ReplayLimits(messages=10, size=1 << 20), ended.append)
    update = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}\n'
    with anyio.fail_after(5):
        await transport.send(update * 40)
    assert transport.streams.get(S).is_lost
    assert ended == []
    with anyio.fail_after(5):
        await transport.send(b'{"jsonrpc":"2.0","method":"x"}\n' * 40)
    assert len(ended) >= 1

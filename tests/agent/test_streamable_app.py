"""ACP over Streamable HTTP: real sockets, a client made of bare ones."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from quarterdeck.agent import AgentTurn, HttpOptions, SessionStore
from quarterdeck.agent.http import streamable
from quarterdeck.http.sse import ReplayLimits
from tests.agent.http_client import JSON, TOKEN, Bytes, serving
from tests.agent.official import check_all
from tests.agent.streamable_client import ACP, INITIALIZE, StreamableHand
from tests.agent.support import PATIENCE, Json

TOOL = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}
PIECES = 300


async def echo(turn: AgentTurn) -> AsyncIterator[str]:
    yield turn.text


async def counting(turn: AgentTurn) -> AsyncIterator[str]:
    for number in range(int(turn.text)):
        yield str(number)


async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
    yield str(await turn.ask_permission(TOOL))


def text_of(message: Json) -> str:
    text: str = message["params"]["update"]["content"]["text"]
    return text


@asynccontextmanager
async def connected(
    agent: Any, options: HttpOptions | None = None, **more: Any
) -> AsyncIterator[StreamableHand]:
    async with serving(agent, options, **more) as hand:
        yield await StreamableHand(hand).initialized()


@pytest.mark.parametrize("has_header", [True, False])
async def test_a_session_over_two_streams(has_header: bool) -> None:
    """The official Python SDK leaves the header out of answers."""
    async with connected(requesting) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as stream:
            assert (await client.prompt(2, session, "hello")).status == 202
            asked = (await stream.event()).message
            answer = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": answer}
            assert (await client.post(result, "another")).status == 400
            assert (await client.post(result, session if has_header else None)).status == 202
            update = (await stream.event()).message
            done = (await stream.event()).message
        assert "allow_once" in text_of(update)
        assert done == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}
        check_all([asked, update, done], {2: "session/prompt"})
        gone = await client.delete()
        assert (gone.status, gone.body) == (202, b"")
        assert await own.event_or_end() is None
        again = await client.delete()
        assert again.status == 404
        assert "its client closed it" in again.text


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_a_session_opened_without_the_header_is_named_in_the_answer(
    method: str, tmp_path: Path
) -> None:
    """The official Python SDK then opens the session's stream, as it does after `session/new`."""
    async with connected(counting, store=SessionStore(tmp_path)) as client, client.stream() as own:
        session = await client.new(own)
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        request = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        assert (await client.post(request)).status == 202
        answer = (await own.event()).message
        assert (answer["id"], answer["result"]["sessionId"]) == (2, session)
        assert (await client.post({**request, "id": 3}, session)).status == 202
        async with client.stream(session) as stream:
            reader = own if method == "session/load" else stream
            assert "sessionId" not in (await reader.answer(3))["result"]


async def test_each_event_has_an_id_and_each_stream_ids_of_its_own() -> None:
    async with connected(counting) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as stream:
            await client.prompt(2, session, "3")
            ids = [(await stream.event()).id for _ in range(4)]
        assert None not in ids
        assert len(set(ids)) == 4
        assert own.last_id
        assert own.last_id not in ids
        refused = await client.get(session, **{"Last-Event-ID": own.last_id})
        assert refused.status == 400
        assert "not of this stream" in refused.text


@pytest.mark.parametrize("step", [1, 3, 7])
async def test_a_stream_that_is_cut_at_a_hundred_points_loses_and_doubles_nothing(
    step: int,
) -> None:
    texts: list[str] = []
    cuts, last_id = 0, ""
    async with connected(counting) as client, client.stream() as own:
        session = await client.new(own)
        await client.prompt(2, session, str(PIECES))
        while len(texts) < PIECES:
            async with client.stream(session, last_id) as stream:
                for _ in range(step):
                    message = (await stream.event()).message
                    if "result" in message:
                        break
                    texts.append(text_of(message))
                last_id = stream.last_id
            cuts += 1
    assert texts == [str(number) for number in range(PIECES)]
    assert cuts >= PIECES // step


async def test_a_cut_in_the_middle_of_an_event_repeats_that_event() -> None:
    async with connected(counting) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as first:
            await client.prompt(2, session, "5")
            await first.event()
            kept = first.last_id  # more was read from the socket, but not as an event
        async with client.stream(session, kept) as second:
            texts = [text_of((await second.event()).message) for _ in range(4)]
    assert texts == ["1", "2", "3", "4"]


async def test_a_new_reader_replaces_the_one_before() -> None:
    async with connected(echo) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as first, client.stream(session) as second:
            assert await first.event_or_end() is None
            assert "replaced by another stream" in first.comments
            await client.prompt(2, session, "x")
            assert text_of((await second.event()).message) == "x"


SMALL = HttpOptions(token=TOKEN, limits=ReplayLimits(messages=20, size=1 << 20))


async def test_messages_that_were_dropped_are_reported_once_and_the_session_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable, "PATIENCE_SECONDS", 0.01)
    finished = anyio.Event()

    async def flood(turn: AgentTurn) -> AsyncIterator[str]:
        for number in range(int(turn.text)):
            yield str(number)
        finished.set()

    store = SessionStore(tmp_path)
    async with connected(flood, SMALL, store=store) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as stream:
            await client.prompt(2, session, "1")
            await stream.event()
            last_id = stream.last_id
            await stream.event()
        finished = anyio.Event()
        await client.prompt(3, session, "100")
        with anyio.fail_after(PATIENCE):
            await finished.wait()
        await client.ask(4, "session/list")
        await own.answer(4)  # it was sent after all of them
        refused = await client.get(session, **{"Last-Event-ID": last_id})
        assert refused.status == 409
        assert "load the session again" in refused.text
        async with client.stream(session) as stream:
            await client.ask(9, "session/load", session, cwd="/", mcpServers=[])
            texts: list[str] = []
            while len(texts) < 103:
                message = (await stream.event()).message
                if "method" in message:
                    texts.append(text_of(message))
            assert texts == ["1", "0", "100", *(str(number) for number in range(100))]
            assert (await own.answer(9))["result"] is not None


async def test_a_connection_that_does_not_read_its_own_stream_ends_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamable, "PATIENCE_SECONDS", 0.01)
    async with connected(echo, SMALL, store=SessionStore(tmp_path)) as client:
        response = None
        for number in range(1, 60):
            response = await client.ask(number, "session/list")
            if response.status == 404:
                break
        assert response is not None
        assert response.status == 404
        assert "did not read" in response.text
        assert "call initialize again" in response.text


async def test_a_connection_that_is_not_used_ends() -> None:
    options = HttpOptions(token=TOKEN, idle_seconds=0.01)
    async with connected(echo, options) as client:
        with anyio.fail_after(PATIENCE):
            while (response := await client.get()).status == 200:
                pass
        assert response.status == 404
        assert "not used for" in response.text


async def test_there_is_room_for_so_many_connections_only() -> None:
    async with connected(echo, HttpOptions(token=TOKEN, max_clients=2)) as client:
        other = StreamableHand(client.hand)
        second = await other.initialized()
        full = await other.post(INITIALIZE)
        assert full.status == 503
        assert "close one with DELETE" in full.text
        async with second.stream() as stream:
            await second.delete()
            assert await stream.event_or_end() is None
        with anyio.fail_after(PATIENCE):
            while (await other.post(INITIALIZE)).status == 503:
                pass


async def test_a_request_that_is_sent_again_while_it_runs_is_run_once() -> None:
    begun: list[str] = []
    release = anyio.Event()

    async def waiting(turn: AgentTurn) -> AsyncIterator[str]:
        begun.append(turn.text)
        await release.wait()
        yield turn.text

    async with connected(waiting) as client, client.stream() as own:
        session = await client.new(own)
        async with client.stream(session) as stream:
            assert (await client.prompt(2, session, "x")).status == 202
            assert (await client.prompt(2, session, "x")).status == 202
            other = await client.prompt(2, session, "y")
            assert other.status == 400
            assert "use another id" in other.text
            release.set()
            assert text_of((await stream.event()).message) == "x"
            assert (await stream.event()).message["result"] == {"stopReason": "end_turn"}
    assert begun == ["x"]


POST = {"Content-Type": JSON}
LISTEN = {"Accept": "text/event-stream"}
OWN = "the connection of the client"
UNKNOWN = {"Acp-Connection-Id": "unknown"}
HELLO = json.dumps(INITIALIZE).encode()
NEW = b'{"jsonrpc":"2.0","id":5,"method":"session/new","params":{}}'
PROMPT = b'{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s"}}'
STATUSES: list[tuple[str, Json, bytes, int, str]] = [
    ("PUT", {}, b"", 405, "use DELETE, GET, POST"),
    ("POST", {}, HELLO, 415, "send Content-Type"),
    ("POST", {"Content-Type": "text/plain"}, HELLO, 415, "send Content-Type"),
    ("POST", {**POST, OWN: ""}, HELLO, 400, "initialize opens a new connection"),
    ("POST", POST, HELLO.replace(b'"id": 0', b'"id": null'), 400, "initialize needs an id"),
    ("POST", POST, NEW, 400, "send the Acp-Connection-Id"),
    ("POST", {**POST, **UNKNOWN}, NEW, 404, "this connection is unknown"),
    ("POST", {**POST, OWN: "", "Acp-Session-Id": "t"}, PROMPT, 400, "Acp-Session-Id is not"),
    ("POST", {**POST, OWN: ""}, b"[" + NEW + b"]", 400, "-32600"),
    ("POST", POST, b"[" + HELLO + b"]", 400, "-32600"),
    ("POST", POST, b"[]", 400, "-32600"),
    ("POST", POST, b"7", 400, "-32600"),
    ("POST", POST, b"{", 400, "-32700"),
    ("POST", POST, b"", 400, "-32700"),
    ("POST", POST, b"\xff", 400, "-32700"),
    ("POST", POST, b'{"jsonrpc":"1.0","id":1,"method":"x"}', 400, "-32600"),
    ("GET", {OWN: ""}, b"", 406, "send Accept: text/event-stream"),
    ("GET", {OWN: "", "Accept": JSON}, b"", 406, "send Accept: text/event-stream"),
    ("GET", LISTEN, b"", 400, "send the Acp-Connection-Id"),
    ("GET", {**LISTEN, **UNKNOWN}, b"", 404, "this connection is unknown"),
    ("GET", {**LISTEN, OWN: "", "Last-Event-ID": "7"}, b"", 400, "Last-Event-ID is none"),
    ("GET", {**LISTEN, OWN: "", "Last-Event-ID": "0123abcd-1"}, b"", 400, "Last-Event-ID is not"),
    ("DELETE", {}, b"", 400, "send the Acp-Connection-Id"),
    ("DELETE", UNKNOWN, b"", 404, "this connection is unknown"),
]


async def test_every_wrong_request_has_its_status_and_a_sentence() -> None:
    async with connected(echo) as client:
        for method, headers, body, status, words in STATUSES:
            known = {name: value for name, value in headers.items() if name != OWN}
            if OWN in headers:
                known["Acp-Connection-Id"] = client.connection_id
            response = await client.hand.request(method, ACP, known, body)
            assert response.status == status, (method, headers, body, response)
            if words.startswith("-"):
                message = json.loads(response.body)
                assert (message["id"], message["error"]["code"]) == (None, int(words))
            else:
                assert response.text.startswith(words), response
            assert response.headers["cache-control"] == "no-store"


NAMES = ["Acp-Connection-Id", "Acp-Session-Id", "Accept", "Content-Type", "Last-Event-ID", "X"]
VALUES = st.sampled_from(
    [JSON, "text/event-stream", "s", "", "0123abcd-1", "\xff", "a b", "~", OWN]
)
MESSAGES = st.one_of(
    st.sampled_from([HELLO, NEW, PROMPT, b"", b"{}", b"[]", b"null", b'{"id":0,"result":{}}']),
    st.binary(max_size=40),
    st.builds(lambda each: HELLO[:each], st.integers(0, len(HELLO))),
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"]),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6),
    MESSAGES,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests=st.lists(REQUESTS, min_size=1, max_size=12))
def test_no_order_of_odd_requests_fails_the_server(
    requests: list[tuple[str, Json, bytes]],
) -> None:
    async def attempt() -> None:
        async with connected(echo, HttpOptions(token=TOKEN, max_clients=200)) as client:
            for method, headers, body in requests:
                known = {
                    name: client.connection_id if value == OWN else value
                    for name, value in headers.items()
                }
                status = await _status(client, method, known, b"" if method == "GET" else body)
                assert status < 500, (method, headers, body, status)
            fresh = await StreamableHand(client.hand).initialized()
            async with fresh.stream() as own:
                await fresh.new(own)

    anyio.run(attempt)


async def _status(client: StreamableHand, method: str, headers: Json, body: bytes) -> int:
    """Send a request and return its status; a stream is closed at once."""
    stream = await client.hand.send(method, ACP, {"Content-Length": len(body), **headers}, body)
    received = b""
    with anyio.fail_after(PATIENCE):
        while b"\r\n" not in received:
            received += await stream.receive()
    await stream.aclose()
    return int(received.split()[1])


SOCKETS: list[tuple[Json, str, int]] = [
    ({"Authorization": None}, ACP, 401),
    ({"Authorization": "Bearer wrong"}, ACP, 401),
    ({"Origin": "https://evil.example"}, ACP, 403),
    ({"Sec-Fetch-Site": "cross-site"}, ACP, 403),
    ({"Host": "evil.example"}, ACP, 403),
    ({}, "/acp/rpc", 404),
    ({}, ACP, 101),
]


@pytest.mark.parametrize(("headers", "path", "status"), SOCKETS)
async def test_a_websocket_is_checked_as_every_request_is(
    headers: Json, path: str, status: int
) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with serving(echo) as hand:
        stream = await hand.send("GET", path, {**upgrade, **headers})
        with anyio.fail_after(PATIENCE):
            head = await Bytes(stream).until(b"\r\n\r\n")
        await stream.aclose()
    assert int(head.split()[1]) == status
    assert (b"acp-connection-id" in head.lower()) == (status == 101)

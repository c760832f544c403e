"""An agent on HTTP: real sockets, a client made of bare ones."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agent import AgentSession, AgentTurn, HttpOptions, SessionStore
from quarterdeck.agent.http import client as http_client_module
from quarterdeck.agent.http.client import LOST
from quarterdeck.http.sse import ReplayLimits
from tests.agent.http_client import TOKEN, HttpHand, serving
from tests.agent.official import check_all
from tests.agent.support import PATIENCE, Json

TOOL = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}


async def echo(turn: AgentTurn) -> AsyncIterator[str]:
    yield turn.text


async def nine(_turn: AgentTurn) -> AsyncIterator[str]:
    for number in range(9):
        yield str(number)


class Waiting:
    """Waits in every turn until it is released, and notes what becomes of its sessions."""

    def __init__(self) -> None:
        self.release = anyio.Event()
        self.closed: list[str] = []
        self.left = anyio.Event()

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield "begun"
        await self.release.wait()
        yield turn.text

    async def close_session(self, session: AgentSession) -> None:
        self.closed.append(session.id)
        self.left.set()


def text_of(message: Json) -> str:
    text: str = message["params"]["update"]["content"]["text"]
    return text


async def test_a_session_over_post_and_sse() -> None:
    async with serving(echo) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        assert (await client.prompt(3, session_id, " hello ")).status == 202
        update = (await stream.event()).message
        answer = (await stream.event()).message
    assert stream.comments[0] == "connected"
    assert text_of(update) == " hello "
    assert answer == {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}


async def test_what_is_posted_before_the_stream_opens_waits_for_it() -> None:
    async with serving(echo) as client:
        assert (await client.ask(1, "initialize", protocolVersion=1)).status == 202
        async with client.stream() as stream:
            assert (await stream.answer(1))["result"]["protocolVersion"] == 1


async def test_an_answer_to_the_agent_is_a_204_also_for_an_unknown_id() -> None:
    async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
        yield str(await turn.ask_permission(TOOL))

    async with serving(requesting) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        request = (await stream.event()).message
        check_all([request], {})
        outcome = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        unknown = await client.post({"jsonrpc": "2.0", "id": 99, "result": outcome})
        known = await client.post({"jsonrpc": "2.0", "id": request["id"], "result": outcome})
        assert (unknown.status, known.status, known.body) == (204, 204, b"")
        assert text_of((await stream.event()).message) == "allow_once"


async def test_a_message_may_have_line_breaks() -> None:
    async with serving(echo) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        call = {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "session/prompt",
            "params": {"sessionId": session_id, "prompt": [{"type": "text", "text": "a\nb"}]},
        }
        body = json.dumps(call, indent=2).replace("\n", "\r\n").encode()
        assert (await client.post(body)).status == 202
        assert text_of((await stream.event()).message) == "a\nb"


RPC, SSE = "/acp/rpc?client_id=one", "/acp/sse?client_id=one"
PING = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'

STATUSES: list[tuple[str, str, Json, bytes, int, str]] = [
    ("GET", "/acp/rpc?client_id=one", {}, b"", 405, "use POST"),
    ("PUT", "/acp/rpc?client_id=one", {}, b"", 405, "use POST"),
    ("OPTIONS", "/acp/rpc?client_id=one", {}, b"", 405, "use POST"),
    ("POST", "/acp/sse?client_id=one", {}, b"", 405, "use GET"),
    ("DELETE", "/acp/sse?client_id=one", {}, b"", 405, "use GET"),
    ("POST", "/acp/rpc", {}, PING, 400, "client_id is required"),
    ("POST", "/acp/rpc?client_id=", {}, PING, 400, "client_id is required"),
    ("POST", "/acp/rpc?client_id=%20", {}, PING, 400, "client_id is required"),
    ("GET", "/acp/sse", {}, b"", 400, "client_id is required"),
    ("GET", "/acp/sse?client_id=a%0ab", {}, b"", 400, "client_id may have"),
    ("GET", f"/acp/sse?client_id={'x' * 129}", {}, b"", 400, "client_id may have"),
    ("GET", "/acp/sse?client_id=a&client_id=b", {}, b"", 400, "client_id may have"),
    ("GET", SSE, {"Last-Event-ID": "7"}, b"", 400, "Last-Event-ID is none"),
    ("GET", SSE, {"Last-Event-ID": "0123abcd-x"}, b"", 400, "Last-Event-ID is none"),
    ("GET", "/", {}, b"", 404, "there are /acp, POST /acp/rpc and GET /acp/sse"),
    ("GET", "/acp/", {}, b"", 404, "there are"),
    ("POST", "/acp/rpc/", {}, PING, 404, "there are"),
    ("POST", RPC, {"Content-Type": None}, PING, 415, "send Content-Type: application/json"),
    ("POST", RPC, {"Content-Type": "text/plain"}, PING, 415, "send Content-Type"),
    ("POST", RPC, {"Content-Type": "application/jsonp"}, PING, 415, "send Content-Type"),
    ("POST", RPC, {}, b"", 400, "invalid json-rpc payload"),
    ("POST", RPC, {}, b"{", 400, "invalid json-rpc payload"),
    ("POST", RPC, {}, b"[" + PING + b"]", 400, "invalid json-rpc payload: batches"),
    ("POST", RPC, {}, b"42", 400, "invalid json-rpc payload"),
    ("POST", RPC, {}, b'{"id":1}', 400, "invalid json-rpc payload: an answer needs"),
    ("POST", RPC, {}, b'{"jsonrpc":"1.0","id":1,"method":"x"}', 400, "invalid json-rpc payload"),
    ("POST", RPC, {}, b'{"method":"x","params":[]}', 400, "invalid json-rpc payload: params"),
    ("POST", RPC, {}, b"\xff\xfe", 400, "invalid json-rpc payload"),
    ("POST", RPC, {}, b"[" * 100_000, 400, "invalid json-rpc payload"),
    ("POST", RPC, {"Content-Type": "Application/JSON; charset=utf-8"}, PING, 202, ""),
]


async def test_every_wrong_request_has_its_status_and_a_sentence() -> None:
    async with serving(echo) as client:
        for method, path, headers, body, status, words in STATUSES:
            known = {"Content-Type": "application/json"} if method == "POST" else {}
            response = await client.request(method, path, {**known, **headers}, body)
            assert response.status == status, (method, path, headers, response)
            assert response.text.startswith(words), response
            assert response.headers["cache-control"] == "no-store"
            if status == 405:
                assert response.headers["allow"] in response.text


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_body_over_the_limit_is_refused_without_reading_it_all(is_chunked: bool) -> None:
    options = HttpOptions(token=TOKEN, max_body=1000)
    async with serving(echo, options) as client:
        just_enough = b" " * (1000 - len(PING)) + PING
        assert (await client.post(just_enough)).status == 202
        a_little = await client.post(b" " + just_enough)
        head = {"Content-Type": "application/json", "Content-Length": 10**12}
        if is_chunked:
            head = {**head, "Content-Length": None, "Transfer-Encoding": "chunked"}
        part = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        stream = await client.send("POST", RPC, head, part * 2 if is_chunked else b"x")
        with anyio.fail_after(PATIENCE):
            answer = await stream.receive()
        await stream.aclose()
    assert (a_little.status, a_little.text) == (413, "the body has more than 1000 bytes")
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_does_not_come_is_given_up() -> None:
    options = HttpOptions(token=TOKEN, body_seconds=0.05)
    async with serving(echo, options) as client:
        head = {"Content-Type": "application/json", "Content-Length": 100}
        response = await client.request("POST", RPC, head, b"{")
    assert (response.status, response.text) == (408, "the body took longer than 0.05 s")


async def test_a_request_that_is_sent_twice_runs_once() -> None:
    agent = Waiting()
    async with serving(agent) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        first = await client.prompt(3, session_id, "x")
        again = await client.prompt(3, session_id, "x")
        other = await client.ask(3, "session/close", sessionId=session_id)
        agent.release.set()
        assert (await stream.answer(3))["result"] == {"stopReason": "end_turn"}
        late = await client.prompt(3, session_id, "x")
        changed = await client.prompt(3, session_id, "y")
        assert (await stream.answer(3))["result"] == {"stopReason": "end_turn"}
    assert (first.status, again.status, other.status) == (202, 409, 409)
    assert again.text == "a request with the id 3 is being answered; it is not run again"
    assert (late.status, changed.status) == (409, 202)
    assert late.text == "the same request, id 3, has been answered; it is not run again"


async def test_a_stream_resumes_after_the_last_event_that_was_seen() -> None:
    async with serving(nine) as client:
        async with client.stream() as stream:
            session_id = await client.begin(stream)
            seen = stream.last_id
        await client.prompt(3, session_id, "x")
        async with client.stream(seen) as stream:
            first = [await stream.event() for _ in range(10)]
        async with client.stream(seen) as stream:
            second = [await stream.event() for _ in range(10)]
        async with client.stream(first[6].id or "") as stream:
            third = [await stream.event() for _ in range(3)]
    assert first == second
    assert third == first[7:]
    numbers = [int(str(each.id).partition("-")[2]) for each in first]
    assert numbers == list(range(numbers[0], numbers[0] + 10))


async def test_a_stream_that_names_no_event_continues_where_the_last_one_stopped() -> None:
    async with serving(echo) as client:
        async with client.stream() as stream:
            session_id = await client.begin(stream)
        await client.prompt(3, session_id, "while nobody looked")
        async with client.stream() as stream:
            assert text_of((await stream.event()).message) == "while nobody looked"


async def test_a_second_stream_replaces_the_first() -> None:
    async with serving(echo) as client, client.stream() as first:
        session_id = await client.begin(first)
        async with client.stream() as second:
            assert await first.event_or_end() is None
            await client.prompt(3, session_id, "to the second")
            assert text_of((await second.event()).message) == "to the second"
    assert first.comments[-1] == "replaced by another stream"


async def test_a_silent_stream_sends_pings() -> None:
    options = HttpOptions(token=TOKEN, ping_seconds=0.02)
    async with serving(echo, options) as client, client.stream() as stream:
        await client.begin(stream)
        await stream.comment("ping")


async def test_a_reader_that_was_away_too_long_learns_what_it_missed() -> None:
    finished = anyio.Event()

    async def flood(_turn: AgentTurn) -> AsyncIterator[str]:
        for number in range(100):
            yield str(number)
        finished.set()

    options = HttpOptions(token=TOKEN, limits=ReplayLimits(messages=10, size=10_000_000))
    async with serving(flood, options) as client:
        async with client.stream() as stream:
            session_id = await client.begin(stream)
            seen = stream.last_id
        with pytest.MonkeyPatch.context() as patch, anyio.fail_after(PATIENCE):
            patch.setattr(http_client_module, "PATIENCE_SECONDS", 0.0)
            await client.prompt(3, session_id, "x")
            await finished.wait()
        async with client.stream(seen) as stream:
            notice = await stream.event()
            rest = [await stream.event()]
            while rest[-1].message.get("id") != 3:
                rest.append(await stream.event())
        async with client.stream("00000000-5") as stream:
            unknown = await stream.event()
    assert notice.id is None
    assert notice.message["method"] == LOST
    lost = notice.message["params"]["lost"]
    numbers = [int(str(each.id).partition("-")[2]) for each in rest]
    assert lost == numbers[0] - int(seen.partition("-")[2]) - 1
    assert numbers == list(range(numbers[0], numbers[0] + len(rest)))
    assert notice.message["params"]["reason"] == "you were away for too long"
    assert unknown.message["params"] == {
        "lost": None,
        "reason": "your last event is from an earlier connection; call initialize again",
    }


async def test_a_turn_is_not_delayed_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client_module, "PATIENCE_SECONDS", 0.05)
    finished = anyio.Event()

    async def flood(_turn: AgentTurn) -> AsyncIterator[str]:
        for _ in range(3000):
            yield "x" * 1000
        finished.set()

    options = HttpOptions(token=TOKEN, limits=ReplayLimits(messages=100, size=100_000))
    async with serving(flood, options) as client:
        async with client.stream() as stream:
            session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        with anyio.fail_after(PATIENCE):
            await finished.wait()
        async with client.stream() as stream:
            notice = await stream.event()
            assert notice.message["params"]["reason"] == "you read too slowly"
            assert (await stream.answer(3))["result"] == {"stopReason": "end_turn"}


async def test_a_reader_that_reads_loses_nothing_however_much_comes() -> None:
    count = 5000

    async def flood(_turn: AgentTurn) -> AsyncIterator[str]:
        for number in range(count):
            yield str(number)

    # Far less is kept than is sent: the agent has to wait for the reader.
    options = HttpOptions(token=TOKEN, limits=ReplayLimits(messages=200, size=1_000_000))
    async with serving(flood, options) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        texts = [text_of((await stream.event()).message) for _ in range(count)]
        assert "result" in (await stream.event()).message
    assert texts == [str(number) for number in range(count)]


async def test_sessions_belong_to_their_clients(tmp_path: Path) -> None:
    agent = Waiting()
    async with serving(agent, store=SessionStore(tmp_path)) as one:
        other = one.as_client("other")
        async with one.stream() as mine, other.stream() as theirs:
            session_id = await one.begin(mine)
            await other.begin(theirs)
            await one.prompt(3, session_id, "x")
            await mine.event()
            blocks = [{"type": "text", "text": "x"}]
            named = {"sessionId": session_id, "prompt": blocks, "cwd": "/", "mcpServers": []}
            for number, method in enumerate(("prompt", "load", "resume", "close", "delete"), 10):
                await other.ask(number, f"session/{method}", **named)
                error = (await theirs.answer(number))["error"]
                assert error["data"] == f"{session_id} is open at another client; close it there"
            cancel = {"jsonrpc": "2.0", "method": "session/cancel"}
            assert (await other.post({**cancel, "params": {"sessionId": session_id}})).status == 202
            agent.release.set()
            assert (await mine.answer(3))["result"] == {"stopReason": "end_turn"}


async def test_a_client_that_is_gone_is_dropped_and_its_sessions_can_be_loaded(
    tmp_path: Path,
) -> None:
    agent = Waiting()
    options = HttpOptions(token=TOKEN, idle_seconds=0.1)
    async with serving(agent, options, store=SessionStore(tmp_path)) as one:
        async with one.stream() as stream:
            session_id = await one.begin(stream)
            await one.prompt(3, session_id, "x")
            await stream.event()
        with anyio.fail_after(PATIENCE):
            await agent.left.wait()
        other = one.as_client("other")
        async with other.stream() as stream:
            await other.begin(stream)
            named = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
            await other.ask(3, "session/load", **named)
            assert "result" in await stream.answer(3)
        async with one.stream() as stream:
            await one.prompt(4, session_id, "x")
            error = (await stream.answer(4))["error"]
    assert agent.closed[0] == session_id
    assert error["data"] == "call initialize before session/prompt"


async def test_a_client_that_listens_is_not_idle() -> None:
    options = HttpOptions(token=TOKEN, idle_seconds=0.05, ping_seconds=0.02)
    async with serving(echo, options) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await stream.comment("ping", 5)  # which is longer than it may be idle
        await client.prompt(3, session_id, "still here")
        assert text_of((await stream.event()).message) == "still here"


async def test_there_is_room_for_so_many_clients_only() -> None:
    async with serving(echo, HttpOptions(token=TOKEN, max_clients=2)) as client:
        statuses = [
            (await client.as_client(name).ask(1, "initialize", protocolVersion=1)).status
            for name in ("a", "b", "c", "a")
        ]
    assert statuses == [202, 202, 503, 202]


async def test_there_is_room_for_so_many_sessions_of_a_client_only(tmp_path: Path) -> None:
    options = HttpOptions(token=TOKEN, max_sessions=2)
    async with (
        serving(echo, options, store=SessionStore(tmp_path)) as client,
        client.stream() as stream,
    ):
        first = await client.begin(stream)
        named: Json = {"cwd": "/", "mcpServers": []}
        for number in (10, 11, 12):  # without waiting: those that are being opened count
            await client.ask(number, "session/new", **named)
        answers = [await stream.event() for _ in range(3)]
        refused = [each.message["error"] for each in answers if "error" in each.message]
        assert [each["code"] for each in refused] == [-32600, -32600]
        assert "has 2 sessions open, which is all it may have" in refused[0]["data"]
        await client.ask(13, "session/load", sessionId=first, **named)
        assert "result" in await stream.answer(13)
        await client.ask(14, "session/close", sessionId=first)
        await stream.answer(14)
        await client.open_session(stream, request_id=15)


async def test_the_end_of_the_server_does_not_wait_for_a_body() -> None:
    async with serving(echo) as client:
        path = f"/acp/rpc?client_id={client.client_id}"
        unfinished = {"Content-Type": "application/json", "Content-Length": 100}
        stream = await client.send("POST", path, unfinished, b"{")
        await client.request("GET", "/")  # the head has been read by now
    with anyio.fail_after(PATIENCE):
        assert (await stream.receive()).startswith(b"HTTP/1.1 503 ")
    await stream.aclose()


async def test_the_end_of_the_server_answers_turns_and_ends_streams() -> None:
    agent = Waiting()
    async with serving(agent) as client:
        stream = await client.open_stream()
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        await stream.event()
    answer = (await stream.event()).message
    assert answer["result"] == {"stopReason": "cancelled"}
    assert await stream.event_or_end() is None
    assert stream.comments[-1] == "disconnected by the server"
    await stream.aclose()
    assert agent.closed == [session_id]
    with pytest.raises(OSError, match=r"."):
        await anyio.connect_tcp("127.0.0.1", client.port)


async def test_everything_on_the_stream_is_valid_acp(tmp_path: Path) -> None:
    async with serving(echo, store=SessionStore(tmp_path)) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        called = {3: "session/prompt", 4: "session/load", 5: "session/list", 6: "session/close"}
        named: Json = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        messages: list[Json] = []
        await client.prompt(3, session_id, "x")
        for number in (4, 5, 6):
            while not messages or messages[-1].get("id") != number - 1:
                messages.append((await stream.event()).message)
            await client.ask(number, called[number], **named)
        messages.append(await stream.answer(6))
    check_all(messages, called)


async def test_the_application_can_be_mounted_and_has_a_lifespan() -> None:
    from quarterdeck.agent import http_app  # noqa: PLC0415

    app = http_app(echo, HttpOptions(token=TOKEN))
    notice: list[Any] = []
    shutdown = anyio.Event()
    steps = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        step = next(steps)
        if step["type"] == "lifespan.shutdown":
            await shutdown.wait()
        return step

    async def send(message: Any) -> None:
        notice.append(message)

    async def nothing() -> Any:
        return {"type": "http.request", "body": PING}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, {"type": "lifespan"}, receive, send)
        with anyio.fail_after(PATIENCE):
            while not notice:
                await anyio.lowlevel.checkpoint()
        headers = {"host": "localhost", "authorization": f"Bearer {TOKEN}"}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/hub/acp/rpc",
            "root_path": "/hub",
            "query_string": b"client_id=a",
            "headers": [
                (name.encode(), text.encode())
                for name, text in {**headers, "content-type": "application/json"}.items()
            ],
        }
        await app(scope, nothing, send)
        await app({"type": "websocket", "path": "/"}, nothing, send)
        shutdown.set()
    kinds = [each.get("status") or each["type"] for each in notice]
    assert kinds == [
        "lifespan.startup.complete",
        202,
        "http.response.body",
        "websocket.close",
        "lifespan.shutdown.complete",
    ]


async def test_a_reader_whose_socket_is_stuck_is_overtaken_and_the_turn_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client_module, "PATIENCE_SECONDS", 0.05)
    finished = anyio.Event()

    async def flood(_turn: AgentTurn) -> AsyncIterator[str]:
        for _ in range(400):
            yield "x" * 100_000
        finished.set()

    options = HttpOptions(token=TOKEN, limits=ReplayLimits(messages=50, size=1_000_000))
    async with serving(flood, options) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        with anyio.fail_after(PATIENCE):
            await finished.wait()  # although the stream is not read
        last = HttpHand(client.port, client.client_id)
        async with last.stream(stream.last_id) as again:
            assert (await again.event()).message["method"] == LOST

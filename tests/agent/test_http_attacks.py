"""What a web page, an unknown client or a hostile client can try against an agent on this computer.

Each test makes the requests that a browser would make for the attack, and checks that the agent's
code was never reached.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from quarterdeck.agent import AgentSession, AgentTurn, HttpOptions
from quarterdeck.wire import background_tasks
from tests.agent.http_client import JSON, TOKEN, HttpHand, serving
from tests.agent.support import PATIENCE, Json

OPEN = HttpOptions(needs_token=False)
"""The weakest configuration: no token. Everything below must hold in it as well."""

NEW = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
RPC, SSE = "/acp/rpc?client_id=one", "/acp/sse?client_id=one"


class Reached:
    """Notes that a request was accepted."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.turns = 0

    async def prompt(self, _turn: AgentTurn) -> AsyncIterator[str]:
        self.turns += 1
        yield "done"

    async def open_session(self, session: AgentSession) -> None:
        self.sessions.append(session.id)


def page(site: str = "cross-site", **more: Any) -> Json:
    """Return the headers that a browser adds to a request of a foreign page."""
    return {"Origin": "https://evil.example", "Sec-Fetch-Site": site, **more}


ATTACKS: dict[str, tuple[str, str, Json, int]] = {
    "a form with text/plain": ("POST", RPC, page(**{"Content-Type": "text/plain"}), 403),
    "fetch without cors": (
        "POST",
        RPC,
        page(**{"Content-Type": "text/plain;charset=UTF-8", "Sec-Fetch-Mode": "no-cors"}),
        403,
    ),
    "fetch with json": ("POST", RPC, page(**{"Content-Type": JSON}), 403),
    "a preflight": (
        "OPTIONS",
        RPC,
        page(**{"Access-Control-Request-Method": "POST"}),
        403,
    ),
    "a sandboxed frame": ("POST", RPC, {"Origin": "null", "Content-Type": JSON}, 403),
    "a page on another port": (
        "POST",
        RPC,
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site", "Content-Type": JSON},
        403,
    ),
    "an old browser's form": ("POST", RPC, {"Content-Type": "text/plain"}, 415),
    "a form without a type": ("POST", RPC, {}, 415),
    "an image of the stream": (
        "GET",
        SSE,
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
        403,
    ),
    "an event source": ("GET", SSE, page(Accept="text/event-stream"), 403),
    "a rebound name": ("POST", RPC, {"Host": "evil.example", "Content-Type": JSON}, 403),
    "a rebound name with its own origin": (
        "POST",
        RPC,
        {
            "Host": "evil.example:9000",
            "Origin": "http://evil.example:9000",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": JSON,
        },
        403,
    ),
    "a rebound name for the stream": ("GET", SSE, {"Host": "evil.example"}, 403),
    "a rebound name that asks what is here": ("GET", "/", {"Host": "evil.example"}, 403),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_web_page_reaches_nothing_even_without_a_token(attack: str) -> None:
    method, path, headers, status = ATTACKS[attack]
    agent = Reached()
    async with serving(agent, OPEN) as client:
        body = NEW if method == "POST" else b""
        response = await client.request(method, path, headers, body)
        assert response.status == status
        assert not any(name.startswith("access-control") for name in response.headers)
        # The client of that name was never made: its first stream finds nothing waiting.
        async with client.stream() as stream:
            await client.begin(stream)
    assert len(agent.sessions) == 1


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"]
)
async def test_a_client_without_the_token_reaches_nothing(authorization: str | None) -> None:
    agent = Reached()
    async with serving(agent) as client:
        stranger = HttpHand(client.port, token=None)
        headers = {"Authorization": authorization, "Content-Type": JSON}
        post = await stranger.request("POST", RPC, headers, NEW)
        get = await stranger.request("GET", SSE, headers)
    assert (post.status, get.status) == (401, 401)
    assert post.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in post.text


async def test_another_client_cannot_answer_a_permission_request() -> None:
    chosen: list[Any] = []

    async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
        tool = {"toolCallId": "t", "title": "Delete all", "status": "pending"}
        chosen.append(await turn.ask_permission(tool))
        yield "asked"

    async with serving(requesting) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "x")
        request = (await stream.event()).message
        outcome = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": outcome}
        by_page = await client.post(answer, page())
        by_stranger = await HttpHand(client.port, token="x" * 16).post(answer)
        by_other_client = await client.as_client("other").post(answer)
        statuses = (by_page.status, by_stranger.status, by_other_client.status)
        assert statuses == (403, 401, 204)  # the last one has answered a request of its own
        rejected = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}
        await client.post({**answer, "result": rejected})
        await stream.answer(3)
    assert chosen == ["reject_once"]


@pytest.mark.parametrize("beginning", [b"", b"POST ", b"POST /acp/rpc HTTP/1.1\r\nHost: "])
async def test_a_head_that_does_not_come_to_its_end_is_given_up(beginning: bytes) -> None:
    options = HttpOptions(token=TOKEN, head_seconds=0.2)
    async with serving(Reached(), options) as client:
        stream = await anyio.connect_tcp("127.0.0.1", client.port)
        async with stream, background_tasks() as tasks:
            if beginning:
                await stream.send(beginning)
                tasks.start_soon(drip, stream)
            with anyio.fail_after(PATIENCE):
                assert (await stream.receive()).startswith(b"HTTP/1.1 408 ")


async def test_a_second_head_on_the_same_connection_is_given_up_as_well() -> None:
    options = HttpOptions(token=TOKEN, head_seconds=0.5)
    async with (
        serving(Reached(), options) as client,
        await client.send("GET", "/nothing") as stream,
        background_tasks() as tasks,
    ):
        assert (await stream.receive()).startswith(b"HTTP/1.1 404 ")
        await stream.send(b"GET ")
        tasks.start_soon(drip, stream)
        with anyio.fail_after(PATIENCE):
            assert (await stream.receive()).startswith(b"HTTP/1.1 408 ")


async def test_a_stream_outlives_the_time_for_heads() -> None:
    # Long enough for the head of the stream itself, also where others keep the machine busy.
    options = HttpOptions(token=TOKEN, head_seconds=0.5, ping_seconds=0.6)
    async with serving(Reached(), options) as client, client.stream() as stream:
        await stream.comment("ping")


async def drip(stream: SocketStream) -> None:
    with suppress(anyio.BrokenResourceError):
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.05)


async def test_a_client_that_sends_heads_only_does_not_stop_the_others() -> None:
    async with serving(Reached()) as client:
        half = [await client.send("POST", RPC, {"Content-Length": 10**6}) for _ in range(50)]
        async with client.as_client("two").stream() as stream:
            await client.as_client("two").begin(stream)
        for each in half:
            await each.aclose()


async def test_a_request_smuggled_behind_a_refused_body_is_not_answered() -> None:
    agent = Reached()
    options = HttpOptions(token=TOKEN, max_body=10)
    async with serving(agent, options) as client:
        inner = f"POST {RPC} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        stream = await client.send("POST", RPC, {"Content-Type": JSON}, b"x" * 50 + inner)
        with anyio.fail_after(PATIENCE):
            received = b""
            while True:
                try:
                    received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
        await stream.aclose()
    assert received.count(b"HTTP/1.1") == 1
    assert received.startswith(b"HTTP/1.1 413")


async def test_a_session_id_cannot_leave_the_folder() -> None:
    async with serving(Reached()) as client, client.stream() as stream:
        await client.begin(stream)
        for number, name in enumerate(("../x", "/etc/passwd", "a/b", "..", "a\0b", "."), 10):
            await client.ask(number, "session/close", sessionId=name)
            error = (await stream.answer(number))["error"]
            assert error["data"] == "sessionId may have letters, digits, - and _ only"


EDITOR = "https://driver.example"
NAMED = HttpOptions(token=TOKEN, origins=(EDITOR,))


async def test_a_page_of_a_named_origin_may_send_a_preflight_and_read_the_answers() -> None:
    async with serving(Reached(), NAMED) as client:
        preflight = {"Origin": EDITOR, "Access-Control-Request-Method": "POST"}
        allowed = await HttpHand(client.port, token=None).request("OPTIONS", RPC, preflight)
        posted = await client.request("POST", RPC, {"Origin": EDITOR, "Content-Type": JSON}, NEW)
    assert (allowed.status, posted.status) == (204, 202)
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    for response in (allowed, posted):
        assert response.headers["access-control-allow-origin"] == EDITOR
        assert response.headers["vary"] == "origin"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": f"{EDITOR}.evil.example"},
        {"Origin": "null"},
        {"Origin": EDITOR, "Host": "evil.example"},
    ],
)
async def test_a_page_of_another_origin_reads_nothing_though_one_is_named(headers: Json) -> None:
    async with serving(Reached(), NAMED) as client:
        preflight = {**headers, "Access-Control-Request-Method": "POST"}
        allowed = await client.request("OPTIONS", RPC, preflight)
        posted = await client.request("POST", RPC, {**headers, "Content-Type": JSON}, NEW)
    for response in (allowed, posted):
        assert response.status == 403
        assert not any(name.startswith("access-control") for name in response.headers)


async def test_a_page_of_a_named_origin_needs_the_token_all_the_same() -> None:
    async with serving(Reached(), NAMED) as client:
        page = HttpHand(client.port, token=None)
        posted = await page.request("POST", RPC, {"Origin": EDITOR, "Content-Type": JSON}, NEW)
    assert posted.status == 401

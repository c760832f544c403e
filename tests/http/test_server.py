"""Connections without a request, or with too much of one, are closed."""

import gc
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import pytest

from quarterdeck.http import server as http_server
from quarterdeck.http.limits import MAX_CONNECTIONS, Capacity, capacity_for
from tests.hub.auth.support import GuardedServer, open_guarded
from tests.hub.served import PARSERS, PATIENCE, UPGRADE, Parser, Wire, request


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)


@pytest.fixture
def some_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a proper request, also on a busy machine."""
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 1.5)


async def _is_closed(wire: Wire) -> bool:
    with anyio.fail_after(PATIENCE):
        return await wire.rest() is not None


async def _send_for_ever(wire: Wire, line: bytes, *, pause: float) -> None:
    while True:
        await wire.send(line)
        await anyio.sleep(pause)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("first_bytes", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_head_that_does_not_come_is_not_waited_for(
    tmp_path: Path, parser: Parser, first_bytes: bytes
) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        if first_bytes:
            await wire.send(first_bytes)
        assert await _is_closed(wire)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("parser", PARSERS)
async def test_a_head_that_drips_is_not_waited_for(tmp_path: Path, parser: Parser) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with anyio.fail_after(PATIENCE), pytest.raises(anyio.BrokenResourceError):
            await _send_for_ever(wire, b"X: y\r\n", pause=0.02)


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_head_without_end_is_cut_off(tmp_path: Path, parser: Parser) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with anyio.fail_after(PATIENCE), pytest.raises(anyio.BrokenResourceError):
            await _send_for_ever(wire, b"X-More: and more\r\n" * 100, pause=0)
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200


def _requests_held() -> int:
    gc.collect()
    return sum(type(each).__name__ == "RequestResponseCycle" for each in gc.get_objects())


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("path", ["/api/secret", "/api/ticks", "/nowhere"])
async def test_requests_sent_ahead_of_their_answers_are_not_collected(
    tmp_path: Path, parser: Parser, path: str
) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    most = 0
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        with anyio.move_on_after(1.0), suppress(anyio.BrokenResourceError):
            for _ in range(20):
                await wire.send(head * 500)
                await anyio.sleep(0.01)
                most = max(most, _requests_held())
        assert most < 50
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_few_requests_may_be_sent_ahead(tmp_path: Path, parser: Parser) -> None:
    head = b"GET /api/secret HTTP/1.1\r\nHost: x\r\n"
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        await wire.send((head + b"\r\n") * 5 + head + b"connection: close\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            assert (await wire.rest()).count(b"HTTP/1.1 421") == 6


@pytest.mark.usefixtures("some_patience")
@pytest.mark.parametrize("parser", PARSERS)
async def test_streams_and_sockets_last_longer_than_a_head_may_take(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_guarded(tmp_path, parser) as guarded,
        guarded.served.connect() as events,
        guarded.served.connect() as socket,
        guarded.served.connect() as idle,
    ):
        await _open(guarded, events, "/api/ticks")
        await _open(guarded, socket, "/api/socket", *UPGRADE)
        assert await _is_closed(idle)  # it was the last to come
        assert guarded.auth.devices.live_count("owner") == 2


@pytest.mark.usefixtures("some_patience")
@pytest.mark.parametrize("parser", PARSERS)
async def test_a_connection_is_used_again_and_closed_when_the_next_head_stalls(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        lines = (f"Authorization: Bearer {guarded.owner}",)
        head = request("GET /api/secret HTTP/1.1", *lines, host=guarded.served.host)
        for _ in range(3):
            await wire.send(head)
            assert (await wire.reply()).status == 200
        await wire.send(head[:-4])
        assert await _is_closed(wire)


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_socket_whose_head_cannot_be_read_is_answered(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        many = (f"X-{number}: x" for number in range(200))
        assert (await guarded.get("/api/socket", *UPGRADE, *many)).status == 400
        without_key = [line for line in UPGRADE if "Key" not in line]
        refused = await guarded.get("/api/socket", *without_key, token=guarded.owner)
        assert refused.status == 400
        assert guarded.behind.reached == []


async def _open(guarded: GuardedServer, wire: Wire, path: str, *lines: str) -> None:
    bearer = f"Authorization: Bearer {guarded.owner}"
    await wire.send(request(f"GET {path} HTTP/1.1", bearer, *lines, host=guarded.served.host))
    assert (await wire.head())[0] in (101, 200)


@pytest.mark.parametrize("parser", PARSERS)
async def test_the_end_of_a_long_body_is_not_taken_for_a_head(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        body = b'"' + b"x" * (4 * http_server.HEAD_BYTES) + b'"'
        lines = (
            f"Authorization: Bearer {guarded.owner}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        head = request("POST /api/deeds HTTP/1.1", *lines, host=guarded.served.host)
        with anyio.fail_after(PATIENCE):
            for _ in range(20):
                await wire.send(head)
                await wire.send(body)
                assert (await wire.reply()).status == 200


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_connection_beyond_the_capacity_is_answered_with_retry_after(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_guarded(tmp_path, parser, capacity=Capacity(connections=2)) as guarded,
        guarded.served.connect() as events,
        guarded.served.connect() as socket,
    ):
        await _open(guarded, events, "/api/ticks")
        await _open(guarded, socket, "/api/socket", *UPGRADE)
        for lines in ((), UPGRADE):
            refused = await guarded.get("/api/socket", *lines, token=guarded.owner)
            assert (refused.status, refused.header("retry-after")) == (503, "5")
            assert refused.json["error"]["code"] == "quarterdeck/too-many"
        assert guarded.behind.reached == ["/api/ticks", "/api/socket"]
        await events.stream.aclose()
        with anyio.fail_after(PATIENCE):
            while (await guarded.get("/api/secret", token=guarded.owner)).status != 200:
                pass


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_connection_without_a_request_makes_way_for_one_with(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_guarded(tmp_path, parser, capacity=Capacity(connections=2)) as guarded,
        guarded.served.connect() as events,
        guarded.served.connect() as idle,
    ):
        await _open(guarded, events, "/api/ticks")
        await idle.send(request("GET /api/secret HTTP/1.1", host=guarded.served.host))
        assert (await idle.reply()).status == 401
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200
        assert await _is_closed(idle)


@pytest.mark.parametrize("parser", PARSERS)
async def test_of_many_silent_connections_the_oldest_is_evicted_with_an_answer(
    tmp_path: Path, parser: Parser
) -> None:
    async with AsyncExitStack() as stack:
        guarded = await stack.enter_async_context(
            open_guarded(tmp_path, parser, capacity=Capacity(silent=8))
        )
        wires = []
        for _ in range(16):
            wires.append(await stack.enter_async_context(guarded.served.connect()))
            await wires[-1].send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert (await guarded.get("/")).status == 200
        with anyio.fail_after(PATIENCE):
            replies = [await wire.reply() for wire in wires[:8]]
        assert {each.status for each in replies} == {503}
        assert {each.header("retry-after") for each in replies} == {"5"}


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("parser", PARSERS)
async def test_a_client_that_has_begun_a_request_reads_that_it_took_too_long(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded, guarded.served.connect() as wire:
        await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with anyio.fail_after(PATIENCE):
            assert (await wire.reply()).status == 408


def test_there_is_room_for_three_quarters_of_the_files_that_may_be_open() -> None:
    assert capacity_for(1_024).connections == 704
    assert capacity_for(1_000_000).connections == MAX_CONNECTIONS
    assert capacity_for(64).connections == 16


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    program = (
        "import resource as r\n"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "most = 4096 if hard == r.RLIM_INFINITY else min(hard, 4096)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, most))\n"
        "from quarterdeck.http.limits import raise_file_limit\n"
        "assert raise_file_limit() == most == r.getrlimit(r.RLIMIT_NOFILE)[0]\n"
        "assert raise_file_limit() == most\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

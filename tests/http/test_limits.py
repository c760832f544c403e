"""Whoever connects to a hub with TLS counts before it has said a byte."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from quarterdeck.http import server as http_server
from quarterdeck.http.limits import Capacity
from tests.certificates import certify
from tests.hub.auth.support import GuardedServer, open_guarded
from tests.hub.served import PATIENCE, Reply, Wire, request

HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def long_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes makes way, and was not just too slow."""
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 10 * PATIENCE)


@asynccontextmanager
async def _open_guarded_tls(
    folder: Path, capacity: Capacity
) -> AsyncIterator[tuple[GuardedServer, ssl.SSLContext]]:
    certificate, key = folder / "hub.pem", folder / "hub.key"
    certify(certificate, key, "desk.example")
    trusting = ssl.create_default_context(cafile=str(certificate))
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
    async with open_guarded(folder, "httptools", capacity=capacity, tls=tls) as guarded:
        yield guarded, trusting


@asynccontextmanager
async def _connect(guarded: GuardedServer, trusting: ssl.SSLContext) -> AsyncIterator[Wire]:
    async with await anyio.connect_tcp(
        "127.0.0.1",
        guarded.served.port,
        tls=True,
        ssl_context=trusting,
        tls_hostname="desk.example",
        tls_standard_compatible=False,
    ) as stream:
        yield Wire(stream)  # type: ignore[arg-type]  # it is read and written in the same way


async def _ask(guarded: GuardedServer, wire: Wire, path: str = "/api/secret") -> None:
    bearer = f"Authorization: Bearer {guarded.owner}"
    await wire.send(request(f"GET {path} HTTP/1.1", bearer, host=guarded.served.host))


async def _get(guarded: GuardedServer, trusting: ssl.SSLContext) -> Reply:
    async with _connect(guarded, trusting) as wire:
        await _ask(guarded, wire)
        return await wire.reply()


@asynccontextmanager
async def _stranger(guarded: GuardedServer, said: bytes = b"") -> AsyncIterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", guarded.served.port)) as stranger:
        stranger.setblocking(False)
        if said:
            stranger.send(said)
        yield stranger


async def _closed(*strangers: socket.socket) -> None:
    """Wait until all of them have been closed from the other side."""
    with anyio.fail_after(PATIENCE):
        for each in strangers:
            await anyio.wait_readable(each)
            assert not _is_open(each)


def _is_open(stranger: socket.socket) -> bool:
    try:
        return bool(stranger.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.usefixtures("long_patience")
@pytest.mark.parametrize("said", [b"", HALF_A_HELLO])
async def test_of_many_without_a_handshake_the_oldest_go_and_an_honest_client_is_served(
    tmp_path: Path, said: bytes
) -> None:
    async with AsyncExitStack() as stack:
        opened = _open_guarded_tls(tmp_path, Capacity(silent=8))
        guarded, trusting = await stack.enter_async_context(opened)
        strangers = [await stack.enter_async_context(_stranger(guarded, said)) for _ in range(24)]
        await _closed(*strangers[:16])
        assert all(map(_is_open, strangers[16:]))
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 200
        await _closed(strangers[16])
        assert all(map(_is_open, strangers[17:]))


@pytest.mark.parametrize("said", [b"", HALF_A_HELLO])
async def test_a_handshake_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    async with (
        _open_guarded_tls(tmp_path, Capacity()) as (guarded, _),
        _stranger(guarded, said) as stranger,
    ):
        await _closed(stranger)


@pytest.mark.usefixtures("long_patience")
async def test_what_is_no_handshake_leaves_no_file_open(tmp_path: Path) -> None:
    async with _open_guarded_tls(tmp_path, Capacity(silent=8)) as (guarded, trusting):
        assert (await _get(guarded, trusting)).status == 200
        before = _open_files()
        for said in (b"GET / HTTP/1.1\r\n\r\n", HALF_A_HELLO, b""):
            for _ in range(16):
                async with _stranger(guarded, said):
                    await anyio.lowlevel.checkpoint()
        with anyio.fail_after(PATIENCE):
            while _open_files() > before:
                await anyio.lowlevel.checkpoint()
        assert (await _get(guarded, trusting)).status == 200


@pytest.mark.usefixtures("long_patience")
async def test_who_is_without_a_handshake_makes_way_when_all_places_are_taken(
    tmp_path: Path,
) -> None:
    async with (
        _open_guarded_tls(tmp_path, Capacity(connections=2)) as (guarded, trusting),
        _connect(guarded, trusting) as events,
        _stranger(guarded) as silent,
    ):
        await _ask(guarded, events, "/api/ticks")
        assert (await events.head())[0] == 200
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 200
        await _closed(silent)


async def test_who_finds_no_room_is_told_so_after_the_handshake(tmp_path: Path) -> None:
    async with (
        _open_guarded_tls(tmp_path, Capacity(connections=1)) as (guarded, trusting),
        _connect(guarded, trusting) as events,
    ):
        await _ask(guarded, events, "/api/ticks")
        assert (await events.head())[0] == 200
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 503


@pytest.mark.usefixtures("long_patience")
async def test_a_server_ends_while_somebody_is_without_a_handshake(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with _open_guarded_tls(tmp_path, Capacity()) as (guarded, trusting):
            silent = await stack.enter_async_context(_stranger(guarded))
            begun = await stack.enter_async_context(_stranger(guarded, HALF_A_HELLO))
            assert (await _get(guarded, trusting)).status == 200
        await _closed(silent, begun)

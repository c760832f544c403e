"""A TLS connection to a hub counts before its first byte."""

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
    """A connection that is closed was evicted, not just too slow."""
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 10 * PATIENCE)


@asynccontextmanager
async def _open_guarded_tls(
    folder: Path, capacity: Capacity
) -> AsyncIterator[tuple[GuardedServer, ssl.SSLContext]]:
    certificate, key = folder / "tls.pem", folder / "tls.key"
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
async def _silent_client(
    guarded: GuardedServer, first_bytes: bytes = b""
) -> AsyncIterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", guarded.served.port)) as silent_client:
        silent_client.setblocking(False)
        if first_bytes:
            silent_client.send(first_bytes)
        yield silent_client


async def _closed(*silent_clients: socket.socket) -> None:
    """Wait until all of them have been closed from the other side."""
    with anyio.fail_after(PATIENCE):
        for each in silent_clients:
            await anyio.wait_readable(each)
            assert not _is_open(each)


def _is_open(silent_client: socket.socket) -> bool:
    try:
        return bool(silent_client.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.usefixtures("long_patience")
@pytest.mark.parametrize("first_bytes", [b"", HALF_A_HELLO])
async def test_of_many_without_a_handshake_the_oldest_go_and_an_honest_client_is_served(
    tmp_path: Path, first_bytes: bytes
) -> None:
    async with AsyncExitStack() as stack:
        opened = _open_guarded_tls(tmp_path, Capacity(silent=8))
        guarded, trusting = await stack.enter_async_context(opened)
        silent_clients = [
            await stack.enter_async_context(_silent_client(guarded, first_bytes)) for _ in range(24)
        ]
        await _closed(*silent_clients[:16])
        assert all(map(_is_open, silent_clients[16:]))
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 200
        await _closed(silent_clients[16])
        assert all(map(_is_open, silent_clients[17:]))


@pytest.mark.parametrize("first_bytes", [b"", HALF_A_HELLO])
async def test_a_handshake_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_bytes: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.3)
    async with (
        _open_guarded_tls(tmp_path, Capacity()) as (guarded, _),
        _silent_client(guarded, first_bytes) as silent_client,
    ):
        await _closed(silent_client)


@pytest.mark.usefixtures("long_patience")
async def test_what_is_no_handshake_leaves_no_file_open(tmp_path: Path) -> None:
    async with _open_guarded_tls(tmp_path, Capacity(silent=8)) as (guarded, trusting):
        assert (await _get(guarded, trusting)).status == 200
        before = _open_files()
        for first_bytes in (b"GET / HTTP/1.1\r\n\r\n", HALF_A_HELLO, b""):
            for _ in range(16):
                async with _silent_client(guarded, first_bytes):
                    await anyio.lowlevel.checkpoint()
        with anyio.fail_after(PATIENCE):
            while _open_files() > before:
                await anyio.lowlevel.checkpoint()
        assert (await _get(guarded, trusting)).status == 200


@pytest.mark.usefixtures("long_patience")
async def test_a_connection_without_a_handshake_is_evicted_at_capacity(
    tmp_path: Path,
) -> None:
    async with (
        _open_guarded_tls(tmp_path, Capacity(connections=2)) as (guarded, trusting),
        _connect(guarded, trusting) as events,
        _silent_client(guarded) as silent,
    ):
        await _ask(guarded, events, "/api/ticks")
        assert (await events.head())[0] == 200
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 200
        await _closed(silent)


async def test_a_connection_beyond_the_capacity_is_answered_after_its_tls(tmp_path: Path) -> None:
    async with (
        _open_guarded_tls(tmp_path, Capacity(connections=1)) as (guarded, trusting),
        _connect(guarded, trusting) as events,
    ):
        await _ask(guarded, events, "/api/ticks")
        assert (await events.head())[0] == 200
        with anyio.fail_after(PATIENCE):
            assert (await _get(guarded, trusting)).status == 503


@pytest.mark.usefixtures("long_patience")
async def test_a_server_ends_while_a_handshake_is_pending(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with _open_guarded_tls(tmp_path, Capacity()) as (guarded, trusting):
            silent = await stack.enter_async_context(_silent_client(guarded))
            begun = await stack.enter_async_context(_silent_client(guarded, HALF_A_HELLO))
            assert (await _get(guarded, trusting)).status == 200
        await _closed(silent, begun)

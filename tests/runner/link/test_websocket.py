"""The link over a TLS WebSocket: the same runner, for hubs that have its token."""

# ruff: noqa: ASYNC110 - the other end of a link is waited for, which has no events

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from quarterdeck.errors import StartRefused
from quarterdeck.policy import Policy
from quarterdeck.runner import Runner
from quarterdeck.runner.link import (
    LinkServer,
    RemoteRunner,
    RunnerAddress,
    connected_runner,
    serving_link,
    serving_remote_link,
)
from tests.certificates import certify
from tests.hub.api.kit import PATIENCE, options, scripted
from tests.runner.link.test_link import TEXT, Reader

TOKEN = "of a hub that may use this runner"
CHUNKS = [{"say": f"part {number}"} for number in range(200)]


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server and a client need for TLS."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certify(certificate, key, "localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(certificate))
    client.check_hostname = False  # the certificate is pinned
    return server, client


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Runner, RunnerAddress]]:
    server, client = contexts(folder)
    given = options(folder / "home", mine=scripted(*CHUNKS)).runner
    with anyio.fail_after(PATIENCE):
        async with (
            Runner(given) as runner,
            serving_link(runner, given.home / "runner.sock") as links,
            serving_remote_link(links, "127.0.0.1", 0, token=TOKEN, tls=server) as port,
        ):
            url = f"wss://127.0.0.1:{port}/"
            yield runner, RunnerAddress(url=url, token=TOKEN, tls=client)


@asynccontextmanager
async def both(folder: Path) -> AsyncIterator[tuple[LinkServer, RemoteRunner, RemoteRunner]]:
    """Serve a runner to a hub at its Unix socket and to one at its WebSocket."""
    server, client = contexts(folder)
    given = options(folder / "home", mine=scripted(*CHUNKS)).runner
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with (
            Runner(given) as runner,
            serving_link(runner, path) as links,
            serving_remote_link(links, "127.0.0.1", 0, token=TOKEN, tls=server) as port,
            connected_runner(path) as near,
            connected_runner(
                RunnerAddress(url=f"wss://127.0.0.1:{port}/", token=TOKEN, tls=client)
            ) as far,
        ):
            yield links, near, far


async def cut(remote: RemoteRunner) -> None:
    """Break the link of a hub, and wait until it is made again."""
    socket = remote.connection.socket
    assert socket is not None
    socket.close("cut by the test")
    while remote.connection.socket in (socket, None):
        await anyio.sleep(0.001)


async def test_a_turn_is_followed_over_tls(tmp_path: Path) -> None:
    async with served(tmp_path) as (runner, address), connected_runner(address) as remote:
        session = await remote.create_session("mine", cwd=str(tmp_path))
        reader = Reader(await remote.open_log(session.session_id))
        await remote.add_prompt(session.session_id, "a-key", TEXT)
        assert (await remote.wait_prompt(session.session_id, "a-key")).state == "done"
        events = await reader.read_until(runner.last_seq(session.session_id))
        assert events == await runner.host.options.storage.read(session.session_id, 0, 10_000)


async def test_a_connection_that_breaks_is_made_again(tmp_path: Path) -> None:
    async with served(tmp_path) as (runner, address), connected_runner(address) as remote:
        session = await remote.create_session("mine", cwd=str(tmp_path))
        reader = Reader(await remote.open_log(session.session_id))
        await cut(remote)
        await remote.add_prompt(session.session_id, "a-key", TEXT)
        assert (await remote.wait_prompt(session.session_id, "a-key")).state == "done"
        events = await reader.read_until(runner.last_seq(session.session_id))
        assert events == await runner.host.options.storage.read(session.session_id, 0, 10_000)


async def test_without_the_token_there_is_no_link(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, address):
        other = RunnerAddress(url=address.url, token=TOKEN[:-1], tls=address.tls)
        with pytest.raises(StartRefused, match="check its token"):
            async with connected_runner(other):
                pass
        with pytest.raises(InvalidStatus):
            await connect(address.url, ssl=address.tls, proxy=None)


async def test_an_address_without_tls_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, address):
        plain = RunnerAddress(url=address.url.replace("wss:", "ws:"), token=TOKEN, tls=address.tls)
        with pytest.raises(StartRefused, match="not encrypted"):
            async with connected_runner(plain):
                pass


async def test_a_runner_with_another_certificate_gets_no_token(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    _, stranger = contexts(tmp_path / "other")
    async with served(tmp_path) as (_, address):
        other = RunnerAddress(url=address.url, token=TOKEN, tls=stranger)
        with pytest.raises(StartRefused):
            async with connected_runner(other):
                pass


# ---- one runner, however a hub reaches it --------------------------------------------------------


async def test_hubs_see_the_same_runner_at_the_socket_and_at_the_websocket(tmp_path: Path) -> None:
    async with both(tmp_path) as (links, near, far):
        assert near.connection.identity == far.connection.identity == links.identity
        assert links.connections == 2


async def test_a_rule_that_one_hub_sets_is_known_to_all(tmp_path: Path) -> None:
    policy = Policy(expiry_seconds=7.0)
    async with both(tmp_path) as (_, near, far):
        far.set_policy(policy)
        while near.policy() != policy:
            await anyio.sleep(0.01)


async def test_turns_resume_only_when_the_last_hub_that_drains_has_gone(tmp_path: Path) -> None:
    async with both(tmp_path) as (links, near, far):
        await near.drain()
        await far.drain()
        await cut(near)
        assert links.runner.health().is_draining
        await cut(far)
        while links.runner.health().is_draining:
            await anyio.sleep(0.001)


async def test_a_hub_of_another_machine_can_end_the_runner(tmp_path: Path) -> None:
    async with both(tmp_path) as (links, _, far):
        await far.shut_down()
        assert links.shut_down.is_set()


async def test_a_listener_that_ends_leaves_the_others_alone(tmp_path: Path) -> None:
    server, client = contexts(tmp_path)
    given = options(tmp_path / "home", mine=scripted(*CHUNKS)).runner
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with (
            Runner(given) as runner,
            serving_link(runner, path) as links,
            connected_runner(path) as near,
        ):
            async with serving_remote_link(links, "127.0.0.1", 0, token=TOKEN, tls=server) as port:
                url = f"wss://127.0.0.1:{port}/"
                async with connected_runner(RunnerAddress(url=url, token=TOKEN, tls=client)):
                    assert links.connections == 2
            while links.connections != 1:
                await anyio.sleep(0.01)
            assert await near.known_agents()

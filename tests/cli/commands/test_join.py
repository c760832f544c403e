"""`quarterdeck join`, as a user of another machine runs it, against a hub with TLS."""

# ruff: noqa: ASYNC110 - other processes are waited for, which have no events

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.runner.link import read_links, read_memberships
from tests.certificates import certify, certify_by_authority
from tests.cli.kit import COMMAND, Console
from tests.hub.api.kit import PATIENCE, Client, client_of, options

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    folder = tmp_path / "machine"
    folder.mkdir()
    made = Console(folder)
    yield made
    made.end_runner()


def tls_hub(folder: Path, *, is_own: bool) -> AbstractAsyncContextManager[tuple[Hub, Client]]:
    """Run a hub with a certificate: its own, or of an authority (authority.pem)."""
    folder.mkdir()
    if is_own:
        certify(folder / "cert.pem", folder / "key.pem", "hub")
    else:
        certify_by_authority(folder)
    given = replace(
        options(folder / "home"), certificate=folder / "cert.pem", private_key=folder / "key.pem"
    )
    return owned(given)


@asynccontextmanager
async def owned(given: HubOptions) -> AsyncIterator[tuple[Hub, Client]]:
    """Run a hub; its owner's client uses the socket, without TLS."""
    with anyio.fail_after(PATIENCE):
        async with (
            Hub(given) as hub,
            serving(hub),
            client_of(given.home, "http://localhost") as owner,
        ):
            yield hub, owner


async def code_of(owner: Client) -> tuple[str, str]:
    """Return the address and the code of the command for another machine."""
    made = await owner.post("/api/machines/codes", status=201)
    _, _, url, code = made["command"].split(" ")
    return url, code


async def run(
    console: Console, *words: str, typed: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    def work() -> subprocess.CompletedProcess[str]:
        return console.run(*words, typed=typed, **variables)

    return await to_thread.run_sync(work)


async def test_one_line_joins_a_machine_to_a_hub_with_its_own_certificate(
    tmp_path: Path, console: Console
) -> None:
    async with tls_hub(tmp_path / "hub", is_own=True) as (_hub, owner):
        url, code = await code_of(owner)
        assert url.startswith("https://127.0.0.1:")
        joined = await run(console, "join", url, code, "--name", "build box")
        assert joined.returncode == 0, joined.stderr
        assert f"joined {url} as build box" in joined.stdout
        assert "can now run agents and commands on this machine as" in joined.stderr
        assert f"quarterdeck join --leave {url}" in joined.stderr
        (listed,) = (await owner.get("/api/machines"))["machines"]
        assert (listed["name"], listed["state"]) == ("build box", "connected")
        assert (console.home / "joined.json").stat().st_mode & 0o777 == 0o600

        status = await run(console, "status")
        assert status.returncode == 0, status.stdout
        assert url in status.stdout
        assert "connected for" in status.stdout
        again = await run(console, "join", url, code)
        assert again.returncode == 1
        assert "has joined" in again.stderr
        assert "already" in again.stderr

        await owner.call("DELETE", f"/api/machines/{listed['id']}", status=204)
        while [each.state for each in read_links(console.home)[1]] != ["removed"]:
            await anyio.sleep(0.02)
        status = await run(console, "status")
        assert "quarterdeck machines add" in status.stdout
        assert "removed this machine" in (console.home / "runner.log").read_text()

        url, code = await code_of(owner)  # a machine that was removed can join again
        joined = await run(console, "join", url, code, "--json")
        assert joined.returncode == 0, joined.stderr
        assert json.loads(joined.stdout)["hubs"][0]["state"] == "connected"
        left = await run(console, "join", "--leave")
        assert left.returncode == 0, left.stderr
        assert read_memberships(console.home) == ()
        await owner.until("/api/machines", lambda answer: answer["machines"][0]["state"] == "away")


async def test_a_certificate_of_an_authority_that_the_system_trusts_needs_no_pin(
    tmp_path: Path, console: Console
) -> None:
    async with tls_hub(tmp_path / "hub", is_own=False) as (_hub, owner):
        url, code = await code_of(owner)
        assert "." not in code
        refused = await run(console, "join", url, code)
        assert refused.returncode == 1
        assert "its certificate is not trusted" in refused.stderr
        assert "whole code" in refused.stderr
        assert read_memberships(console.home) == ()
        authority = str(tmp_path / "hub" / "authority.pem")
        joined = await run(console, "join", url, typed=f"{code}\n", SSL_CERT_FILE=authority)
        assert joined.returncode == 0, joined.stderr


async def test_everything_that_can_be_wrong_gets_a_sentence(
    tmp_path: Path, console: Console
) -> None:
    async with tls_hub(tmp_path / "hub", is_own=True) as (_hub, owner):
        url, code = await code_of(owner)
        port = url.rpartition(":")[2]
        short, _, pin = code.partition(".")
        other_pin = ("A" if pin[0] != "A" else "B") + pin[1:]
        cases: list[tuple[tuple[str, ...], int, str]] = [
            ((url, f"WRNG-CDEX.{pin}"), 1, "the code is wrong, already used or expired"),
            ((url, f"{short}.{other_pin}"), 1, "the pin of another certificate"),
            ((url, f"{short}.{pin[:20]}"), 2, "copy it whole"),
            ((url, short), 1, "its certificate is not trusted"),
            (("http://hub.example", short), 2, "is not encrypted"),
            ((f"http://127.0.0.1:{port}", short), 1, "cannot reach"),
            (("https://127.0.0.1:1", short), 1, "cannot reach"),
            (("ftp://x", short), 2, "is not the address of a hub"),
            ((url, "."), 2, "the code is empty"),
            (("--leave",), 1, "has joined no hub"),
        ]
        for words, status, sentence in cases:
            done = await run(console, "join", *words)
            assert done.returncode == status, (words, done.stderr)
            assert sentence in done.stderr, (words, done.stderr)
            assert "Traceback" not in done.stderr
        assert read_memberships(console.home) == ()
        assert not (console.home / "runner.json").exists()  # none was left running


async def test_a_hub_whose_certificate_has_expired_is_a_question_of_clocks(
    tmp_path: Path, console: Console
) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    certify_by_authority(folder, age=timedelta(days=30))
    given = replace(
        options(folder / "home"), certificate=folder / "cert.pem", private_key=folder / "key.pem"
    )
    async with owned(given) as (_hub, owner):
        url, code = await code_of(owner)
        authority = str(folder / "authority.pem")
        refused = await run(console, "join", url, code, SSL_CERT_FILE=authority)
        assert "check the clocks of both machines" in refused.stderr


async def test_a_server_that_is_no_hub_is_said_to_be_none(console: Console) -> None:
    async def answer(stream: Any) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            done = await run(console, "join", f"http://127.0.0.1:{port}", "ABCD-EFGH")
            tasks.cancel_scope.cancel()
    assert "no hub answers at" in done.stderr


def test_a_machine_does_not_join_its_own_hub(tmp_path: Path) -> None:
    console = Console(tmp_path)
    with console.hub() as hub:
        made = hub.call("POST", "/api/machines/codes", {})
        done = console.run("join", hub.url, made["code"])
        assert done.returncode == 1
        assert "own hub" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what is checked")
async def test_neither_the_code_nor_the_key_is_seen_by_others(
    tmp_path: Path, console: Console, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with tls_hub(tmp_path / "hub", is_own=True) as (hub, owner):
        hub.machine_links.accepting = None  # the command waits, and can be looked at
        url, code = await code_of(owner)
        command = [*COMMAND, "join", url, code, "--home", str(console.home)]
        async with await anyio.open_process(command, env=console.environ) as process:
            while not (found := read_memberships(console.home)):
                await anyio.sleep(0.02)
            secrets = (code.partition(".")[0], found[0].private_key)
            assert not [each for each in secrets if each in _command_lines()]
            hub.machine_links.accepting = hub.fleet.accepting
            assert await process.wait() == 0
    seen = _files(tmp_path)
    del seen["joined.json"]
    assert {"runner.log", "links.json", "hub.db"} <= set(seen)
    for secret in secrets:
        assert [name for name, content in seen.items() if secret.encode() in content] == []
        assert secret not in caplog.text


def _files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_bytes() for path in paths}


def _command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(found)

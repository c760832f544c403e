"""`quarterdeck relay` and `quarterdeck up --relay`, as processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.http.server import listening
from quarterdeck.relay import tunnel_key

pytestmark = pytest.mark.slow
PATIENCE = 60.0
DOMAIN = "relay.test"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "quarterdeck", *arguments]


@contextmanager
def started(
    home: Path, *arguments: str, given: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run a command until it has printed its facts, and kill it in the end."""
    with subprocess.Popen(
        command(*arguments, "--home", str(home), "--json"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home.parent)},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            if given is not None:
                process.stdin.write(given + "\n")
                process.stdin.close()
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def relay_at(home: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    named = ("--domain", DOMAIN, "--host", "127.0.0.1", "--port", str(port))
    with started(home, "relay", *named) as (process, facts):
        yield process, facts["enrolment"].replace("#", "?at=127.0.0.1#")


@contextmanager
def hub_of(
    home: Path, *arguments: str, given: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    try:
        with started(home, "up", "--port", "0", *arguments, given=given) as found:
            yield found
    finally:
        subprocess.run(
            command("down", "--home", str(home)),
            check=False,
            capture_output=True,
        )


def is_healthy(port: int, host: str) -> bool:
    """Ask the hub through the relay, as a phone does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            tls.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            return tls.recv(4_096).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def until_healthy(port: int, host: str) -> None:
    begun = time.monotonic()
    while not is_healthy(port, host):
        assert time.monotonic() - begun < PATIENCE, "the hub does not come back"
        time.sleep(0.05)


def free_port() -> int:
    with listening("127.0.0.1", 0) as listener:
        port: int = listener.getsockname()[1]
        return port


def host_of(home: Path) -> str:
    return f"{tunnel_key(home / 'relay.key').label}.{DOMAIN}"


def test_hub_and_relay_come_back_after_kill_9_and_no_secret_is_in_a_process(
    tmp_path: Path,
) -> None:
    home, port = tmp_path / "home", free_port()
    with ExitStack() as stack:
        relay, line = stack.enter_context(relay_at(tmp_path / "relay", port))
        with hub_of(home, "--relay", line) as (hub, _facts):
            until_healthy(port, host_of(home))
            secret = line.rpartition(".")[2].encode()
            arguments = Path(f"/proc/{hub.pid}/cmdline").read_bytes()
            assert b"relay.test" in arguments
            assert secret not in arguments
            assert secret in (home / "relay.json").read_bytes()
            relay.send_signal(signal.SIGKILL)
            relay.wait(PATIENCE)
            assert not is_healthy(port, host_of(home))
            stack.enter_context(relay_at(tmp_path / "relay", port))
            until_healthy(port, host_of(home))
            hub.send_signal(signal.SIGKILL)
            hub.wait(PATIENCE)
        with hub_of(home) as (_, facts):  # it remembers its relay, and its name
            until_healthy(port, host_of(home))
            assert facts["reach"]["ways"], "what phones need is reported"
        with hub_of(home, "--no-relay"):
            assert not (home / "relay.json").exists()
            assert not is_healthy(port, host_of(home))


def test_the_line_can_be_read_from_standard_input(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    with (
        relay_at(tmp_path / "relay", port) as (_, line),
        hub_of(home, "--relay", "-", given=line),
    ):
        until_healthy(port, host_of(home))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--relay", "relay.test"), "never enrolled"),
        (("up", "--relay", "http://relay.test"), "not the address of a relay"),
        (("up", "--agree-terms"), "name it with --relay"),
        (("up", "--relay", "relay.test", "--no-relay"), "contradict"),
        (("relay", "--domain", "192.0.2.1"), "not a DNS name"),
        (("relay", "--domain", "relay.test", "--max-hubs", "0"), "admits nothing"),
        (("relay", "--domain", "relay.test", "--host", "192.0.2.1"), "cannot listen"),
    ],
)
def test_what_cannot_work_is_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = subprocess.run(
        command(*arguments, "--home", str(tmp_path / "home"), "--port", "0"),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_line_is_printed_again_and_stays_the_same(tmp_path: Path) -> None:
    show = command("relay", "--domain", DOMAIN, "--home", str(tmp_path / "relay"), "--show")
    first, again, is_open = (
        subprocess.run([*show, *more], capture_output=True, text=True, check=True).stdout
        for more in ((), (), ("--open",))
    )
    assert first.startswith("https://relay.test#")
    assert again == first
    assert first.startswith(is_open.strip() + ".")

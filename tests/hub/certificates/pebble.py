"""pebble, the ACME authority that Let's Encrypt makes for tests, and DNS that leads it to us."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from quarterdeck.http.server import listening
from quarterdeck.hub.relay.certificates import self_signed
from quarterdeck.relay import AcmeSettings
from tests.relay.kit import PATIENCE
from tools.servers import server

MISSING = "pebble is not installed; python3 -m tools.servers installs it"


@dataclass(frozen=True)
class Pebble:
    """A running authority."""

    settings: AcmeSettings
    management: str
    """Where its own certificates are found."""


@asynccontextmanager
async def running_pebble(
    folder: Path, tls_port: int, *, seconds: int | None = None, **environ: str
) -> AsyncIterator[Pebble]:
    """Run an authority that checks names at 127.0.0.1 and this port."""
    program = server("pebble")
    if program is None:
        pytest.skip(MISSING)
    port, management = _free_port(), _free_port()
    certificate = _certified(folder)
    settings = {
        "listenAddress": f"127.0.0.1:{port}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(certificate),
        "privateKey": str(certificate),
        "httpPort": 1,
        "tlsPort": tls_port,
        "ocspResponderURL": "",
        "externalAccountBindingRequired": False,
    }
    if seconds is not None:
        settings["certificateValidityPeriod"] = seconds
    config = _written(folder / "pebble.json", {"pebble": settings})
    async with _dns() as dns:
        quick = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "30", **environ}
        command = [program, "-config", str(config), "-dnsserver", dns]
        with _process(command, quick, folder / "pebble.log"):
            await _until_open(port)
            directory = f"https://localhost:{port}/dir"
            yield Pebble(
                AcmeSettings(directory=directory, trusted=certificate, is_agreed=True),
                f"https://localhost:{management}",
            )


def _certified(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "pebble.pem"
    path.write_bytes(self_signed("localhost"))
    return path


def _written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _free_port() -> int:
    with listening("127.0.0.1", 0) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _process(command: list[str], environ: dict[str, str], log: Path) -> Iterator[None]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env={**os.environ, **environ}, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


async def _until_open(port: int) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port):
                    return
            except OSError:
                await anyio.sleep(0.02)


@asynccontextmanager
async def _dns() -> AsyncIterator[str]:
    """Answer every question for an IPv4 address with 127.0.0.1, and all others with nothing."""
    async with (
        await anyio.create_udp_socket(family=socket.AF_INET, local_host="127.0.0.1") as udp,
        anyio.create_task_group() as tasks,
    ):

        async def answer() -> None:
            async for query, (host, port) in udp:
                await udp.sendto(_answer(query), host, port)

        tasks.start_soon(answer)
        port = udp.extra(anyio.abc.SocketAttribute.local_port)
        yield f"127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


def _answer(query: bytes) -> bytes:
    end = query.index(b"\0", 12) + 5  # the name, then two bytes each for type and class
    question = query[12:end]
    is_ipv4 = question[-4:] == b"\0\1\0\1"
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + b"\0\0\0\0"
    found = b"\xc0\x0c\0\1\0\1\0\0\0\x01\0\x04\x7f\0\0\1" if is_ipv4 else b""
    return head + question + found

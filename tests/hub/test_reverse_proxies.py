"""The reverse proxies of the documents, for real: pairing, unbuffered streams, WebSockets.

The configuration of nginx is the one in docs/use/security.md. Caddy is tried where it is installed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.tls import TLSStream
from typing_extensions import override

from quarterdeck.http.server import listening
from quarterdeck.hub import Hub, serving
from quarterdeck.hub.relay.certificates import self_signed
from tests.hub.api.kit import options
from tests.hub.browser_keys import SigningBrowser, pair_browser
from tests.hub.served import Served, Wire, request
from tests.relay.kit import PATIENCE, trusting
from tools.servers import server

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
NAME = "desk.example"
PROXIES = ("nginx", "caddy") if server("caddy") else ("nginx",)


@dataclass(frozen=True)
class Proxied(Served):
    """A hub behind a proxy, as a phone reaches it."""

    certificate: Path

    @property
    @override
    def host(self) -> str:
        return f"{NAME}:{self.port}"

    @property
    @override
    def origin(self) -> str:
        return f"https://{self.host}"

    @asynccontextmanager
    @override
    async def connect(self) -> AsyncIterator[Wire]:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            secure: Any = await TLSStream.wrap(
                stream,
                hostname=NAME,
                ssl_context=trusting(self.certificate),
                standard_compatible=False,
            )
            yield Wire(secure)


def nginx_config(folder: Path, port: int, hub: int) -> list[str]:
    """Write the documented configuration around our ports; return the command."""
    text = (ROOT / "docs/use/security.md").read_text(encoding="utf-8")
    found = re.search(r"```text\n(map .+?\n}\n)\n(location .+?\n}\n)```", text, re.DOTALL)
    assert found is not None, "the documents have a configuration for nginx"
    location = found[2].replace("127.0.0.1:7272", f"127.0.0.1:{hub}")
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{found[1]}\n"
        f"server {{ listen 127.0.0.1:{port} ssl; server_name {NAME};\n"
        f"ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.pem;\n"
        f"{location} }} }}\n",
        encoding="utf-8",
    )
    return [server("nginx") or "nginx", "-c", str(path), "-p", str(folder)]


def caddy_config(folder: Path, port: int, hub: int) -> list[str]:
    path = folder / "Caddyfile"
    path.write_text(
        "{\n admin off\n auto_https off\n}\n"
        f"https://{NAME}:{port} {{\n bind 127.0.0.1\n tls {folder}/tls.pem {folder}/tls.pem\n"
        f" reverse_proxy 127.0.0.1:{hub}\n}}\n",
        encoding="utf-8",
    )
    return [server("caddy") or "caddy", "run", "--config", str(path), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def free_port() -> int:
    with listening("127.0.0.1", 0) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def behind(proxy: str, folder: Path) -> AsyncIterator[tuple[Hub, Proxied]]:
    """Serve a hub behind a proxy."""
    port = free_port()
    (folder / "tls.pem").write_bytes(self_signed(NAME))
    wanted = replace(options(folder / "home"), behind_proxy=True, allowed_hosts=(f"{NAME}:{port}",))
    async with Hub(wanted) as hub, serving(hub) as address:
        config = nginx_config if proxy == "nginx" else caddy_config
        with running(config(folder, port, address.port), folder / "proxy.log"):
            phone = Proxied(port, "h11", folder / "tls.pem")
            await _until_open(phone)
            yield hub, phone


async def _until_open(phone: Proxied) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                if (await phone.ask("GET /healthz HTTP/1.1")).status == 200:
                    return
            except OSError:
                pass
            await anyio.sleep(0.05)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_documented_proxy_works(tmp_path: Path, proxy: str) -> None:
    async with behind(proxy, tmp_path) as (hub, phone):
        assert hub.auth.public_origin == phone.origin
        _, codes = await hub.auth.pairings.create(scope="approve")
        browser: SigningBrowser = (await pair_browser(phone, codes.long))[0]
        me = (await browser.call("GET", "/api/device")).json
        assert me["lastAddress"] == "127.0.0.1"
        signed = await browser.line("GET", "/api/events?from_seq=0")
        async with phone.connect() as wire:
            lines = (f"Origin: {phone.origin}", "Sec-Fetch-Site: same-origin", signed)
            await wire.send(request("GET /api/events?from_seq=0 HTTP/1.1", *lines, host=phone.host))
            with anyio.fail_after(PATIENCE):  # the stream does not end: a buffer would keep it
                status, _ = await wire.head()
                assert status == 200
                assert await wire.until(b"\n\n")
        assert (await browser.upgrade("/api/envelope")).status == 101
        foreign = await phone.ask("GET /api/device HTTP/1.1", "Origin: https://evil.example")
        assert foreign.status == 403

"""Fetching pages: what comes back, and that nothing of this machine's network can be reached."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from quarterdeck.agent.builtin.tools.fetch import (
    MAX_BYTES,
    Fetcher,
    Page,
    Redirect,
    checked_url,
    readable,
)
from quarterdeck.errors import ToolFailed
from tests.agent.builtin.driver import ALLOW, ALWAYS, at_work, setup_for, texts_of


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # type: ignore[explicit-override]  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        port = self.connection.getsockname()[1]
        redirects = {
            "/away": f"http://localhost:{port}/secret",
            "/on": "/page",
            "/for-ever": "/for-ever",
            "/file": "file:///etc/passwd",
        }
        if self.path in redirects:
            self._answer(302, b"", "text/plain", redirects[self.path])
        elif self.path == "/page":
            self._answer(200, b"<p>Hello <b>you</b><script>no()</script></p>", "text/html")
        elif self.path == "/big":
            self._answer(200, b"x" * (MAX_BYTES + 5), "text/plain")
        elif self.path == "/picture":
            self._answer(200, b"\x89PNG", "image/png")
        elif self.path == "/slow":
            self.server.stop.wait(30)  # type: ignore[attr-defined]
        else:
            self._answer(404, b"nothing here", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.stop = threading.Event()  # type: ignore[attr-defined]  # for the handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.stop.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def address() -> Iterator[str]:
    with site() as address:
        yield address


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://127.0.0.1/",
        "http://",
        "http://user:word@example.org/",
        "http://example.org/\r\nHost: other",
        "http://example.org:99999/",
    ],
)
def test_only_plain_addresses_of_the_web_are_fetched(url: str) -> None:
    with pytest.raises(ToolFailed):
        checked_url(url)


def test_an_address_may_be_written_without_its_scheme() -> None:
    assert checked_url("example.org/ä?x=1#part") == "https://example.org/%C3%A4?x=1"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "0.0.0.0", "2130706433", "[::1]"])
async def test_this_machine_is_not_reached_by_any_name(address: str, name: str) -> None:
    port = address.rpartition(":")[2]
    with pytest.raises(ToolFailed):
        await Fetcher(allows_private=False).fetch(f"http://{name}:{port}/page")


@pytest.mark.anyio
async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    fetcher = Fetcher(allows_private=False, resolve=lambda *_: ["93.184.216.34", "127.0.0.1"])
    with pytest.raises(ToolFailed, match="which is not allowed"):
        await fetcher.fetch("http://rebind.example/")


@pytest.mark.anyio
async def test_a_redirect_is_followed_at_the_same_site_and_reported_to_another(
    address: str,
) -> None:
    fetcher = Fetcher(allows_private=True)
    page = await fetcher.fetch(f"{address}/on")
    assert isinstance(page, Page)
    assert page.url == f"{address}/page"
    away = await fetcher.fetch(f"{address}/away")
    assert away == Redirect(f"{address.replace('127.0.0.1', 'localhost')}/secret")
    for path, reason in (("/for-ever", "redirects for ever"), ("/file", "only http and https")):
        with pytest.raises(ToolFailed, match=reason):
            await fetcher.fetch(address + path)


@pytest.mark.anyio
async def test_a_page_is_cut_where_it_is_too_long(address: str) -> None:
    page = await Fetcher(allows_private=True).fetch(f"{address}/big")
    assert isinstance(page, Page)
    assert page.is_cut
    assert len(page.content) == MAX_BYTES


@pytest.mark.anyio
async def test_fetching_is_cancelled_at_once(address: str) -> None:
    with anyio.move_on_after(0.2) as scope:
        await Fetcher(allows_private=True).fetch(f"{address}/slow")
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_page_is_fetched_after_permission(tmp_path: Path, address: str) -> None:
    async with at_work(tmp_path, setup_for(fetch_private_addresses=True)) as driver:
        permissions = driver.answer_permissions(ALWAYS, ALLOW)
        done = await driver.use("fetch", f'{{"url": "{address}/page"}}')
        assert texts_of(done) == "[status 200]\nHello you"
        assert permissions[0]["toolCall"]["kind"] == "fetch"
        picture = await driver.use("fetch", f'{{"url": "{address}/picture"}}')
        assert "is image/png, not text" in texts_of(picture)
        assert len(permissions) == 1  # the same site
        await driver.use("fetch", '{"url": "http://127.0.0.1:1/"}')
        assert len(permissions) == 2


@pytest.mark.anyio
async def test_private_addresses_are_refused_unless_the_settings_allow_them(
    tmp_path: Path, address: str
) -> None:
    async with at_work(tmp_path) as driver:
        done = await driver.use("fetch", f'{{"url": "{address}/page"}}')
        assert "set fetch_private_addresses" in texts_of(done)


def test_a_page_becomes_readable_text() -> None:
    html = (
        "<head><title>x</title></head><h1>Top</h1><p>See <a href='/a'>this</a>.<style>b{}</style>"
    )
    assert readable(html) == "Top\n\nSee [this](/a)."

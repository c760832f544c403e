"""The page's files, from a hub on a real port."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.hub.page.files import PAGE, page_files


@asynccontextmanager
async def client_without_token(home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that sends no token."""
    with anyio.fail_after(30):
        async with (
            Hub(HubOptions(home=home, port=0)) as hub,
            serving(hub) as address,
            httpx2.AsyncClient(base_url=address.url) as client,
        ):
            yield client


def hashed(kind: str) -> str:
    return next(path for path in page_files() if re.fullmatch(rf"/assets/.+\.{kind}", path))


async def test_without_a_token_only_the_page_is_served(tmp_path: Path) -> None:
    async with client_without_token(tmp_path / "home") as client:
        page = await client.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.content == (PAGE / "index.html").read_bytes()
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert (await client.get("/api/sessions")).status_code == 401
        assert (await client.get("/index.html")).status_code == 401


async def test_a_hashed_file_is_immutable_and_the_page_is_revalidated(tmp_path: Path) -> None:
    async with client_without_token(tmp_path / "home") as client:
        script = await client.get(hashed("js"))
        page = await client.get("/")
        worker = await client.get("/sw.js")
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (page.headers["cache-control"], worker.headers["cache-control"]) == ("no-cache",) * 2
    assert (again.status_code, again.content) == (304, b"")


async def test_text_is_compressed_for_clients_that_accept_gzip(tmp_path: Path) -> None:
    path = hashed("js")
    async with client_without_token(tmp_path / "home") as client:
        squeezed = await client.get(path, headers={"accept-encoding": "br, gzip;q=0.8"})
        plain = await client.get(path, headers={"accept-encoding": "gzip;q=0, identity"})
        head = await client.head(path, headers={"accept-encoding": "gzip"})
    file = page_files()[path]
    assert squeezed.headers["content-encoding"] == "gzip"
    assert squeezed.content == file.content
    assert file.compressed is not None
    assert gzip.decompress(file.compressed) == file.content
    assert "content-encoding" not in plain.headers
    assert plain.content == file.content
    assert head.headers["content-length"] == str(len(file.compressed))


@pytest.mark.parametrize("path", ["/assets/none.js", "/assets/..%2findex.html", "/icons/none.png"])
async def test_a_path_outside_the_page_is_not_served(tmp_path: Path, path: str) -> None:
    async with client_without_token(tmp_path / "home") as client:
        assert (await client.get(path)).status_code in (400, 404)


async def test_the_page_is_not_served_under_other_names_of_this_computer(tmp_path: Path) -> None:
    async with client_without_token(tmp_path / "home") as client:
        response = await client.get("/", headers={"host": "evil.example"})
    assert response.status_code == 421


def test_the_page_has_no_inline_scripts_and_no_foreign_resources() -> None:
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert not re.search(r"""\son\w+=|style=|(?:src|href)=["'](?:https?:)?//""", page)


def test_a_folder_without_a_page_has_no_files(tmp_path: Path) -> None:
    assert page_files(tmp_path / "none") == {}

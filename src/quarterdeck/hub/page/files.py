"""The files of the page: built from `web/` into this package, read once and held in memory.

They contain no secrets and are served without a token; the guard still checks Host and Origin.
Files under `/assets/` have a digest in their names and are cached for ever; all others are
revalidated by ETag. Routes within the page are in the fragment of its URL, which a browser does not
send.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.hub.api.endpoint import Asgi, Endpoint, error_response

PAGE: Final = Path(__file__).parent / "built"
INDEX: Final = "/index.html"

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_REVALIDATE: Final = "no-cache"
_MIN_COMPRESSED: Final = 1024  # bytes; less is not worth compressing
_MISSING: Final = (
    "the page is not built; install Quarterdeck from a wheel, or run: python3 dev.py setup"
)


@dataclass(frozen=True)
class File:
    """One file with its headers, also compressed where that pays."""

    content: bytes
    compressed: bytes | None
    headers: Mapping[str, str]


@cache
def page_files(folder: Path = PAGE) -> Mapping[str, File]:
    """Return all files of the page by path; empty if the page was not built."""
    if not folder.is_dir():
        return {}
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {f"/{path.relative_to(folder).as_posix()}": _file(path, folder) for path in paths}


def _file(path: Path, folder: Path) -> File:
    content = path.read_bytes()
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    is_hashed = path.parent == folder / "assets"
    headers = {
        "content-type": kind or "application/octet-stream",
        "cache-control": _IMMUTABLE if is_hashed else _REVALIDATE,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "vary": "accept-encoding",
    }
    is_text = headers["content-type"].startswith(("text/", "image/svg", "application/manifest"))
    compressed = (
        gzip.compress(content, 9, mtime=0) if is_text and len(content) > _MIN_COMPRESSED else None
    )
    return File(content, compressed, headers)


def page_endpoints(folder: Path = PAGE) -> list[Endpoint]:
    """Return the page's part of the route table."""
    app = _app(folder)
    return [
        Endpoint(method=method, path=path, scope=None, app=app, summary=summary, tag="page")
        for path, summary in _PATHS.items()
        for method in ("GET", "HEAD")
    ]


_PATHS: Final = {
    "/": "The page",
    "/manifest.webmanifest": "The web app manifest",
    "/sw.js": "The page's service worker",
    "/favicon.ico": "An icon",
    "/favicon.svg": "An icon",
    "/assets/{name}": "A file of the page; its name contains a digest",
    "/icons/{name}": "An icon",
}


def _app(folder: Path) -> Asgi:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        files = page_files(folder)
        path = scope["path"]
        file = files.get(INDEX if path == "/" else path)
        if file is None:
            message = _MISSING if not files else f"the page has no file {path!r}"
            response = error_response(404, "quarterdeck/not-found", message)
        else:
            response = _response(scope, file)
        await response(scope, receive, send)

    return app


def _response(scope: AsgiScope, file: File) -> Response:
    headers_sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
    tags = [
        each.strip().removeprefix("W/")
        for each in headers_sent.get(b"if-none-match", "").split(",")
    ]
    headers = dict(file.headers)
    if headers["etag"] in tags:
        del headers["content-type"]
        return Response(status_code=304, headers=headers)
    if file.compressed is not None and _accepts_gzip(headers_sent.get(b"accept-encoding", "")):
        headers["content-encoding"] = "gzip"
        return _body(scope, file.compressed, headers)
    return _body(scope, file.content, headers)


def _body(scope: AsgiScope, content: bytes, headers: dict[str, str]) -> Response:
    headers["content-length"] = str(len(content))
    return Response(b"" if scope["method"] == "HEAD" else content, headers=headers)


def _accepts_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False

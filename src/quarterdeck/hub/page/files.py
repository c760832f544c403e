"""The files of the page: built from `web/`, in this package, read once and kept.

Nothing in them is secret, so everybody may have them; the guard still checks whom they were asked
of (`rules`). Files under `/assets/` carry a digest in their names and never change. Places within
the page are in the fragment of its address, which a browser keeps to itself.
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

from quarterdeck.hub.api.endpoint import Asgi, Endpoint, refusal

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
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
_SMALL: Final = 1024  # bytes; less is not worth compressing
_MISSING: Final = (
    "the page is not part of this installation; install a wheel, or run python3 dev.py setup"
)


@dataclass(frozen=True)
class File:
    """One file, ready to be sent."""

    content: bytes
    compressed: bytes | None
    headers: Mapping[str, str]


@cache
def page_files(folder: Path = PAGE) -> Mapping[str, File]:
    """Read all files of the page, by their paths; empty if it was not built."""
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
        "cache-control": _FOR_EVER if is_hashed else _ASK_AGAIN,
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "vary": "accept-encoding",
    }
    is_text = headers["content-type"].startswith(("text/", "image/svg", "application/manifest"))
    compressed = gzip.compress(content, 9, mtime=0) if is_text and len(content) > _SMALL else None
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
    "/manifest.webmanifest": "What an installed page is called",
    "/sw.js": "The page's service worker",
    "/favicon.ico": "An icon",
    "/favicon.svg": "An icon",
    "/assets/{name}": "A file of the page; its name changes with it",
    "/icons/{name}": "An icon",
}


def _app(folder: Path) -> Asgi:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        files = page_files(folder)
        path = scope["path"]
        file = files.get(INDEX if path == "/" else path)
        if file is None:
            message = _MISSING if not files else f"there is no file {path!r} in the page"
            response = refusal(404, "quarterdeck/not-found", message)
        else:
            response = _answer(scope, file)
        await response(scope, receive, send)

    return app


def _answer(scope: AsgiScope, file: File) -> Response:
    asked = {name: value.decode("latin-1") for name, value in scope["headers"]}
    tags = [each.strip().removeprefix("W/") for each in asked.get(b"if-none-match", "").split(",")]
    headers = dict(file.headers)
    if headers["etag"] in tags:
        del headers["content-type"]
        return Response(status_code=304, headers=headers)
    if file.compressed is not None and _takes_gzip(asked.get(b"accept-encoding", "")):
        headers["content-encoding"] = "gzip"
        return _body(scope, file.compressed, headers)
    return _body(scope, file.content, headers)


def _body(scope: AsgiScope, content: bytes, headers: dict[str, str]) -> Response:
    headers["content-length"] = str(len(content))
    return Response(b"" if scope["method"] == "HEAD" else content, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.strip().replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False

"""Registries of packages on this machine: npm's, PyPI's, and files; what is asked is recorded."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override


class LocalRegistry:
    """Answers with `files`, by path; a file may have an ETag."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.asked: list[tuple[str, str | None]] = []
        """Paths, and the range or the ETag that was sent."""
        self.cut_after: int | None = None
        """Ends each answer after so many bytes."""
        self.url = ""

    def add_npm(
        self, name: str, version: str, program: str, *, integrity: str | None = None
    ) -> None:
        """Add a package whose only command, of the same name, is a script."""
        own = name.rpartition("/")[2]
        facts = {"name": name, "version": version, "bin": {own: "run"}}
        tarball = packed({"package/package.json": json.dumps(facts), "package/run": program})
        path = f"/{name}/-/{own}-{version}.tgz"
        self.files[path] = tarball
        digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        entry = {
            **facts,
            "dist": {
                "tarball": f"{self.url}{path}",
                "integrity": integrity or f"sha512-{digest}",
            },
        }
        known = json.loads(self.files.get(f"/{name}", b'{"versions": {}}'))
        versions = {**known["versions"], version: entry}
        document = {"name": name, "dist-tags": {"latest": version}, "versions": versions}
        self.files[f"/{name}"] = json.dumps(document).encode()

    def add_wheel(self, name: str, version: str, program: str) -> None:
        """Add a package whose only command, of the same name, runs `main` of its module."""
        folder = f"{name}-{version}.dist-info"
        content = {
            f"{name}.py": program,
            f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{folder}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{folder}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
            f"{folder}/RECORD": "",
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            for path, text in content.items():
                wheel.writestr(path, text)
        file = f"{name}-{version}-py3-none-any.whl"
        self.files[f"/files/{file}"] = buffer.getvalue()
        digest = hashlib.sha256(buffer.getvalue()).hexdigest()
        link = f'<a href="/files/{file}#sha256={digest}">{file}</a>'
        self.files[f"/simple/{name}/"] = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()


def packed(content: dict[str, str], kind: str = "w:gz") -> bytes:
    """Return a tar archive of programs."""
    buffer = io.BytesIO()
    mode: Any = kind
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for path, text in content.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


@contextmanager
def serving_registry() -> Iterator[LocalRegistry]:
    registry = LocalRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0].replace("%2f", "/").replace("%2F", "/")
            sent = self.headers.get("Range") or self.headers.get("If-None-Match")
            registry.asked.append((path, sent))
            content = registry.files.get(path)
            if content is None:
                self._answer(404, b"{}")
            elif sent is not None and sent == registry.etags.get(path):
                self._answer(304, b"")
            elif self.headers.get("Range"):
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                self._answer(206 if start < len(content) else 416, content[start:])
            else:
                self._answer(200, content, registry.etags.get(path))

        def _answer(self, status: int, content: bytes, etag: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            kind = "text/html" if self.path.startswith("/simple") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            if etag is not None:
                self.send_header("ETag", etag)
            self.end_headers()
            cut = registry.cut_after
            self.wfile.write(content if cut is None else content[:cut])
            if cut is not None and cut < len(content):
                self.close_connection = True

        @override
        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

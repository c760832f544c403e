"""A program that takes a port of this computer, and records everything that it is sent."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from typing_extensions import override


@dataclass(frozen=True)
class Recorded:
    """One request, as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""

    def replayed_at(self, url: str) -> int:
        """Send it to a hub, as it is but for its Host; return the status."""
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        dropped = {"host", "content-length", "connection", "accept-encoding"}
        headers = {n: v for n, v in self.headers.items() if n.lower() not in dropped}
        try:
            connection.request(self.method, self.path, self.body or None, headers)
            return connection.getresponse().status
        finally:
            connection.close()


@dataclass
class HostileServer:
    """What was received, and what is answered."""

    port: int
    received: list[Recorded] = field(default_factory=list)
    answers: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    """Status, type and content by path without its query; "*" is every other path."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> tuple[int, str, bytes]:
        found = self.answers.get(urlsplit(path).path) or self.answers.get("*")
        return found or (404, "text/plain", b"")


@contextmanager
def hostile_server(port: int = 0) -> Iterator[HostileServer]:
    """Listen at a port of 127.0.0.1 and record."""
    server = ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler)
    hostile = HostileServer(server.server_address[1])

    class Recording(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _record(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = dict(self.headers.items())
            body = self.rfile.read(length)
            hostile.received.append(Recorded(self.command, self.path, headers, body))
            status, content_type, content = hostile.answer(self.path)
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(content)))
            # Whatever makes a browser send more.
            self.send_header("access-control-allow-origin", self.headers.get("origin") or "*")
            self.send_header("access-control-allow-credentials", "true")
            self.send_header("access-control-allow-headers", "*, authorization, content-type")
            self.send_header("access-control-allow-methods", "*")
            self.send_header("set-cookie", "planted=1; path=/")
            self.send_header("connection", "close")  # it gives its port back when it ends
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = _record  # noqa: N815

        @override
        def log_message(self, *_: object) -> None:
            pass

    server.RequestHandlerClass = Recording
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield hostile
    finally:
        server.shutdown()
        server.server_close()

"""Requests to pinned addresses, and to an application in this process."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import CommandFailed, HubDeclined
from quarterdeck.http import client as http_client
from quarterdeck.http.certificates import trust
from quarterdeck.http.client import (
    EmbeddedExchange,
    HttpExchange,
    HubApi,
    OutgoingRequest,
    RequestFailed,
    SocketExchange,
    send_request,
)
from quarterdeck.http.peers import OWN_PROCESS, accepted_connection
from quarterdeck.http.unix_sockets import listening_unix
from tests.certificates import certify


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # type: ignore[explicit-override]  # noqa: A002
        """Log nothing."""

    def do_GET(self) -> None:
        body = (self.headers["Host"] or "").encode() + b" " + self.path.encode()
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def site(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def get(url: str, *addresses: str, max_bytes: int = 1000) -> http_client.ReceivedResponse:
    request = OutgoingRequest(method="GET", url=url)
    return await send_request(request, addresses, max_bytes=max_bytes, seconds=10.0)


async def test_a_request_goes_to_the_address_and_names_the_host() -> None:
    with site() as port:
        response = await get(f"http://name.example:{port}/a?b=c", "127.0.0.1")
    assert (response.status, response.body) == (200, f"name.example:{port} /a?b=c".encode())


async def test_the_next_address_is_tried_when_one_does_not_accept() -> None:
    with site() as port:  # at one address only
        response = await get(f"http://name.example:{port}/", "127.0.0.2", "127.0.0.1")
    assert response.status == 200


async def test_without_an_address_that_accepts_a_request_fails() -> None:
    for addresses in ((), ("127.0.0.1",)):
        with pytest.raises(RequestFailed):
            await get("http://name.example:1/", *addresses)


async def test_a_long_body_is_truncated_and_a_redirect_is_not_followed() -> None:
    with site() as port:
        response = await get(f"http://name.example:{port}/away", "127.0.0.1", max_bytes=4)
    assert (response.status, response.body, response.is_truncated) == (302, b"name", True)
    assert response.headers["location"] == "http://127.0.0.1:1/"


@pytest.mark.parametrize(("name", "is_trusted"), [("name.example", True), ("other.test", False)])
async def test_the_certificate_must_be_for_the_name_and_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_trusted: bool
) -> None:
    certificate, key = tmp_path / "a.pem", tmp_path / "a.key"
    certify(certificate, key, "name.example")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(http_client, "_system_trust", lambda: trusting)
    with site(server) as port:
        if is_trusted:
            assert (await get(f"https://{name}:{port}/", "127.0.0.1")).status == 200
        else:
            with pytest.raises(RequestFailed, match=r"(?i)certificate"):
                await get(f"https://{name}:{port}/", "127.0.0.1")


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with site() as port:
        assert (await get(f"http://name.example:{port}/", "127.0.0.1")).status == 200
        exchange = HttpExchange(f"http://127.0.0.1:{port}", "t")
        assert await exchange.send("GET", "/x", None) == (200, f"127.0.0.1:{port} /x".encode())


async def test_a_hub_that_does_not_answer_is_a_sentence() -> None:
    with pytest.raises(CommandFailed, match=r"the hub at http://127\.0\.0\.1:1 does not answer"):
        await HubApi(HttpExchange("http://127.0.0.1:1", "t")).get("/api/device")


async def test_a_hub_that_ends_in_the_middle_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    with listening_unix(path) as listener:

        def accept_and_close() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=accept_and_close)
        thread.start()
        with pytest.raises(CommandFailed) as failed:
            await HubApi(SocketExchange(path)).get("/api/device")
        thread.join()
    said = str(failed.value)
    assert said.endswith("; run quarterdeck doctor for details")
    assert ".;" not in said
    assert "Errno" not in said


async def test_an_embedded_application_gets_what_a_socket_would_carry() -> None:
    seen: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    api = HubApi(EmbeddedExchange(app))
    assert await api.post("/api/sessions/~YS9i?x=1", {"a": [1]}) == {"a": [1]}
    scope = seen[0]
    headers = dict(scope["headers"])
    assert (scope["path"], scope["raw_path"]) == ("/api/sessions/~YS9i", b"/api/sessions/~YS9i")
    assert (scope["method"], scope["query_string"]) == ("POST", b"x=1")
    assert headers[b"host"] == b"localhost"
    assert b"authorization" not in headers
    assert accepted_connection(scope) is OWN_PROCESS
    assert headers[b"content-type"] == b"application/json"


async def test_an_error_of_a_hub_keeps_its_code_and_its_message() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        body = b'{"error": {"code": "quarterdeck/not-found", "message": "none"}}'
        await send({"type": "http.response.body", "body": body})

    with pytest.raises(HubDeclined) as caught:
        await HubApi(EmbeddedExchange(app)).get("/x")
    assert (caught.value.status, caught.value.code) == (404, "quarterdeck/not-found")


async def test_a_hub_is_trusted_by_its_own_certificate_alone(tmp_path: Path) -> None:
    certificate, key = tmp_path / "a.pem", tmp_path / "a.key"
    certify(certificate, key, "desk.example")
    other, other_key = tmp_path / "b.pem", tmp_path / "b.key"
    certify(other, other_key, "desk.example")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    assert trust(certificate).check_hostname is False
    with site(server) as port:
        url = f"https://127.0.0.1:{port}"
        assert (await HttpExchange(url, "t", certificate).send("GET", "/", None))[0] == 200
        with pytest.raises(CommandFailed, match="does not answer"):
            await HttpExchange(url, "t", other).send("GET", "/", None)


def test_httpx_is_not_imported_before_the_first_request() -> None:
    program = "import quarterdeck.http.client, sys; assert 'httpx' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)

"""Requests to a hub: to one that is running, over HTTP, or to one in this process."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from anyio import to_thread

from quarterdeck.errors import CommandFailed, HubDeclined, JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

_SECONDS: Final = 60.0  # for an answer: an agent may have to be started for it
_SETTLED: Final = 400
_PEM_END: Final = "-----END CERTIFICATE-----"

Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


class Exchange(Protocol):
    """Carries one request."""

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]: ...


class HubApi:
    """The API of a hub, as the owner of this computer uses it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self.call("POST", path, {} if body is None else body)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for something and return the answer.

        Raises:
            HubDeclined: if the hub refuses.
            CommandFailed: if it cannot be reached.
        """
        content = await self.read(method, path, body)
        return decode_json(content) if content else None

    async def read(self, method: str, path: str, body: Any = None) -> bytes:
        """Ask for something and return the answer as it came."""
        sent = None if body is None else encode_json(body)
        status, content = await self._exchange.send(method, path, sent)
        if status >= _SETTLED:
            raise _declined(status, content)
        return content


def _declined(status: int, content: bytes) -> HubDeclined:
    try:
        error = decode_json(content)["error"]
        return HubDeclined(status, str(error["code"]), str(error["message"]))
    except (JsonInvalid, KeyError, TypeError):
        return HubDeclined(status, "", f"the hub answered with status {status} and no sentence")


class HttpExchange:
    """A hub that is running; a connection for each request."""

    def __init__(self, url: str, token: str, certificate: Path | None = None) -> None:
        parts = urlsplit(url)
        self._url = url
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._context = trust(certificate) if parts.scheme == "https" else None

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        return await to_thread.run_sync(self._send, method, path, body, abandon_on_cancel=True)

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._context is None:
            connection = HTTPConnection(self._host, self._port, timeout=_SECONDS)
        else:
            connection = HTTPSConnection(
                self._host, self._port, timeout=_SECONDS, context=self._context
            )
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException) as error:
            reason = f"the hub at {self._url} does not answer: {error}"
            raise CommandFailed(f"{reason}; quarterdeck doctor tells more") from error
        finally:
            connection.close()


def trust(certificate: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the hub's own certificate, whatever its name, and no other.

    Without one to compare with, the usual authorities decide.
    """
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is one certificate, not a name, that is trusted
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    text = certificate.read_text(encoding="ascii", errors="replace")
    context.load_verify_locations(cadata=text.partition(_PEM_END)[0] + _PEM_END + "\n")
    return context


class EmbeddedExchange:
    """A hub in this process: the same application, without a socket."""

    def __init__(self, app: Application, token: str, authority: str) -> None:
        self._app = app
        self._headers = [
            (b"host", authority.encode()),
            (b"authorization", f"Bearer {token}".encode()),
            (b"accept", b"application/json"),
        ]
        host, _, port = authority.rpartition(":")
        self._server = (host, int(port))

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        messages = [{"type": "http.request", "body": body or b"", "more_body": False}]
        status, parts = 0, []

        async def receive() -> MutableMapping[str, Any]:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(self._scope(method, path, body), receive, send)
        return status, b"".join(parts)

    def _scope(self, method: str, path: str, body: bytes | None) -> MutableMapping[str, Any]:
        headers = list(self._headers)
        if body is not None:
            headers += [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ]
        place = urlsplit(path)
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(place.path),
            "raw_path": place.path.encode(),
            "root_path": "",
            "query_string": place.query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": self._server,
            "state": {},
            "extensions": {},
        }

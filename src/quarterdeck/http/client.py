"""HTTP requests, on httpx.

Three callers share it: commands that talk to a hub, web push, and the built-in agent's `fetch`.
Each request has a client, and so a connection, of its own: requests are rare here, and a kept
connection would need an owner that closes it. Proxies and certificates of the environment
are not used (`trust_env`): a proxy would resolve names itself, past the check for public addresses.

*Pinned requests.* `send_request` connects to addresses that the caller has resolved and checked,
while the Host header, SNI and the verification of the certificate use the name of the URL. The
addresses are tried in order until one accepts the connection; a request is never sent twice.

*Embedded hub.* `EmbeddedExchange` calls an ASGI application in this process through httpx's
transport for it, so an embedded hub and one behind a socket receive the same requests.

httpx takes longer to import than everything else a command needs, so it is imported with the first
request, by `_load`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

from quarterdeck.errors import CommandFailed, HubDeclined, JsonInvalid
from quarterdeck.http.asgi import Application, Message, Receive, Send
from quarterdeck.http.certificates import trust
from quarterdeck.http.peers import own_scope
from quarterdeck.http.unix_sockets import check_listener, reachable
from quarterdeck.jsontext import decode_json, encode_json

if TYPE_CHECKING:
    import httpx

_HUB_SECONDS: Final = 60.0  # for an answer: an agent may have to be started for it
_FIRST_ERROR: Final = 400
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
LOCAL_URL: Final = "http://localhost"
"""A hub behind its Unix socket."""
Trace = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Called by httpx at each step of a request."""
_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity"}


class RequestFailed(Exception):
    """No response was received; `str()` is the reason."""


@dataclass(frozen=True, kw_only=True)
class OutgoingRequest:
    """A request to a server whose addresses are known."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class ReceivedResponse:
    """A response, its body read up to a limit."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    is_truncated: bool


async def send_request(
    request: OutgoingRequest,
    addresses: Sequence[str],
    *,
    max_bytes: int,
    seconds: float,
    context: ssl.SSLContext | None = None,
) -> ReceivedResponse:
    """Send a request to the first of `addresses` that accepts a connection.

    `context` decides which certificates are accepted; by default those of the system.

    Redirects are not followed. `seconds` bounds each wait for the network; a bound on the whole is
    the caller's cancel scope.

    Raises:
        RequestFailed: if no address accepts the connection, or the exchange fails.
    """
    httpx = _load()
    parts = urlsplit(request.url)
    usual = _system_trust if parts.scheme == "https" else _no_trust
    transport = httpx.AsyncHTTPTransport(
        verify=usual() if context is None else context, trust_env=False
    )
    failure = ""  # of the first address: the others are often of a kind that this machine lacks
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=seconds) as client:
        for address in addresses:
            pinned = _pinned(client, request, address)
            try:
                response = await client.send(pinned, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = failure or _reason(error)
                continue
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise RequestFailed(_reason(error)) from error
            try:
                return await _read(response, max_bytes)
            except httpx.HTTPError as error:
                raise RequestFailed(_reason(error)) from error
            finally:
                await response.aclose()
    raise RequestFailed(failure or "it has no address")


def _pinned(client: httpx.AsyncClient, request: OutgoingRequest, address: str) -> httpx.Request:
    parts = urlsplit(request.url)
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = f"[{address}]" if ":" in address else address
    return client.build_request(
        request.method,
        urlunsplit((parts.scheme, f"{host}:{port}", parts.path or "/", parts.query, "")),
        headers={
            "host": _ascii_authority(parts),
            "accept-encoding": "identity",
            "connection": "close",
            **request.headers,
        },
        content=request.body,
        extensions={"sni_hostname": parts.hostname} if parts.scheme == "https" else None,
    )


def _ascii_authority(parts: SplitResult) -> str:
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name.encode("idna").decode()
    return host if parts.port is None else f"{host}:{parts.port}"


async def _read(response: httpx.Response, max_bytes: int) -> ReceivedResponse:
    body = bytearray()
    async with aclosing(response.aiter_raw()) as parts:  # type: ignore[type-var]  # a generator
        async for part in parts:
            body += part
            if len(body) > max_bytes:
                break
    return ReceivedResponse(
        status=response.status_code,
        reason=response.reason_phrase,
        headers=dict(response.headers),
        body=bytes(body[:max_bytes]),
        is_truncated=len(body) > max_bytes,
    )


class Exchange(Protocol):
    """Carries one request to a hub."""

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]: ...


class HubApi:
    """A hub's HTTP API, as commands use it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self.call("POST", path, {} if body is None else body)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the decoded response.

        Raises:
            HubDeclined: if the hub rejects it.
            CommandFailed: if the hub does not respond.
        """
        content = await self.read(method, path, body)
        return decode_json(content) if content else None

    async def read(self, method: str, path: str, body: Any = None) -> bytes:
        """Send a request and return the body of the response as received."""
        sent = None if body is None else encode_json(body)
        status, content = await self._exchange.send(method, path, sent)
        if status >= _FIRST_ERROR:
            raise _declined(status, content)
        return content


def _declined(status: int, content: bytes) -> HubDeclined:
    try:
        error = decode_json(content)["error"]
        return HubDeclined(status, str(error["code"]), str(error["message"]))
    except (JsonInvalid, KeyError, TypeError):
        return HubDeclined(status, "", f"the hub answered with status {status} and no message")


class HttpExchange:
    """Carries requests to a hub at a URL."""

    def __init__(
        self,
        url: str,
        token: str | None,
        certificate: Path | None = None,
        *,
        context: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        """`context` decides about the hub's certificate in place of `certificate`."""
        self._url = url
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._proxy = proxy
        if context is None:
            context = trust(certificate) if url.startswith("https:") else _no_trust()
        self._context = context

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        httpx = _load()
        transport = httpx.AsyncHTTPTransport(
            verify=self._context, trust_env=False, proxy=self._proxy
        )
        try:
            return await _exchange(transport, (method, path, body), self._url, self._headers)
        except httpx.HTTPError as error:
            reason = f"the hub at {self._url} does not answer: {_reason(error)}"
            raise CommandFailed(f"{reason}; run quarterdeck doctor for details") from error


class SocketExchange:
    """Carries requests to a running hub of this user, through its Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        httpx = _load()
        try:
            with reachable(self._path) as name:
                transport = httpx.AsyncHTTPTransport(verify=_no_trust(), trust_env=False, uds=name)
                return await _exchange(transport, (method, path, body), trace=_check_connected)
        except (OSError, httpx.HTTPError) as error:
            reason = f"the hub at {self._path} does not answer: {_reason(error)}"
            raise CommandFailed(f"{reason}; run quarterdeck doctor for details") from error


class EmbeddedExchange:
    """Carries requests to a hub in this process, without a socket."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        async def own(scope: Message, receive: Receive, send: Send) -> None:
            await self._app(own_scope(scope), receive, send)

        return await _exchange(_load().ASGITransport(app=own), (method, path, body))


async def _check_connected(step: str, info: Mapping[str, Any]) -> None:
    """Check who listens at a Unix socket as soon as it is connected, before anything is sent."""
    if step == "connection.connect_unix_socket.complete":
        stream = info["return_value"]
        try:
            check_listener(stream.get_extra_info("socket"))
        except OSError:
            await stream.aclose()  # it is not httpx's yet
            raise


async def _exchange(
    transport: httpx.AsyncBaseTransport,
    request: tuple[str, str, bytes | None],
    url: str = LOCAL_URL,
    headers: Mapping[str, str] = MappingProxyType({}),
    trace: Trace | None = None,
) -> tuple[int, bytes]:
    method, path, body = request
    more = {} if body is None else {"content-type": "application/json"}
    async with _load().AsyncClient(
        transport=transport, base_url=url, trust_env=False, timeout=_HUB_SECONDS
    ) as client:
        sent = {**_HEADERS, **headers, **more}
        steps = {} if trace is None else {"trace": trace}
        response = await client.request(method, path, content=body, headers=sent, extensions=steps)
        return response.status_code, response.content


@cache
def _system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


@cache
def _no_trust() -> ssl.SSLContext:
    """Return a context for plain HTTP: httpx needs one, and loading all authorities takes 20 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _reason(error: Exception) -> str:
    """Return an error of httpx as part of a sentence."""
    words = re.sub(r"^\[Errno -?\d+\] ", "", str(error)).rstrip(".")
    name = type(error).__name__
    return words or ("no response in time" if name.endswith("Timeout") else name)


def _load() -> Any:
    import httpx  # noqa: PLC0415 - see the module's docstring

    return httpx

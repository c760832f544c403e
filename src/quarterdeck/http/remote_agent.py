"""Connections to agents at a URL: Streamable HTTP (http, https) or a WebSocket (ws, wss).

Both are transports of a `wire.Connection`, so that a host uses an agent at a URL as it uses a
process. `open_remote` chooses one by the scheme. The agent is reached with the first message: until
then nothing is known of it, so a refused connection fails the call of `initialize`.

Headers are secrets: they are sent to the URL alone, redirects are not followed, and no message of
this module contains them. Proxies of the environment are not used, as everywhere in this package.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import anyio

from quarterdeck.wire.transports.base import ByteTransport

SCHEMES: Final = ("http", "https", "ws", "wss")
CLOSE_SECONDS: Final = 2.0
"""For the other side to notice the end of a connection."""

_BY_STATUS: Final = {
    401: "it rejects the credentials (401); check the headers of this agent",
    403: "it does not permit this (403); check the headers of this agent",
    404: "there is no agent at this address (404); check the URL",
    405: "it does not speak ACP at this address (405); check the URL",
}
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_OWN_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade"}
)
_REFUSED: Final = "the connection was refused; check the address and that the agent is running"


class RemoteTransport(ByteTransport, Protocol):
    """A transport to an agent at a URL."""

    async def run(self) -> None:
        """Do what has to be done while it is open; cancelled when it is closed."""


def url_problem(url: str) -> str | None:
    """Return why a URL cannot be that of an agent; None if it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"{url!r} is not a URL: {error}"
    if parts.scheme not in SCHEMES:
        return f"{url!r} must begin with http://, https://, ws:// or wss://"
    if not parts.hostname or port == 0:
        return f"{url!r} names no host; write it as https://host.example/acp"
    if parts.username is not None or parts.password is not None:
        return "a URL must not contain a user or a password; use headers instead"
    if parts.fragment or any(not 32 < ord(each) < 127 for each in url):
        return f"{url!r} contains characters that a URL cannot have"
    return None


def header_problem(name: Any, value: Any) -> str | None:
    """Return why a header cannot be sent; None if it can. The value is never in the text."""
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        return f"{name!r} is not the name of a header"
    if name.lower() in _OWN_HEADERS:
        return f"{name} is set by the transport; remove it"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return f"the value of {name} must be printable ASCII text"
    return None


def shown_url(url: str) -> str:
    """Return a URL without its query, which may contain a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def explained(url: str, reason: str | None) -> str:
    """Return how the connection to an agent ended."""
    return f"the agent at {shown_url(url)}: {reason or 'the connection was closed here'}"


def status_reason(status: int, body: bytes = b"") -> str:
    """Return what the status of a response means to the owner of an agent."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    text = body.decode("utf-8", "replace").strip().partition("\n")[0][:200]
    return f"it answered with status {status}" + (f": {text}" if text else "")


def network_reason(error: BaseException) -> str:
    """Return what a failure of the network means to the owner of an agent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return _REFUSED
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "there is no TLS at this address; check http:// and https:// in the URL"
        cause = cause.__cause__ or cause.__context__
    text = str(error) or type(error).__name__
    if "refused" in text or "All connection attempts failed" in text:
        return _REFUSED
    return f"the connection failed: {text}"


@asynccontextmanager
async def open_remote(url: str, headers: Mapping[str, str]) -> AsyncIterator[RemoteTransport]:
    """Open a transport to an agent for the body; leaving it closes the connection."""
    transport = _transport(url, headers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.run)
        try:
            yield transport
        finally:
            # Every wait inside is bounded, so the shield cannot hang.
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            tasks.cancel_scope.cancel()


def _transport(url: str, headers: Mapping[str, str]) -> RemoteTransport:
    # Imported with the first agent at a URL: httpx and websockets take longer than all the rest.
    if urlsplit(url).scheme in ("ws", "wss"):
        from quarterdeck.http.websocket_client import WebSocketClientTransport  # noqa: PLC0415

        return WebSocketClientTransport(url, headers)
    from quarterdeck.http.streamable_client import StreamableClientTransport  # noqa: PLC0415

    return StreamableClientTransport(url, headers)

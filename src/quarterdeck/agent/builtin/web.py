"""Fetch a web page without giving access to this machine and its network.

A name is resolved once, all its addresses are checked, and the connection goes to a checked one, so
DNS rebinding has no effect. A redirect within the same origin is followed after the same check; one
to another origin is reported, not followed, because the user allowed this origin only. Proxies of
the environment are not used: they would resolve the name themselves.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
from anyio import to_thread

from quarterdeck._version import __version__
from quarterdeck.errors import ToolFailed

MAX_BYTES = 2 * 1024 * 1024
_SECONDS = 30.0  # in total
_QUIET_SECONDS = 10.0  # for one read
_REDIRECTS = 5
_PIECE = 64 * 1024
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], list[str]]


@dataclass(frozen=True)
class Page:
    url: str
    status: int
    media_type: str
    charset: str | None
    content: bytes
    is_cut: bool


@dataclass(frozen=True)
class Redirect:
    """A redirect to another origin, which the user has not allowed."""

    url: str


class Fetcher:
    """Fetches pages; stateless."""

    def __init__(self, *, allows_private: bool, resolve: Resolve | None = None) -> None:
        self._allows_private = allows_private
        self._resolve = resolve or _resolve

    async def fetch(self, url: str) -> Page | Redirect:
        """Fetch a page.

        Raises:
            ToolFailed: if it may not be fetched, or could not be.
        """
        fetch = _Fetch(self._addresses)
        try:
            with anyio.fail_after(_SECONDS):
                return await to_thread.run_sync(fetch.run, url, abandon_on_cancel=True)
        except TimeoutError as error:
            raise ToolFailed(f"{url} took longer than {_SECONDS:g} s") from error
        finally:
            fetch.stop()

    def _addresses(self, parts: SplitResult) -> list[str]:
        host = parts.hostname or ""
        addresses = self._resolve(host, _port(parts))
        if not addresses:
            raise ToolFailed(f"{host} has no address; check the name")
        if not self._allows_private and not all(map(is_public, addresses)):
            sentence = f"{host} is an address of this machine or its network, which is not allowed"
            raise ToolFailed(f"{sentence}; set fetch_private_addresses in the settings to allow it")
        return addresses


class _Fetch:
    """One fetch, in a thread; `stop` shuts its socket down, so that the thread ends."""

    def __init__(self, addresses: Callable[[SplitResult], list[str]]) -> None:
        self._addresses = addresses
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_stopped = False
        self._deadline = time.monotonic() + _SECONDS

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # already closed by the peer; the thread closes it here
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def run(self, url: str) -> Page | Redirect:
        origin = origin_of(url)
        for _ in range(_REDIRECTS + 1):
            try:
                found = self._get(url)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise ToolFailed(f"{url} could not be fetched: {_reason(error)}") from error
            if isinstance(found, Page):
                return found
            if not _is_same_origin(origin, origin_of(found.url)):
                return found
            url = found.url
        raise ToolFailed(f"{url} redirects for ever")

    def _get(self, url: str) -> Page | Redirect:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", _port(parts))
        connection.sock = self._connected(parts)
        try:
            target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            connection.request("GET", target, headers=_headers(parts))
            with connection.getresponse() as response:
                headers = response.headers
                location = headers.get("location")
                if location and 300 <= response.status < 400:
                    return Redirect(_checked(urljoin(url, location)))
                content, is_cut = self._body(response)
                kind, charset = headers.get_content_type(), headers.get_content_charset()
                return Page(url, response.status, kind, charset, content, is_cut)
        finally:
            connection.close()

    def _connected(self, parts: SplitResult) -> socket.socket:
        failure: OSError | None = None
        for address in self._addresses(parts):
            try:
                plain = socket.create_connection((address, _port(parts)), _QUIET_SECONDS)
            except OSError as error:
                failure = error
                continue
            if parts.scheme == "https":
                self._take(plain)
                context = ssl.create_default_context()
                plain = context.wrap_socket(plain, server_hostname=parts.hostname)
            self._take(plain)
            return plain
        raise failure or OSError("no address")

    def _take(self, taken: socket.socket) -> None:
        with self._lock:
            self._socket = taken
            if self._is_stopped:
                self._shut_down()

    def _body(self, response: http.client.HTTPResponse) -> tuple[bytes, bool]:
        content = bytearray()
        while piece := response.read1(_PIECE):
            content += piece
            if len(content) > MAX_BYTES:
                return bytes(content[:MAX_BYTES]), True
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"it took longer than {_SECONDS:g} s")
        return bytes(content), False


def checked_url(url: str) -> str:
    """Return a normalized URL.

    Raises:
        ToolFailed: if it is not a web address.
    """
    return _checked(url if "://" in url else f"https://{url}")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ToolFailed(f"{url} is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolFailed(f"{url} cannot be fetched; only http and https addresses can")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("an address with a name or password in it is not fetched")
    if any(ord(character) <= 32 for character in url):
        raise ToolFailed("an address with spaces or control characters is not fetched")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = host if port is None else f"{host}:{port}"
    return urlunsplit((parts.scheme, where, _quoted(parts.path), _quoted(parts.query), ""))


def _quoted(text: str) -> str:
    return "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{_port(parts)}"


def _is_same_origin(first: str, second: str) -> bool:
    """Return whether a redirect stays at its origin; an upgrade from http to https does."""
    one, other = urlsplit(first), urlsplit(second)
    is_upgrade = (one.port, other.port) == (80, 443) and other.scheme == "https"
    return first == second or (one.hostname == other.hostname and is_upgrade)


def is_public(address: str) -> bool:
    """Tell whether an address is out in the internet, whatever it is wrapped in."""
    try:
        return _is_public(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return False


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        if address.teredo is not None or address.is_reserved or address.is_site_local:
            return False  # `is_global` is true of fec0::/10 and of ::127.0.0.1
    return address.is_global and not address.is_multicast


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolFailed(f"{host} cannot be resolved: {_reason(error)}") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _headers(parts: SplitResult) -> dict[str, str]:
    return {
        "Host": parts.netloc,
        "User-Agent": f"quarterdeck/{__version__}",
        "Accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.1",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


def _reason(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__

"""Handing a message to a push service, on a thread; and which addresses may be one.

The address comes from a browser, so it could be anything that this computer can reach: only public
ones are asked, except for those that the hub was set up with.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


SECONDS: Final = 15.0
_GONE: Final = frozenset({404, 410})
_LATER: Final = frozenset({408, 425, 429})


class AddressRefused(Exception):
    """An address that is not asked; `str()` is a sentence."""


@dataclass(frozen=True)
class Delivery:
    """How it went."""

    status: int
    """0 if the push service was not reached."""
    reason: str
    retry_after: float | None = None

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_gone(self) -> bool:
        """Whether the subscription has ended, and is not to be used again."""
        return self.status in _GONE

    @property
    def may_work_later(self) -> bool:
        return self.status == 0 or self.status >= 500 or self.status in _LATER


def origin_of(endpoint: str, trusted: frozenset[str]) -> str:
    """Return the origin of a push service.

    Raises:
        AddressRefused: if it cannot be one.
    """
    parts = _split(endpoint)
    origin = f"{parts.scheme}://{parts.netloc}"
    if origin in trusted:
        return origin
    if parts.scheme != "https":
        raise AddressRefused("the address of the subscription is not https")
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return origin
    if not address.is_global:
        raise AddressRefused("the address of the subscription is not public")
    return origin


def _split(endpoint: str) -> SplitResult:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError as error:
        raise AddressRefused("the address of the subscription cannot be read") from error
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    if not (is_plain and parts.hostname) or parts.username is not None or parts.fragment:
        raise AddressRefused("the address of the subscription cannot be read")
    return parts


def deliver(
    endpoint: str, headers: Mapping[str, str], body: bytes, trusted: frozenset[str]
) -> Delivery:
    """Send a message; blocks for a while, raises nothing."""
    try:
        origin = origin_of(endpoint, trusted)
        parts = urlsplit(endpoint)
        connection = _connection(parts, is_trusted=origin in trusted)
    except AddressRefused as error:
        return Delivery(400, str(error))
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    try:
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        said = response.read(2000).decode("utf-8", "replace").strip()
        return Delivery(
            response.status, said or response.reason, _seconds(response.getheader("retry-after"))
        )
    except AddressRefused as error:
        return Delivery(400, str(error))
    except (OSError, http.client.HTTPException) as error:
        return Delivery(0, str(error) or type(error).__name__)
    finally:
        connection.close()


def _connection(parts: SplitResult, *, is_trusted: bool) -> http.client.HTTPConnection:
    host, port = str(parts.hostname), parts.port
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=SECONDS)
    if is_trusted:
        return http.client.HTTPSConnection(host, port, timeout=SECONDS)
    return _PublicConnection(host, port, timeout=SECONDS)


class _PublicConnection(http.client.HTTPSConnection):
    """Connects to the very address that was looked at: a name may mean another a moment later."""

    @override
    def connect(self) -> None:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
        if not all(ipaddress.ip_address(address).is_global for address in addresses):
            raise AddressRefused("the push service is not at a public address")
        plain = socket.create_connection((addresses[0], self.port), self.timeout)
        context = ssl.create_default_context()
        self.sock = context.wrap_socket(plain, server_hostname=self.host)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None

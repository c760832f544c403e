"""Sends messages to push services, and checks which addresses may be one.

A browser supplies the address, so it could be anything that this computer can reach: only public
addresses are used (`http.public_addresses`), except for the origins that the hub was configured
with. An address written as one is rejected when the browser subscribes, a name when it is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio

from quarterdeck.http.client import DEFAULT_PORTS, OutgoingRequest, RequestFailed, send_request
from quarterdeck.http.public_addresses import (
    AddressNotPublic,
    is_public,
    literal_address,
    resolve_in_thread,
    resolve_public,
)

SECONDS: Final = 15.0
_MOST_BYTES: Final = 2000  # of a push service's explanation
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
    host = parts.hostname or ""
    if literal_address(host) is not None and not is_public(host):
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


async def deliver(
    endpoint: str, headers: Mapping[str, str], body: bytes, trusted: frozenset[str]
) -> Delivery:
    """Send a message; takes up to `SECONDS`, raises nothing."""
    request = OutgoingRequest(method="POST", url=endpoint, headers=headers, body=body)
    try:
        with anyio.fail_after(SECONDS):
            addresses = await _addresses(endpoint, trusted)
            response = await send_request(
                request, addresses, max_bytes=_MOST_BYTES, seconds=SECONDS
            )
    except AddressRefused as error:
        return Delivery(400, str(error))
    except (OSError, RequestFailed) as error:
        return Delivery(0, str(error) or type(error).__name__)
    explanation = response.body.decode("utf-8", "replace").strip()
    retry_after = _seconds(response.headers.get("retry-after"))
    return Delivery(response.status, explanation or response.reason, retry_after)


async def _addresses(endpoint: str, trusted: frozenset[str]) -> list[str]:
    """Resolve a push service; the addresses are those that were checked."""
    origin = origin_of(endpoint, trusted)
    parts = urlsplit(endpoint)
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = parts.hostname or ""
    if origin in trusted:
        return await resolve_in_thread(host, port)
    try:
        return await resolve_public(host, port)
    except AddressNotPublic as error:
        raise AddressRefused("the push service is not at a public address") from error


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None

"""Reading the body of a request, within limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import anyio

_POLITE: Final = 4  # times the limit that is read and thrown away, so that the answer is seen


class BodyRefused(Exception):
    """A body that is not taken; not one of `errors`: it never leaves this package."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def read_body(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    headers: Mapping[str, str],
    *,
    limit: int,
    seconds: float,
) -> bytes:
    """Read a body of up to `limit` bytes.

    A client that is still sending when we answer and close may never see the answer. So a body that
    is a little too long is read to its end, without keeping it; one that is far too long is not.

    Raises:
        BodyRefused: if it is too long, too slow, or cut off.
    """
    too_long = BodyRefused(413, f"the body has more than {limit} bytes")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit * _POLITE:
        raise too_long
    with anyio.move_on_after(seconds):
        body = await _read(receive, limit)
        if body is None:
            raise too_long
        return body
    raise BodyRefused(408, f"the body took longer than {seconds:g} s")


async def _read(
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]], limit: int
) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyRefused(400, "the body was cut off")
        part = message.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
        if not message.get("more_body", False):
            return b"".join(parts) if size <= limit else None
        if size > limit * _POLITE:
            return None

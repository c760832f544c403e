"""ASGI without a web framework: its types, and request bodies within a size and a time.

A body is read before the application works on it, so that a slow sender costs a buffer and not a
handler. Three things end it early: too many bytes (413), too long in total or between two parts
(408), and a client that leaves.

*Draining.* A client that is still sending when the connection is closed sees a reset, not the
response. So the rest of a rejected body is read and discarded for a while (`drain`): before the
response if that takes a moment, since the connection can then be reused; after it otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_IDLE_SECONDS: Final = 2.0  # without a byte of what is discarded


class BodyRejected(Exception):
    """A body that is too large or too slow; its reader converts it to a response."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class BodyCutOff(Exception):
    """The client left before its body was complete, so nothing can be answered."""


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """How long a body may be, and how long it may take."""

    size: int
    seconds: float
    idle_seconds: float = 15.0


@dataclass(frozen=True, kw_only=True)
class DrainLimits:
    """How much of a rejected body is read and discarded, and for how long."""

    size: int
    seconds: float


async def read_body(receive: Receive, limits: BodyLimits, length: int | None) -> bytes:
    """Read a whole body; `length` is what its head declares.

    Raises:
        BodyRejected: if it is too large or too slow; the rest of it can be drained.
        BodyCutOff: if the client leaves.
    """
    if length is not None and length > limits.size:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(limits.seconds):
            while True:
                with anyio.fail_after(limits.idle_seconds):
                    message = await receive()
                if message["type"] != "http.request":
                    raise BodyCutOff
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limits.size:
                    raise _too_large(limits)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise BodyRejected(408, f"the body took longer than {limits.seconds:g} s") from error


async def drain(receive: Receive, limits: DrainLimits) -> bool:
    """Read and discard the rest of a rejected body; return whether that was all of it."""
    size = 0
    with anyio.move_on_after(limits.seconds):
        while size <= limits.size:
            message = None
            with anyio.move_on_after(_IDLE_SECONDS):
                message = await receive()
            if message is None or message["type"] != "http.request":
                return False
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return True
    return False


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _too_large(limits: BodyLimits) -> BodyRejected:
    return BodyRejected(413, f"the body has more than {limits.size} bytes")

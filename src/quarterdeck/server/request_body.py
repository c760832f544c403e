"""Reading the body of a request before anybody works on it: within a size and a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.types import Message, Receive

from quarterdeck.server.rules import Refused

TOO_SLOW: Final = Refused(408, "quarterdeck/invalid", "the body took too long; send it again")

_POLITE_BYTES: Final = 1 << 20
_POLITE_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """How long a body may be, and how long it may take."""

    size: int
    seconds: float
    idle_seconds: float = 15.0


async def read_body(
    receive: Receive, limits: BodyLimits, length: int | None
) -> bytes | Refused | None:
    """Read all of a body, or say why not; None if there is nobody left to answer."""
    if length is not None and length > limits.size:
        return _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(limits.seconds):
            while True:
                with anyio.fail_after(limits.idle_seconds):
                    message = await receive()
                if message["type"] != "http.request":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limits.size:
                    return _too_large(limits)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        return TOO_SLOW


async def drain(receive: Receive) -> bool:
    """Read and forget the rest of a refused body; return whether that was all.

    Whoever is still sending would not see the answer. Only up to a size and for a moment.
    """
    size = 0
    with anyio.move_on_after(_POLITE_SECONDS):
        while size <= _POLITE_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return False
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                return True
    return False


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _too_large(limits: BodyLimits) -> Refused:
    message = f"the body has more than {limits.size} bytes; send less at once"
    return Refused(413, "quarterdeck/too-large", message)

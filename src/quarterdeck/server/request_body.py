"""Reading the body of a request before anybody works on it: within a size and a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.types import Message, Receive

from quarterdeck.server.rules import Refused

TOO_SLOW: Final = Refused(408, "quarterdeck/invalid", "the body took too long; send it again")

_IDLE_SECONDS: Final = 2.0  # without a byte of what is thrown away


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


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How much of a body is read to be thrown away, and for how long.

    Whoever is still sending when the connection is closed sees a reset and not the answer.
    """

    size: int
    seconds: float


BEFORE_ANSWER: Final = Patience(size=1 << 20, seconds=2.0)
"""Then the connection can be used again."""
AFTER_ANSWER: Final = Patience(size=256 << 20, seconds=60.0)
"""Many clients send all before they read anything."""
OF_STRANGERS: Final = Patience(size=16 << 20, seconds=5.0)


async def drain(receive: Receive, patience: Patience) -> bool:
    """Read and forget the rest of a refused body; return whether that was all."""
    size = 0
    with anyio.move_on_after(patience.seconds):
        while size <= patience.size:
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
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _too_large(limits: BodyLimits) -> Refused:
    message = f"the body has more than {limits.size} bytes; send less at once"
    return Refused(413, "quarterdeck/too-large", message)

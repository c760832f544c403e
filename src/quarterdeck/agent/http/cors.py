"""What a browser has to be told before a page of a named origin may use the server. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_MAY: Final = (
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-max-age", b"600"),
)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a browser asks, in the name of a page, what that page may send."""
    return method == "OPTIONS" and "access-control-request-method" in headers


async def answer_preflight(send: Send) -> None:
    """Say what a page may send; it carries no token, since browsers send none with the question."""
    await send({"type": "http.response.start", "status": 204, "headers": list(_MAY)})
    await send({"type": "http.response.body", "body": b""})


def readable_by(origin: str, send: Send) -> Send:
    """Let pages of `origin` read what is sent."""
    named = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *named]}
        await send(message)

    return send_named

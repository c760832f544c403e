"""Headers of responses, and ids in paths. Pure.

*Security headers.* `secured` adds them to every response of a hub; `PLAIN_HEADERS` suffice for
responses that no browser renders.

*CORS.* Browsers send a preflight before a page of another origin may send a request, and keep the
response from the page unless its origin is named.

*Ids.* Agents choose the ids of their sessions, and may choose `../x` or `a/b`. Proxies, browsers
and servers decode `%2F` and encoded dots differently, so a hub rejects them. An id that is not
plain is written as `~` and its base64url instead, and so is one that begins with `~`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from quarterdeck.http.asgi import Message, Send

# The page consists of our own files: nothing inline, nothing from other origins, in no frame.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)

_ALWAYS: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOT_STORED: Final = ((b"cache-control", b"no-store"),)
PLAIN_HEADERS: Final = (*_NOT_STORED, (b"x-content-type-options", b"nosniff"))
"""For responses that only programs read."""
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, last-event-id, acp-connection-id, acp-session-id",
    ),
    (b"access-control-max-age", b"600"),
)
_PLAIN: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:@-]+")
_ENCODED: Final = re.compile(r"[A-Za-z0-9_-]*")
MARK: Final = "~"


def secured(headers: Iterable[tuple[bytes, bytes]], *, is_page: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response plus the security headers, which replace others."""
    ours = _ALWAYS if is_page else _ALWAYS + _NOT_STORED
    names = {name for name, _ in ours}
    return [each for each in headers if each[0].lower() not in names] + list(ours)


def is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request is a preflight."""
    return method == "OPTIONS" and "access-control-request-method" in headers


async def answer_preflight(send: Send) -> None:
    """Answer what a page may send; no token is required, since browsers send none with it."""
    await send({"type": "http.response.start", "status": 204, "headers": list(_PREFLIGHT)})
    await send({"type": "http.response.body", "body": b""})


def readable_by(origin: str, send: Send) -> Send:
    """Return a `send` whose responses pages of `origin` may read."""
    named = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"acp-connection-id"),
        (b"vary", b"origin"),
    ]

    async def send_named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *named]}
        await send(message)

    return send_named


def path_segment(given: str) -> str:
    """Return an id as a segment of a path: unchanged, if it is plain."""
    if _PLAIN.fullmatch(given):
        return given
    # A lone half of a surrogate pair is no text, but it is in the ids of some agents.
    encoded = urlsafe_b64encode(given.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return MARK + encoded


def id_of_segment(segment: str) -> str | None:
    """Return the id that a segment of a path encodes; None if it encodes none."""
    if not segment.startswith(MARK):
        return segment
    encoded = segment.removeprefix(MARK)
    if not _ENCODED.fullmatch(encoded) or len(encoded) % 4 == 1:
        return None
    try:
        padded = encoded + "=" * (-len(encoded) % 4)
        return urlsafe_b64decode(padded).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None

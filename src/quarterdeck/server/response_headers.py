"""Headers that every answer of the hub has, whoever made it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# The page is made of files of ours alone: nothing inline, nothing from elsewhere, in no frame.
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


def secured(headers: Iterable[tuple[bytes, bytes]], *, is_page: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer with ours, which win."""
    ours = _ALWAYS if is_page else _ALWAYS + _NOT_STORED
    names = {name for name, _ in ours}
    return [each for each in headers if each[0].lower() not in names] + list(ours)

"""Ids in addresses. Agents choose the ids of their sessions, and may choose `../x` or `a/b`.

Proxies, browsers and servers do not agree on what an encoded slash or dot in a path means, so a hub
refuses it. An id that is not plain is written as `~` and its base64url instead; so is one that
begins with `~`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

_PLAIN: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:@-]+")
_ENCODED: Final = re.compile(r"[A-Za-z0-9_-]*")
MARK: Final = "~"


def path_segment(given: str) -> str:
    """Return an id as a segment of a path: as it is, if it is plain."""
    if _PLAIN.fullmatch(given):
        return given
    # A lone half of a surrogate pair is no text, but it is in the ids of some agents.
    encoded = urlsafe_b64encode(given.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return MARK + encoded


def id_of_segment(segment: str) -> str | None:
    """Return the id that a segment of a path stands for; None if it stands for none."""
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

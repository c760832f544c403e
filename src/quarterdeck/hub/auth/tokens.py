"""Tokens: created, hashed, removed from logs.

The owner has none: programs of this computer use the hub's Unix socket (`local_peers`). A token is
made for a program on another machine, or on purpose (`quarterdeck devices token`), and is shown
once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Final

from quarterdeck.errors import StartRefused

TOKEN_PREFIX: Final = "qd_"  # noqa: S105 - recognised by people and by secret scanners
TOKEN: Final = re.compile(r"qd_[A-Za-z0-9_-]{43}")
"""A token: 256 random bits."""

_CODE_IN_LINK: Final = re.compile(r"(?<=#pair=)[A-Za-z0-9_-]+")


def make_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """Return the hash of a secret. Tokens have 256 random bits, so it needs no salt."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def redacted(text: str) -> str:
    """Return `text` without tokens and pairing codes, for logs."""
    return _CODE_IN_LINK.sub("[code]", TOKEN.sub("[token]", text))


def remove_owner_token(path: Path) -> None:
    """Remove the file with the owner's token, which earlier versions wrote.

    Raises:
        StartRefused: if it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        reason = f"cannot remove {path}, a token of an earlier version ({error.strerror})"
        raise StartRefused(reason, f"remove it: rm {path}") from error

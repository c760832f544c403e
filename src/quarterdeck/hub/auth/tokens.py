"""Tokens: created, hashed, removed from logs; and the owner's token file.

The owner's token is created at the first start, in a file that only its user can read. A process
that can read the file has full access, so a file that other users could read or replace is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

from quarterdeck.errors import StartRefused
from quarterdeck.machine.private_files import (
    PRIVATE_FILE,
    check_private,
    refuse_link,
    unwritable_file,
)

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


def owner_token(path: Path) -> str:
    """Return the token in the file at `path`; create the file if there is none.

    Raises:
        StartRefused: if it is not a regular file that only its owner, this user, can read.
    """
    try:
        return _create_token(path)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise unwritable_file(path, error) from error


def _create_token(path: Path) -> str:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, PRIVATE_FILE)
    token = make_token()
    try:
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(f"{token}\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # with half a token no later start would succeed
        raise
    return token


def _read_token(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        refuse_link(path)
        raise unwritable_file(path, error) from error
    try:
        check_private(path, os.fstat(file))
        token = os.read(file, 200).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if not TOKEN.fullmatch(token):
        reason = f"{path} does not hold a token"
        raise StartRefused(reason, f"remove it, a new one is created at the next start: rm {path}")
    return token

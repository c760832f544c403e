"""Secrets on disk and in texts: the owner's token, and files that are nobody else's business.

The owner's token is made once, in a file that only its user can read. Nothing is repaired here: a
file that others could have read or replaced is not trusted any more, and only a person can say why
it was like that.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from quarterdeck.errors import HubRefused

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
TOKEN_PREFIX: Final = "qd_"  # noqa: S105 - says what it is, to people and to scanners of leaks
TOKEN: Final = re.compile(r"qd_[A-Za-z0-9_-]{43}")
"""A token: 256 random bits."""

_CODE_IN_LINK: Final = re.compile(r"(?<=#pair=)[A-Za-z0-9_-]+")


def make_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """Return what is stored of a secret; tokens are random enough to need neither salt nor time."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def redacted(text: str) -> str:
    """Return `text` without tokens and the codes of pairing links, for logs."""
    return _CODE_IN_LINK.sub("[code]", TOKEN.sub("[token]", text))


def owner_token(path: Path) -> str:
    """Return the token in the file at `path`; make it if there is no file.

    Raises:
        HubRefused: if the file is not a plain file of ours that nobody else can read.
    """
    try:
        return _made_token(path)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def open_private(path: Path) -> None:
    """Make sure that there is a file of ours at `path` that nobody else can read or write.

    Raises:
        HubRefused: if there is something else.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, PRIVATE_FILE)
    except OSError as error:
        _refuse_link(path)
        raise _unwritable(path, error) from error
    try:
        _check_file(path, os.fstat(file))
    finally:
        os.close(file)


def private_folder(path: Path) -> Path:
    """Create the folder at `path`, or check that it is ours alone; return it.

    Raises:
        HubRefused: if it belongs to somebody else or others can look into it.
    """
    try:
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise _unwritable(path, error) from error
    if found.st_uid != os.geteuid():
        raise HubRefused(f"{path} belongs to another user", "choose another data directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        reason = f"other users can look into {path} (mode {stat.S_IMODE(found.st_mode):04o})"
        raise HubRefused(reason, f"see what is in it, then run: chmod 700 {path}")
    return path


def _made_token(path: Path) -> str:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, PRIVATE_FILE)
    token = make_token()
    try:
        with os.fdopen(file, "w", encoding="ascii") as stream:
            stream.write(f"{token}\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)  # half a token would stop every later start
        raise
    return token


def _read_token(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        _refuse_link(path)
        raise _unwritable(path, error) from error
    try:
        _check_file(path, os.fstat(file))
        token = os.read(file, 200).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if not TOKEN.fullmatch(token):
        reason = f"{path} does not hold a token"
        raise HubRefused(reason, "remove it; a new token is made at the next start")
    return token


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise HubRefused(f"{path} is not a file", "move it away")
    if found.st_uid != os.geteuid():
        raise HubRefused(f"{path} belongs to another user", "find out why, then move it away")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        reason = f"other users can use {path} (mode {mode:04o})"
        raise HubRefused(reason, "find out why, then remove it or run: chmod 600 " + str(path))
    if found.st_nlink != 1:
        raise HubRefused(f"{path} has a second name (a hard link)", "find out why, then remove it")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise HubRefused(f"{path} is a symbolic link", "find out who made it, then remove it")


def _unwritable(path: Path, error: OSError) -> HubRefused:
    reason = f"cannot use {path} ({error.strerror or error})"
    return HubRefused(reason, "check its disk and that this user may write there")

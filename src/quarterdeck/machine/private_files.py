"""Files and folders that only their user can read.

Permissions are checked, never repaired: a file that other users could have read or replaced is not
trusted any more, and only its owner can find out why.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from quarterdeck.errors import StartRefused

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def open_private(path: Path) -> None:
    """Create the file at `path`, or check that only its user can read or write it.

    Raises:
        StartRefused: if it is not such a file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, PRIVATE_FILE)
    except OSError as error:
        refuse_link(path)
        raise unwritable_file(path, error) from error
    try:
        check_private(path, os.fstat(file))
    finally:
        os.close(file)


def private_folder(path: Path) -> Path:
    """Create the folder at `path`, or check that only its user can read it; return it.

    Raises:
        StartRefused: if it belongs to another user or other users can read it.
    """
    try:
        path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise unwritable_file(path, error) from error
    if found.st_uid != os.geteuid():
        raise StartRefused(f"{path} belongs to another user", "choose another data directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        reason = f"other users can read {path} (mode {stat.S_IMODE(found.st_mode):04o})"
        raise StartRefused(reason, f"check its contents, then run: chmod 700 {path}")
    return path


def check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StartRefused(f"{path} is not a file", f"move it away: mv {path} {path}.old")
    if found.st_uid != os.geteuid():
        raise StartRefused(f"{path} belongs to another user", "find out why, then move it away")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        reason = f"other users can read or change {path} (mode {mode:04o})"
        raise StartRefused(reason, "find out why, then remove it or run: chmod 600 " + str(path))
    if found.st_nlink != 1:
        raise StartRefused(f"{path} has a second hard link", "find out why, then remove it")


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StartRefused(f"{path} is a symbolic link", f"find out why, then remove it: rm {path}")


def unwritable_file(path: Path, error: OSError) -> StartRefused:
    reason = f"cannot use {path} ({error.strerror or error})"
    return StartRefused(reason, "check the disk and that you can write there")


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that no program reads half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, PRIVATE_FILE), "wb") as stream:
        stream.write(content)
    fresh.replace(path)

"""Files and folders that only their user can read, and the lock of a data directory.

Permissions are checked, never repaired: a file that other users could have read or replaced is not
trusted any more, and only its owner can find out why. `locked_home` keeps a data directory for one
hub at a time.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.02


@contextmanager
def locked_home(home: Path) -> Iterator[Path]:
    """Create or check the directory and lock it against other hubs.

    Raises:
        StartRefused: if another hub has locked it, or other users can read it.
    """
    lock = _take(private_folder(home))
    try:
        yield home
    finally:
        os.close(lock)  # the file stays: two processes could lock two files


def _take(home: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(home / "hub.lock", flags, PRIVATE_FILE)
    except OSError as error:
        reason = f"cannot write in {home} ({error.strerror})"
        raise StartRefused(reason, "check the disk and that you can write there") from error
    if not _has_locked(lock):
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise _in_use(home, owner)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _has_locked(lock: int) -> bool:
    for _ in range(_ATTEMPTS):  # a command that checks for a hub holds the lock only for a moment
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def _in_use(home: Path, owner: str) -> StartRefused:
    if (home / "hub.json").exists():
        reason = f"a hub is already running in {home} (process {owner})"
        stop = f": kill {owner}" if owner.isdecimal() else ""
        return StartRefused(reason, f"use that one, or stop it first{stop}")
    reason = f"another command is using {home} (process {owner})"
    remedy = "wait until it ends; to run several at once, start a hub first: quarterdeck up"
    return StartRefused(reason, remedy)

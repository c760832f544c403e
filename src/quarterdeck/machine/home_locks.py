"""The locks of a data directory: one process runs its agents, and one is its hub.

Each role has a lock file, `runner.lock` and `hub.lock`, which the kernel releases with its owner.
The runner has log.db and runner.db open, the hub has hub.db. A hub that runs agents in its own
process, and commands that change the files of a directory, hold both.

A running hub or runner also has a file that says where it is, `hub.json` or `runner.json`. Such a
file alone proves nothing: it stays after `kill -9`. The lock does.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

from quarterdeck.errors import StartRefused
from quarterdeck.machine.private_files import PRIVATE_FILE, private_folder

Role = Literal["hub", "runner"]
BOTH: Final[tuple[Role, Role]] = ("hub", "runner")
_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.02


@contextmanager
def locked_home(home: Path, *roles: Role) -> Iterator[Path]:
    """Create or check the directory and lock it against other processes of these roles.

    Raises:
        StartRefused: if another process has locked it, or other users can read it.
    """
    with ExitStack() as stack:
        for role in roles:
            stack.callback(os.close, take_lock(home, role))
        yield home


def take_lock(home: Path, role: Role) -> int:
    """Create or check the directory and lock it; closing what is returned releases it.

    The file stays: after removing it, two processes could each lock a file.

    Raises:
        StartRefused: if another process has locked it, or other users can read it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(private_folder(home) / f"{role}.lock", flags, PRIVATE_FILE)
    except OSError as error:
        reason = f"cannot write in {home} ({error.strerror})"
        raise StartRefused(reason, "check the disk and that you can write there") from error
    if not _has_locked(lock):
        owner = _owner(lock)
        os.close(lock)
        raise _in_use(home, role, owner)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def lock_owner(home: Path, role: Role) -> str | None:
    """Return the id of the process that holds a lock; None if it is free."""
    try:
        lock = os.open(home / f"{role}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(lock)
    finally:
        os.close(lock)
    return None


def _owner(lock: int) -> str:
    return os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"


def _has_locked(lock: int) -> bool:
    for _ in range(_ATTEMPTS):  # a command that checks for a hub holds the lock only for a moment
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def _in_use(home: Path, role: Role, owner: str) -> StartRefused:
    if (home / f"{role}.json").exists():
        reason = f"a {role} is already running in {home} (process {owner})"
        return StartRefused(reason, "use that one, or stop it first: quarterdeck down")
    reason = f"another command is using {home} (process {owner})"
    remedy = "wait until it ends; to run several at once, start a hub first: quarterdeck up"
    return StartRefused(reason, remedy)

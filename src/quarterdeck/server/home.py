"""The data directory: private, and one hub at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quarterdeck.errors import HubRefused
from quarterdeck.server.private_files import PRIVATE_FILE, private_folder

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.02


@contextmanager
def locked_home(home: Path) -> Iterator[Path]:
    """Make sure of the directory and keep other hubs out of it.

    Raises:
        HubRefused: if another hub has it, or other users can look into it.
    """
    lock = _take(private_folder(home))
    try:
        yield home
    finally:
        os.close(lock)  # the file stays: removing it could split the lock in two


def _take(home: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        lock = os.open(home / "hub.lock", flags, PRIVATE_FILE)
    except OSError as error:
        reason = f"cannot write in {home} ({error.strerror})"
        raise HubRefused(reason, "check its disk and that this user may write there") from error
    if not _has_locked(lock):
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise _in_use(home, owner)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _has_locked(lock: int) -> bool:
    for _ in range(_ATTEMPTS):  # a command that only looks whether there is a hub is gone at once
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def _in_use(home: Path, owner: str) -> HubRefused:
    if (home / "hub.json").exists():
        reason = f"a hub is running in {home} already (process {owner})"
        return HubRefused(reason, "use that one, or stop it first")
    reason = f"another command is using {home} (process {owner})"
    remedy = "wait for its end; several at once can share a hub that quarterdeck up started"
    return HubRefused(reason, remedy)

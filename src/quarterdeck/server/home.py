"""The data directory: private, and one hub at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quarterdeck.errors import HubRefused
from quarterdeck.server.secrets import PRIVATE_FILE, private_folder


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
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        reason = f"a hub is running in {home} already (process {owner})"
        raise HubRefused(reason, "use that one, or stop it first") from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock

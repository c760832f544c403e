"""One writing process per log: a lock file beside it, which the kernel releases with its owner.

SQLite before 3.51.3 can damage a log that two connections write (the WAL-reset bug), and a JSONL
log has no other protection. `flock` and not `fcntl`: it also rejects a second storage in one
process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from quarterdeck.errors import StorageRefused

PRIVATE = 0o600
"""A log holds prompts and file contents: only its owner may read it."""


def take_lock(path: Path) -> int:
    """Lock the log at `path`, creating its folder; return what `release_lock` needs.

    Raises:
        StorageRefused: if another process has it, or nothing can be written there.
    """
    if path.is_dir():
        raise StorageRefused(path, "it is a folder", "name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        owner = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        what = f"process {owner} is using it"
        remedy = "connect to that one, stop it first, or choose another path"
        raise StorageRefused(path, what, remedy) from error
    except OSError as error:
        os.close(lock)
        raise unwritable(path, error) from error
    return lock


def release_lock(lock: int) -> None:
    """Release the lock. The file stays: after removing it, two processes could each lock a file."""
    os.close(lock)


def unwritable(path: Path, error: OSError) -> StorageRefused:
    """Return the error for a path that cannot be written."""
    remedy = "check its disk and that this user may write there, or choose another path"
    return StorageRefused(path, error.strerror or str(error), remedy)

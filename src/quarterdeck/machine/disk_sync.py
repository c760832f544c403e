"""Write files to the disk, so that they survive a power cut.

`fsync` of macOS leaves the data in the cache of the disk; `F_FULLFSYNC` does not.
"""

from __future__ import annotations

import errno
import fcntl
import os

_UNSUPPORTED = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)  # a network's file system, for example


def sync_file(fd: int) -> None:
    """Write a file with all that is known about it."""
    if not _is_fully_synced(fd):
        os.fsync(fd)


def sync_data(fd: int) -> None:
    """Write the content of a file, and its size."""
    if not _is_fully_synced(fd):
        getattr(os, "fdatasync", os.fsync)(fd)


def _is_fully_synced(fd: int) -> bool:
    """Use `F_FULLFSYNC`; False where there is none."""
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True

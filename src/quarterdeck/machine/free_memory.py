"""Gives memory that is free back to the system.

glibc keeps what was freed in the middle of its heaps. After many views of different sizes were made
and dropped, a hub with 30 MiB in use had 70 MiB of heap. `malloc_trim` gives the free pages back;
other threads wait for some milliseconds, so it is done only if much is free. Other C libraries
either do that by themselves or have no such call: then nothing happens.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from quarterdeck.machine import macos_processes

MUCH_BYTES: Final = 32 << 20
"""Free memory that is worth giving back."""


class _MallocFacts(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


@cache
def _libc() -> Any:
    """Return the C library if it is glibc 2.33 or newer."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = _MallocFacts
        libc.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (AttributeError, OSError, TypeError):  # another system; TypeError on Windows
        return None
    return libc


def free_bytes() -> int:
    """Return how much of the heap is free; 0 if that is not known."""
    libc = _libc()
    return 0 if libc is None else int(libc.mallinfo2().fordblks)


def resident_bytes() -> int:
    """Return how much memory this process has; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return _mac_resident_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def _mac_resident_bytes() -> int:
    try:
        return macos_processes.resident_bytes(os.getpid())
    except OSError:
        return 0  # another system


def used_bytes() -> int:
    """Return how much of the heap is in use; 0 if that is not known."""
    libc = _libc()
    return 0 if libc is None else int(libc.mallinfo2().uordblks)


def release_free_memory(least: int = MUCH_BYTES) -> bool:
    """Give free memory back if there are at least so many bytes of it; blocks for milliseconds."""
    if free_bytes() < max(1, least):
        return False
    _libc().malloc_trim(0)
    return True

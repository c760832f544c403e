"""Removes a secret from the command line that other processes see of this one."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

_ARG_START: Final = 47  # the 48th field of /proc/PID/stat; see proc(5)
_STAT: Final = Path("/proc/self/stat")
_COMMAND_LINE: Final = Path("/proc/self/cmdline")


def hide_argument(secret: str) -> bool:
    """Overwrite a secret in this process's command line; return whether it is not seen there.

    Only Linux shows where the arguments are; elsewhere nothing happens.
    """
    wanted = secret.encode()
    try:
        shown = _COMMAND_LINE.read_bytes()
        # The second field is the name of the program, in parentheses, and may have blanks.
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start = int(fields[_ARG_START - 2])
    except (OSError, ValueError, IndexError):
        return False
    place = shown.find(wanted) if wanted else -1
    while place >= 0 and start > 0:
        # These bytes are on this process's own stack, copied by Python when it started.
        ctypes.memset(start + place, ord("x"), len(wanted))
        shown = _COMMAND_LINE.read_bytes()
        before, place = place, shown.find(wanted)
        if place == before:
            return False
    return place < 0

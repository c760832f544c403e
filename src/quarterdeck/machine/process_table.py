"""What the system says about its processes: /proc on Linux, libproc on macOS, else nothing.

This is the one place of the package that asks; `guard_program`, which runs without the package, has
its own. `process_table()` returns the table of this machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Protocol

from quarterdeck.machine import macos_processes
from quarterdeck.machine.guard_program import MARK_BYTES

NOT_SHOWN: Final = -1
"""In place of a parent: the system does not say."""
ENDED: Final = -2
"""In place of a parent: the process has ended."""

_MARKED_LIMIT: Final = b"Max msgqueue size"


class ProcessTable(Protocol):
    """The processes of this machine, as far as the system shows them."""

    def parent(self, pid: int) -> int:
        """Return the parent of a process, 0 for the first one, `NOT_SHOWN` or `ENDED`."""

    def words(self, pid: int) -> Sequence[bytes]:
        """Return the command line of a process; empty if it is not shown."""

    def is_marked(self, pid: int) -> bool:
        """Return whether a process has the mark of a guard that this one does not have."""

    def program(self, pid: int) -> str:
        """Return the name of its program, for people."""

    def started_at(self, pid: int) -> float:
        """Return when it started, by `clock`; infinity if it has ended."""

    def clock(self) -> float: ...


class LinuxTable:
    """By /proc."""

    def parent(self, pid: int) -> int:
        line = read_proc(f"{pid}/stat")
        if not line:
            return NOT_SHOWN if _is_hidden(pid) else ENDED
        # The name of the program is in parentheses and may contain anything.
        state, parent = line[line.rindex(b")") + 1 :].split(None, 2)[:2]
        return ENDED if state in (b"Z", b"X") else int(parent)

    def words(self, pid: int) -> Sequence[bytes]:
        return read_proc(f"{pid}/cmdline").split(b"\0", 4)

    def is_marked(self, pid: int) -> bool:
        """A guard sets a limit for all below it: lower than ours.

        A process may lower it further. Ours may be one of another guard, if an agent started us.
        """
        limit = _marked_limit(pid)
        return limit <= MARK_BYTES and limit < _marked_limit(os.getpid())

    def program(self, pid: int) -> str:
        return read_proc(f"{pid}/comm").decode(errors="replace").strip()

    def started_at(self, pid: int) -> float:
        line = read_proc(f"{pid}/stat")
        if not line:
            return float("inf")
        return int(line[line.rindex(b")") + 1 :].split()[19]) / os.sysconf("SC_CLK_TCK")

    def clock(self) -> float:
        known: Any = time
        return time.clock_gettime(known.CLOCK_BOOTTIME)


class MacTable:
    """By libproc; see `macos_processes`."""

    def parent(self, pid: int) -> int:
        """Return the parent; of a process that lost it, the leader of its group.

        Without one, such a process can be anything: `NOT_SHOWN`.
        """
        found = macos_processes.find(pid)
        if found is None:
            return ENDED
        if found.parent != 1 or not macos_processes.has_lost_parent(pid):
            return found.parent
        has_leader = found.group != pid and macos_processes.find(found.group) is not None
        return found.group if has_leader else NOT_SHOWN

    def words(self, pid: int) -> Sequence[bytes]:
        return macos_processes.arguments(pid)[0]

    def is_marked(self, pid: int) -> bool:
        mark = macos_processes.mark_of(pid)
        return mark is not None and mark != macos_processes.mark_of(os.getpid())

    def program(self, pid: int) -> str:
        found = macos_processes.find(pid)
        return "" if found is None else found.name.decode(errors="replace")

    def started_at(self, pid: int) -> float:
        started = macos_processes.started_at(pid)
        if started is not None:
            return started
        return float("inf") if macos_processes.find(pid) is None else 0.0  # of another user

    def clock(self) -> float:
        return time.time()


@cache
def process_table() -> ProcessTable | None:
    """Return the table of this machine; None if it has none."""
    return table_of(sys.platform)


def table_of(platform: str) -> ProcessTable | None:
    if platform == "linux":
        return LinuxTable() if read_proc("self/stat") else None
    if platform == "darwin":
        try:
            return MacTable() if macos_processes.find(os.getpid()) is not None else None
        except OSError:
            return None
    return None


def read_proc(name: str) -> bytes:
    """Return the content of a file in /proc; empty if there is none."""
    try:
        with open(f"/proc/{name}", "rb") as file:  # noqa: PTH123 - an approval waits for this
            return file.read()
    except OSError:
        return b""


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process, of another user, that /proc does not show (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _marked_limit(pid: int) -> float:
    for line in read_proc(f"{pid}/limits").splitlines():
        if line.startswith(_MARKED_LIMIT):
            hard = line.split()[-2]
            return float("inf") if hard == b"unlimited" else int(hard)
    return float("inf")

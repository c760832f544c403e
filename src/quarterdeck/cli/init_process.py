"""`quarterdeck` as process 1 of a container: an init in front of the command.

The kernel gives process 1 every process that has lost its parent, ignores signals for which process
1 has no handler, and kills everything when process 1 ends. A hub is no init, so process 1 only
starts the command as a child, forwards signals to it and reaps what has ended. When the command has
ended, its status is the container's; what it has left, such as the runner, gets SIGTERM and time to
end first.

Standard library only, and little of it: this is imported before anything else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

BELOW_INIT: Final = "QUARTERDECK_BELOW_INIT"
"""A variable that the command gets: everything ends with it."""
GRACE_SECONDS: Final = 8.0
"""For what the command has left; `docker stop` kills the container after ten."""
_FORWARDED: Final = frozenset(
    {
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
        *(signal.SIGUSR1, signal.SIGUSR2),
    }
)
_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM})


def run_as_init() -> int | None:
    """Fork; return None in the child, which runs the command.

    In this process, return the exit status of the child when it and all that it left have ended.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD, signal.SIGTTOU})
    command = os.fork()
    if command == 0:
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.environ[BELOW_INIT] = "1"
        return None
    status = _serve(command)
    _end_rest(time.monotonic() + GRACE_SECONDS)
    return status


def _take_terminal() -> None:
    """Make this the foreground process: Ctrl-C reaches the command once, not by init as well."""
    os.setpgid(0, 0)
    with suppress(OSError):  # there is no terminal
        os.tcsetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0, os.getpgrp())


def _serve(command: int) -> int:
    """Forward signals and reap until the command has ended; return its exit status."""
    while True:
        number = signal.sigwait({*_FORWARDED, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(command, number)
            continue
        ended = dict(_reaped())
        if command in ended:
            return _exit_status(ended[command])


def _end_rest(deadline: float) -> None:
    """Send SIGTERM to our children and wait for them, until a deadline or a second signal."""
    for pid in _children():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while _has_children() and (left := deadline - time.monotonic()) > 0:
        found = signal.sigtimedwait({*_ENDING, signal.SIGCHLD}, left)
        if found is not None and found.si_signo in _ENDING:
            return


def _has_children() -> bool:
    for _ in _reaped():
        pass
    return any(True for _ in _children())


def _reaped() -> Iterator[tuple[int, int]]:
    """Reap what has ended; yield process ids and wait statuses."""
    with suppress(ChildProcessError):  # none is left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _children() -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):  # it has just ended
            # After the name, which may have any character: the state, then the parent.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                yield int(folder.name)


def _exit_status(waited: int) -> int:
    status = os.waitstatus_to_exitcode(waited)
    return 128 - status if status < 0 else status

"""Start programs so that nothing of them outlives us, and end a whole tree of processes at once.

The work is done by `guard_program`, which runs as a process of its own; its docstring says how.
The guard passes its own environment on as it is, so no value of it stands in a list of processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from quarterdeck.errors import AgentNotFound
from quarterdeck.machine.guard_program import living_descendants, send_signal

_PROGRAM = str(Path(__file__).with_name("guard_program.py"))
_STOP_ROUNDS = 50  # against a program that forks while it is being stopped


def guarded_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    grace_seconds: float = 0.5,
) -> list[str]:
    """Return the command that runs `command` under a guard; start it from this very process.

    The guard dies with us, also by `kill -9`, and takes everything below it along: SIGTERM, then
    SIGKILL after `grace_seconds`. Killing the guard kills everything at once. It exits with the
    status of `command`, or by the same signal, after ending what `command` left behind.
    `env` and `cwd` are those the command will be started with; they only serve to find it.

    Raises:
        AgentNotFound: if there is no such program, which the guard itself could only tell later.
    """
    _find(command[0], env=env, cwd=cwd)
    owner = str(os.getpid())
    return [sys.executable, "-I", "-S", _PROGRAM, owner, str(grace_seconds), *command]


def _find(program: str, *, env: Mapping[str, str] | None, cwd: str | Path | None) -> None:
    if "/" in program:
        path = Path(cwd or "", program)
        if not path.exists():
            raise AgentNotFound(program, "no such file")
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise AgentNotFound(program, "it is not a program")
    elif shutil.which(program, path=None if env is None else env.get("PATH", os.defpath)) is None:
        raise AgentNotFound(program, "no such program")


def kill_tree(pid: int) -> None:
    """Kill a child of ours, its process group and all its descendants; does not wait for it.

    Everything is stopped before anything is killed, so that nothing forks behind our back.
    """
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        fresh = {pid, *living_descendants(pid)} - stopped
        if not fresh:
            break
        for process in fresh:
            send_signal(process, signal.SIGSTOP)
        stopped |= fresh
    for process in stopped:
        send_signal(process, signal.SIGKILL)
    send_signal(-pid, signal.SIGKILL)

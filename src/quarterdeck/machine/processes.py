"""Start programs that cannot outlive this process, and kill a whole tree of processes.

The work is done by `guard_program`, which runs as a process of its own. It passes on its own
environment, so no value of it appears in a list of processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from quarterdeck.errors import AgentNotFound
from quarterdeck.machine.confinement import UNCONFINED, ConfinedStart
from quarterdeck.machine.guard_program import living_descendants, send_signal

_PROGRAM = str(Path(__file__).with_name("guard_program.py"))
_PREFIX = "QUARTERDECK_GUARDED_"  # as in `guard_program`
_PYTHON = str(Path(sys.executable).resolve())  # not a link that an agent could change
_LOADERS = ("LD_", "DYLD_", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH")
_STOP_ROUNDS = 50  # against a program that forks while it is being stopped


def guarded_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    grace_seconds: float = 0.5,
    start: ConfinedStart = UNCONFINED,
) -> list[str]:
    """Return the command that runs `command` under a guard; start it from this process.

    When this process dies, also by `kill -9`, the guard ends everything below it: SIGTERM, then
    SIGKILL after `grace_seconds`. Killing the guard kills everything at once. It exits with the
    status of `command`, or by the same signal, after ending what `command` left behind.
    `env` and `cwd` are those of the command; they only serve to find it. `start` confines it, see
    `Confinement.start`; the command does not run if that fails.

    Raises:
        AgentNotFound: if there is no such program; the guard could only report that later.
    """
    _find(command[0], env=env, cwd=cwd)
    owner = str(os.getpid())
    guard = [_PYTHON, "-I", "-S", _PROGRAM, *start.options, owner, str(grace_seconds)]
    return [*guard, *start.prefix, *command]


def guarded_env(env: Mapping[str, str], start: ConfinedStart = UNCONFINED) -> dict[str, str]:
    """Return the environment to start a guard with, for a command that gets `env`.

    The guard is not confined, nor marked when it starts, and an agent chooses variables of its
    terminals. So the guard gets them under names that mean nothing to a loader or an interpreter.
    """
    if start.prefix:  # bubblewrap, which is not confined either, gets them as they are
        env = {name: value for name, value in env.items() if not name.startswith(_LOADERS)}
    return {f"{_PREFIX}{name}": value for name, value in env.items()}


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
    """Kill a child process, its process group and all its descendants; does not wait.

    Everything is stopped before anything is killed, so that nothing forks meanwhile.
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

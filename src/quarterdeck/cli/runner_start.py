"""Starts the runner of a data directory as a process of its own, which stays when this one ends.

The runner gets this process's environment, without its terminal, in the user's home folder. Until
it is ready, its standard error is read here: an error at its start is an error of the command that
wanted it. Then it writes to `runner.log` only.

Imports little: `up` starts the runner before it imports the hub.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from quarterdeck.errors import StartRefused

READY_SECONDS: Final = 60.0
"""For a runner to open its log and listen; a large log on a slow disk takes its time."""
RUNNER_SOCKET: Final = "runner.sock"
READY: Final = b"ready\n"
_END_SECONDS: Final = 10.0


def program(*arguments: str) -> list[str]:
    """Return the command line of `quarterdeck`, as it is installed now.

    `-P`: never from the current folder, where an agent could have put modules.
    """
    return [sys.executable, "-P", "-m", "quarterdeck", *arguments]


class StartingRunner:
    """A runner that was started by this process and may not be ready yet."""

    def __init__(self, home: Path, config_file: Path | None, environ: Mapping[str, str]) -> None:
        arguments = ["runner", "--home", str(home)]
        if config_file is not None:
            arguments += ["--config", str(config_file.absolute())]
        self._is_kept = False
        self._ready, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(
                program(*arguments, "--ready-fd", str(theirs)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=_folder(environ),
                env=dict(environ),
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(theirs)

    def wait(self) -> None:
        """Wait until it is ready.

        Raises:
            StartRefused: if it has ended, with its own words, or takes too long.
        """
        errors = self._process.stderr
        assert errors is not None
        with errors:
            if self._is_ready():
                reap(self._process.pid)
                self._process.returncode = 0  # it is not waited for here any more
                return
            self._end()
            raise _refusal(errors.read())

    def _is_ready(self) -> bool:
        try:
            found, _, _ = select.select([self._ready], [], [], READY_SECONDS)
            return bool(found) and os.read(self._ready, len(READY)) == READY
        finally:
            os.close(self._ready)

    def keep(self) -> None:
        """Let it run when this process has ended."""
        self._is_kept = True

    def end_unless_kept(self) -> None:
        """End it if the command that started it has failed."""
        if not self._is_kept:
            self._end()

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)


def reap(pid: int) -> None:
    """Wait in a thread for the end of a runner, if it is a child of this process.

    Otherwise its entry in the table of processes would stay until this process ends.
    """

    def wait() -> None:
        with suppress(ChildProcessError):  # another process has started it
            os.waitpid(pid, 0)

    threading.Thread(target=wait, daemon=True, name="runner").start()


def _folder(environ: Mapping[str, str]) -> str:
    """Return a folder that stays: the one of this process may be removed while agents run."""
    home = environ.get("HOME", "")
    return home if Path(home).is_absolute() and Path(home).is_dir() else "/"


def _refusal(printed: bytes) -> StartRefused:
    lines = printed.decode(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("quarterdeck: ") if lines else ""
    reason, _, remedy = last.rpartition("; ")
    if not reason:
        return StartRefused(
            f"the runner did not start{f': {last}' if last else ''}", "see runner.log"
        )
    return StartRefused(reason, remedy)

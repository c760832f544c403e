"""A program in a pseudo-terminal, for people who sign in to an agent.

What it shows and what is typed stays in memory: it is neither logged nor stored, since it may be a
password or a code. It runs like the agent: with its environment, confined, and it ends with the
runner.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
from anyio.abc import Process

from quarterdeck.errors import RequestRejected
from quarterdeck.machine import ConfinedStart, guarded_command, guarded_env, kill_tree

_KEPT: Final = 64 * 1024  # characters of output
_CHUNK: Final = 64 * 1024
_MOST_SECONDS: Final = 1800.0
# The program's terminal must be the one that controls it, or it cannot ask for a password.
_OWN_TERMINAL: Final = """\
import fcntl, os, sys, termios
try: os.setsid()
except OSError: pass
try: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
except OSError: pass
os.execvp(sys.argv[1], sys.argv[1:])
"""


class SignInTerminal:
    """Runs one program and keeps the end of what it shows."""

    def __init__(self) -> None:
        self._text = ""
        self._dropped = 0
        self._changed = anyio.Event()
        self._master: int | None = None
        self.status: int | None = None
        """Its exit status, when it has ended."""

    async def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        start: ConfinedStart,
        size: tuple[int, int],
    ) -> int:
        """Run a program to its end; return its exit status.

        Raises:
            AgentNotFound: if there is no such program.
        """
        wrapped = [sys.executable, "-I", "-S", "-c", _OWN_TERMINAL, *command]
        guarded_command(command, env=env, cwd="/")  # only to find it
        guarded = guarded_command(wrapped, env=env, cwd="/", start=start)
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)  # a program that reads nothing must not stop the hub
        try:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            home = env.get("HOME", "/")
            process = await anyio.open_process(
                guarded,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=home if os.access(home, os.X_OK) else "/",
                env=guarded_env(env, start),
                start_new_session=True,
            )
        finally:
            os.close(slave)
        try:
            with anyio.move_on_after(_MOST_SECONDS):
                await self._read(self._master)
                self.status = await process.wait()
        finally:
            await self._end(process)
        return self.status if self.status is not None else 1

    async def _read(self, master: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            await anyio.wait_readable(master)
            try:
                data = os.read(master, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # all of its programs have ended
                return
            if not data:
                return
            self._text += decoder.decode(data)
            extra = max(0, len(self._text) - _KEPT)
            self._text, self._dropped = self._text[extra:], self._dropped + extra
            self._notify()

    async def _end(self, process: Process) -> None:
        if process.returncode is None:
            kill_tree(process.pid)
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            status = await process.wait()
            self.status = status if self.status is None else self.status
        if self._master is not None:
            os.close(self._master)
            self._master = None
        self._notify()

    def finish(self) -> None:
        """Wait for no more output: it ended, or never began."""
        self.status = 1 if self.status is None else self.status
        self._notify()

    def write(self, text: str) -> None:
        """Type into it; ignored if it has ended.

        Raises:
            RequestRejected: if its program does not read what is typed.
        """
        data = text.encode(errors="replace")[:_CHUNK]
        while data and self._master is not None:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError as error:
                message = "the sign-in does not read what you type; cancel it and begin again"
                raise RequestRejected("unavailable", message, retryable=True) from error
            except OSError:
                return  # it has ended

    async def output(self, after: int, seconds: float) -> tuple[str, int]:
        """Return what was shown after a position, and the new position; wait for more."""
        with anyio.move_on_after(seconds):
            while self.position <= after and self.status is None:
                await self._changed.wait()
        start = max(0, after - self._dropped)
        return self._text[start:], self.position

    @property
    def position(self) -> int:
        """How many characters it has shown."""
        return self._dropped + len(self._text)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

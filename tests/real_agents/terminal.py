"""A real agent in a pseudo-terminal; a thread reads its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio

_CONTROLS = re.compile(
    r"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][0-9A-Z]?"
)
_ASKED = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?1;2c"}
"""What a program asks a terminal, and the answer: where the cursor is, which terminal it is."""

PATIENCE = 30.0
"""Seconds after which a text that does not show up is a failure."""


class AgentTerminal:
    """One program on a screen of 50 lines."""

    def __init__(self, program: Path, name: str, folder: Path, environ: dict[str, str]) -> None:
        self.pid, self._screen = pty.fork()
        if self.pid == 0:  # pragma: no cover - another process
            os.chdir(folder)
            os.execve(program, [name], environ)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self._text = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            if not select.select([self._screen], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._screen, 65536)
                for asked, told in _ASKED.items():
                    if asked in data:
                        os.write(self._screen, told)
            except OSError:  # it has ended
                return
            self._text += data.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """All that was on the screen, without spaces, which are moves of the cursor."""
        return re.sub(r"\s", "", _CONTROLS.sub("", self._text))

    async def until(self, words: str, times: int = 1) -> None:
        wanted, began = words.replace(" ", ""), time.monotonic()
        while True:
            if self.text.count(wanted) >= times:
                return
            assert time.monotonic() < began + PATIENCE, (words, self.text[-1000:])
            await anyio.sleep(0.05)

    async def prompt(self, words: str) -> None:
        self.type(words)
        await anyio.sleep(0.5)  # pasted text and Enter at once would be one paste
        self.type("\r")

    async def press(self, key: str, holds: Callable[[], bool]) -> float:
        """Press a key until it has had its effect; return when it was pressed first.

        A dialog takes keys a moment after it shows.
        """
        pressed = time.monotonic()
        while True:
            self.type(key)
            for _ in range(10):
                await anyio.sleep(0.1)
                if holds():
                    return pressed

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def end(self, number: int = signal.SIGKILL) -> None:
        self._ended.set()
        self._thread.join()
        os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        os.close(self._screen)

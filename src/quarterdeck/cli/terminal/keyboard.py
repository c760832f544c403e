"""Keys and lines typed at a terminal, read without blocking the event loop."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio


def has_person() -> bool:
    """Whether a user can be asked here: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def single_keys() -> Iterator[None]:
    """Read each key at once and without echo; Ctrl-C keeps its meaning.

    Input typed earlier is discarded: it cannot be an answer to a request that was not shown yet.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSAFLUSH)
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def read_key() -> str | None:
    """Return the next key; None if the terminal is gone.

    Several characters at once are a paste, not a key: the result is "".
    """
    descriptor = sys.stdin.fileno()
    await anyio.wait_readable(descriptor)
    try:
        typed = os.read(descriptor, 1024)
    except OSError:  # the terminal is gone
        return None
    if not typed:
        return None
    text = typed.decode(errors="replace")
    return text if len(text) == 1 else ""


def drop_typed() -> None:
    """Discard input that was typed before a request is shown.

    Raises:
        OSError: if the terminal is gone.
    """
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except termios.error as error:
        raise OSError(*error.args) from error


async def read_line() -> str | None:
    """Return the next line; None for Ctrl-D.

    Raises:
        OSError: if the terminal is gone.
    """
    descriptor = sys.stdin.fileno()
    await anyio.wait_readable(descriptor)
    typed = os.read(descriptor, 1 << 16)  # a terminal delivers whole lines
    return typed.decode(errors="replace").rstrip("\r\n") if typed else None

"""A key or a line from a person at a terminal, waited for without holding anything up."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio


def has_person() -> bool:
    """Whether somebody can be asked here: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def single_keys() -> Iterator[None]:
    """Let every key count by itself, unseen; Ctrl-C stays what it is.

    What was typed before is dropped: nobody answers a question before it is asked.
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
    """Return the key that is pressed; None if the terminal is gone.

    What comes in one go with other characters, as a paste does, is no key: it is "".
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
    """Drop what was typed before a question is shown; what comes after it is its answer.

    Raises:
        OSError: if the terminal is gone.
    """
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except termios.error as error:
        raise OSError(*error.args) from error


async def read_line() -> str | None:
    """Return a line that is typed; None for Ctrl-D.

    Raises:
        OSError: if the terminal is gone.
    """
    descriptor = sys.stdin.fileno()
    await anyio.wait_readable(descriptor)
    typed = os.read(descriptor, 1 << 16)  # a terminal gives whole lines
    return typed.decode(errors="replace").rstrip("\r\n") if typed else None

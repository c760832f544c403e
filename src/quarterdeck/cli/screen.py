"""Where a command writes for people: how wide it is, whether it has colours, which characters."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Final, TextIO

from quarterdeck.cli.text import cells, one_line, shortened

STYLES: Final[Mapping[str, str]] = {
    "": "",
    "dim": "2",
    "strong": "1",
    "good": "32",
    "bad": "31",
    "warn": "33",
    "added": "32",
    "removed": "31",
    "hunk": "36",
    "question": "1;33",
}
NARROWEST, WIDEST = 40, 100
_FANCY: Final = "✓▸·✗─●○█▀▄"


class Screen:
    """A stream for people; colours only on a terminal, and not where NO_COLOR is set."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        spare_encoding(stream)
        self.is_terminal = stream.isatty()
        # https://no-color.org: set to anything but nothing.
        is_plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.is_coloured = self.is_terminal and not is_plain
        self.is_fancy = is_fancy(stream)
        self.columns = shutil.get_terminal_size().columns
        self.width = max(NARROWEST, min(self.columns, WIDEST)) - 1
        self._stream = stream

    def write(self, text: str, style: str = "") -> None:
        """Write without a line break."""
        self._stream.write(self.painted(text, style))

    def line(self, text: str = "", style: str = "") -> None:
        self._stream.write(self.painted(text, style) + "\n")
        self._stream.flush()

    def flush(self) -> None:
        self._stream.flush()

    def painted(self, text: str, style: str) -> str:
        code = STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.is_coloured and text.strip() else text

    def table(self, rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> None:
        """Write rows in columns; on a terminal the last column is cut to the width of the line."""
        lines = [[one_line(cell) for cell in row] for row in rows]
        if not lines:
            return
        widths = [max(cells(cell) for cell in column) for column in zip(*lines, strict=True)]
        for line in lines:
            self.line(self._row(line, widths, styles).rstrip())

    def _row(self, row: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> str:
        words, used = "", 0
        for number, cell in enumerate(row):
            is_last = number == len(row) - 1
            room = self.columns - 1 - used
            text = shortened(cell, room) if is_last and self.is_terminal else cell
            words += self.painted(text, styles[number] if number < len(styles) else "")
            if not is_last:
                words += " " * (widths[number] - cells(cell) + 2)
                used += widths[number] + 2
        return words


def is_fancy(stream: TextIO) -> bool:
    """Whether a stream can carry what we like to write; others get plain characters."""
    try:
        _FANCY.encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def spare_encoding(stream: TextIO) -> None:
    """Let characters that the stream's encoding lacks become question marks, not exceptions."""
    if isinstance(stream, TextIOWrapper):
        with suppress(ValueError):  # closed, or detached: nothing will be written then
            stream.reconfigure(errors="replace")


def say(message: str) -> None:
    """Tell a person something that is no answer."""
    with suppress(OSError):  # where nobody can be told, the status has to do
        print(f"quarterdeck: {message}", file=sys.stderr, flush=True)

"""Output: styled lines for people, JSON for programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, Final, TextIO

from quarterdeck.jsontext import encode_json
from quarterdeck.views.text import cells, one_line, shortened

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
    "request": "1;33",
}
NARROWEST, WIDEST = 40, 100
_FANCY: Final = "✓▸·✗─●○█▀▄"


class Screen:
    """A stream for people; colours on a terminal only, and not if NO_COLOR is set."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        replace_unencodable(stream)
        self.is_terminal = stream.isatty()
        # https://no-color.org: any value but the empty one.
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


class OutputGuard:
    """Stops printing when the pipe is closed (`| head`) or the disk is full.

    Printing happens in subscribers and tasks, where an exception would count as their mistake: it
    is kept in `failure` instead, and `on_failure` is called once.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self.failure: OSError | None = None

    def attempt(self, action: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        try:
            action()
        except OSError as error:
            self.failure = error
            self._on_failure()


def is_fancy(stream: TextIO) -> bool:
    """Whether a stream can encode our marks and rules; others get ASCII."""
    try:
        _FANCY.encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def replace_unencodable(stream: TextIO) -> None:
    """Write a question mark for a character that the stream cannot encode, instead of failing."""
    if isinstance(stream, TextIOWrapper):
        with suppress(ValueError):  # closed or detached: nothing will be written
            stream.reconfigure(errors="replace")


def print_note(message: str) -> None:
    """Print a message to stderr, which is not the result of a command."""
    with suppress(OSError):  # stderr is gone: the exit status has to do
        print(f"quarterdeck: {message}", file=sys.stderr, flush=True)


def print_json(result: Any) -> None:
    """Print one object on one line."""
    sys.stdout.write(encode_json(result).decode() + "\n")
    sys.stdout.flush()

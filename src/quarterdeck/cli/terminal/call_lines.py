"""What a terminal has printed of a tool call, and what is new in an update. Pure.

A terminal cannot take back what it printed, and agents send the content of a call as a whole, again
and again while it grows: the arguments as the model writes them, the output as a command writes it.
So only the lines after those that were printed are printed. A line that grows is printed again when
it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from quarterdeck.cli.terminal.event_text import Line

_COUNT: Final = re.compile(r"(\| )?and \d+ more lines?")


class PrintedCall(NamedTuple):
    """A tool call as it was printed last."""

    status: Any
    lines: Sequence[Line]


def grown_lines(printed: Sequence[Line], lines: Sequence[Line]) -> Sequence[Line] | None:
    """Return the lines after those that were printed; None if the content is another one.

    The first of them is the last line that was printed, if that was not complete.
    """
    same = 0
    while same < min(len(printed), len(lines)) and printed[same] == lines[same]:
        same += 1
    missing = len(printed) - same
    is_grown = missing == 0 or (
        missing == 1 and same < len(lines) and _continues(printed[same], lines[same])
    )
    return lines[same:] if is_grown else None


def is_unfinished(printed: Sequence[Line], grown: Sequence[Line]) -> bool:
    """Return whether all that is new is more of the last line, which may grow further."""
    return bool(printed) and len(grown) == 1 and _continues(printed[-1], grown[0])


def _continues(before: Line, after: Line) -> bool:
    is_count = _COUNT.fullmatch(before.text) and _COUNT.fullmatch(after.text)
    return bool(is_count) or after.text.startswith(before.text)

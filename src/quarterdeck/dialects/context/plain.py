"""What a command line is made of, and those lines that can be read without reading like a shell.

Most lines that agents run are plain: words, single quotes, and commands joined by `&&`, `||`, `|`
or `;`, all with blanks between them. All others are left to `shell`, which overlooks nothing.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

KEYWORDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
    | {"fi", "done", "esac", "}", "function"}
)
_JOINS: Final = frozenset({"&&", "||", "|", ";"})
_MERGED: Final = "2>&1"
_PIECE: Final = r"(?:[\w./:,@%+=-]+|'[^'\n]*'|&&|\|\|?|;|2>&1)"
_PLAIN: Final = re.compile(rf" *{_PIECE}(?: +{_PIECE})* *", re.ASCII)
_PIECES: Final = re.compile(r"'[^'\n]*'|[^ ]+")


class SimpleCommand(Struct, frozen=True):
    """One program with its arguments, quotes removed."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Files that its output is redirected to."""
    is_piped: bool = False
    """Whether it reads what the command before it writes."""
    is_dynamic: bool = False
    """Whether its program is only known when it runs, as in `$TOOL --version`."""

    @property
    def text(self) -> str:
        return " ".join((*self.assignments, *self.words))


class CommandLine(Struct, frozen=True):
    commands: tuple[SimpleCommand, ...]
    is_complete: bool


def plain_commands(line: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a plain line; None for a line that has to be read with care."""
    if _PLAIN.fullmatch(line) is None:
        return None
    found: list[SimpleCommand] = []
    words: list[str] = []
    is_piped = False
    for piece in [*_PIECES.findall(line), ";"]:
        if piece in _JOINS:
            if not words:
                return None
            found.append(SimpleCommand(tuple(words), is_piped=is_piped))
            words, is_piped = [], piece == "|"
        elif words:
            if piece != _MERGED:
                words.append(piece[1:-1] if piece[0] == "'" else piece)
        elif piece[0] == "'" or "=" in piece or piece in KEYWORDS or piece == _MERGED:
            return None
        else:
            words.append(piece)
    return tuple(found)

"""What a command line is made of, and those lines that can be read without reading like a shell.

Most lines that agents run are plain: words, single quotes, and commands joined by `&&`, `||`, `|`
or `;`, all with blanks between them. All others are left to `shell`, which overlooks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

KEYWORDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
    | {"fi", "done", "esac", "}", "function"}
)
SHELLS: Final = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "mksh", "rbash", "csh", "tcsh"}
)
_EXPANDED: Final = re.compile(r"=|[^*?\[{$`]*[*?\[{$`]")
_JOINS: Final = frozenset({"&&", "||", "|", ";"})
_MERGED: Final = "2>&1"
_PIECE: Final = r"(?:[\w./:,@%+=-]+|'[^'\n]*'|&&|\|\|?|;|2>&1)"
_PLAIN: Final = re.compile(rf" *{_PIECE}(?: +{_PIECE})* *", re.ASCII)
_PIECES: Final = re.compile(r"'[^'\n]*'|[^ ]+")
_BARE: Final = re.compile(r"[\w./:,@%+= -]+", re.ASCII)


class SimpleCommand(Struct, frozen=True, gc=False):
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


def is_expanded(program: str) -> bool:
    """Say whether a shell may make another word of the name of a program."""
    return program not in ("[", "[[") and _EXPANDED.match(program) is not None


class Word:
    """A word of a line while it is read."""

    __slots__ = ("is_dynamic", "is_quoted", "is_started", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.is_started = self.is_quoted = self.is_dynamic = False

    @property
    def names_unknown(self) -> bool:
        """Whether a shell makes another word of it: `$X`, `{rm,-rf}`, `/bin/"r"?`, zsh's `=rm`."""
        return self.is_dynamic or is_expanded("".join(self.parts))


def names_shell(commands: Iterable[SimpleCommand]) -> bool:
    """Say whether a shell is among the words of some commands, behind whatever else."""
    words = (word for command in commands for word in command.words)
    return any(word.rpartition("/")[2] in SHELLS for word in words)


class CommandLine(Struct, frozen=True, gc=False):
    commands: tuple[SimpleCommand, ...]
    is_complete: bool


def _bare_command(line: str) -> tuple[SimpleCommand] | None:
    """Return the one command of a line that is nothing but words, as half of all lines are."""
    words = tuple(line.split())
    if not words or "=" in words[0] or words[0] in KEYWORDS:
        return None
    return (SimpleCommand(words),)


def plain_commands(line: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a plain line; None for a line that has to be read with care."""
    if _BARE.fullmatch(line) is not None:
        return _bare_command(line)
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

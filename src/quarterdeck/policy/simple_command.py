"""One program with its arguments, as both readings of a command line find it; pure."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct


def names(text: str) -> frozenset[str]:
    """Return the names in a text: tables of programs and options are written as text."""
    return frozenset(text.split())


SHELLS: Final = names(
    """sh bash zsh dash ksh fish ash mksh rbash csh tcsh hush ksh93 pdksh lksh yash elvish nu pwsh
    xonsh"""
)
_EXPANDED: Final = re.compile(r"=|[^*?\[{$`]*[*?\[{$`]")


class SimpleCommand(Struct, frozen=True, gc=False):
    """One program with its arguments, without quotes."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Files to which its output is redirected."""
    reads: tuple[str, ...] = ()
    """Files from which its input is redirected, as far as the strict reading found them."""
    is_piped: bool = False
    """Whether it reads the output of the command before it."""
    is_dynamic: bool = False
    """Whether its program is only known at run time, as in `$TOOL --version`."""
    is_given: bool = False
    """Whether it reads text of the line that is not a command of a shell."""
    has_open_word: bool = False
    """Whether a shell may replace a word by names that begin with `-`, as in `sort *`; or it
    gets further words when it runs, as behind `xargs`."""
    globs: tuple[str, ...] = ()
    """Words that a shell may replace by the names of files, in the strict reading."""

    @property
    def text(self) -> str:
        return " ".join((*self.assignments, *self.words))


def program_of(command: SimpleCommand) -> str:
    """Return the program of a command, without its folder."""
    if not command.words:
        return ""
    program = command.words[0]
    return program.rpartition("/")[2] if "/" in program else program


def is_expanded(program: str) -> bool:
    """Return whether a shell may expand the name of a program to another one."""
    return program not in ("[", "[[") and _EXPANDED.match(program) is not None

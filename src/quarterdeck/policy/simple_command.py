"""One program with its arguments, as both readings of a command line find it; pure.

Assignments and wrappers may leave what it does unchanged: `CI=true npm test` and
`timeout 60 npm test` run `npm test`, so a rule that allows `npm test` allows them. Other variables
can change the program that is found, the code that it loads or the programs that it starts (`PATH`,
`LD_PRELOAD`, `NODE_OPTIONS`, `PYTHONPATH`, `GIT_SSH`, `PAGER`), so a pattern allows them only if it
begins with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


_VARIABLES: Final = names(
    """CI CONTINUOUS_INTEGRATION NODE_ENV BABEL_ENV RAILS_ENV RACK_ENV MIX_ENV APP_ENV FLASK_ENV
    FORCE_COLOR NO_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM TERM COLUMNS LINES TZ LANG LC_ALL
    LC_CTYPE LANGUAGE DEBUG VERBOSE V QUIET SILENT LOG_LEVEL LOGLEVEL RUST_BACKTRACE RUST_LOG
    RUST_TEST_THREADS CARGO_TERM_COLOR CARGO_INCREMENTAL CARGO_TERM_PROGRESS_WHEN
    CARGO_NET_OFFLINE GOOS GOARCH CGO_ENABLED GOMAXPROCS NEXT_TELEMETRY_DISABLED DO_NOT_TRACK
    PORT HOMEBREW_NO_AUTO_UPDATE DEBIAN_FRONTEND PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT
    UV_NO_PROGRESS TF_IN_AUTOMATION TF_INPUT ASTRO_TELEMETRY_DISABLED
    GATSBY_TELEMETRY_DISABLED STORYBOOK_DISABLE_TELEMETRY NUXT_TELEMETRY_DISABLED
    TURBO_TELEMETRY_DISABLED DOTNET_CLI_TELEMETRY_OPTOUT TEST_TIMEOUT HYPOTHESIS_PROFILE
    TESTCONTAINERS_RYUK_DISABLED COVERAGE"""
)
_ASSIGNED: Final = re.compile(r"([A-Z_]+)=[A-Za-z0-9_.,:@%+-]{0,64}", re.ASCII)
"""A value cannot be a path, nor text that a shell calculates: `[ CI -eq 1 ]` reads it in mksh."""
_TIME: Final = r"\d+(?:\.\d+)?[smhd]?"
WRAPPERS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(rf"{name} {options}", re.ASCII)
    for name, options in {
        "timeout": rf"(?:(?:-k|-s|--kill-after|--signal)[ =]?\w+ |--foreground |--preserve-status |"
        rf"-v |--verbose )*{_TIME} ",
        "time": "",  # no options: zsh takes `-p` for the program
        "nice": r"(?:(?:-n ?|-|--adjustment[ =])-?\d+ )?",
        "ionice": r"(?:(?:-c|-n) ?\d )*",
        "stdbuf": r"(?:-[ioe] ?(?:L|0|\d+[KM]?) )+",
        "command": "",
        "env": r"(?:[A-Z_]+=[A-Za-z0-9_.,:@%+-]* )*",
    }.items()
}
"""What may stand between a wrapper and the program that it runs."""


_NUMBERS: Final = names("COLUMNS LINES")
"""Numbers to zsh and mksh, which calculate what is assigned: `COLUMNS=IFS--` changes `IFS`."""


def is_harmless_assignment(assignment: str) -> bool:
    """Return whether an assignment leaves what a command does unchanged."""
    found = _ASSIGNED.fullmatch(assignment)
    if found is None or found[1] not in _VARIABLES:
        return False
    return found[1] not in _NUMBERS or assignment[found.end(1) + 1 :].isdecimal()


def without_wrapper(words: Sequence[str]) -> Sequence[str] | None:
    """Return the command behind a wrapper; None if it has none, or one with other options."""
    pattern = WRAPPERS.get(words[0])
    found = None if pattern is None else pattern.match(" ".join(words))
    if found is None:
        return None
    count = found[0].count(" ")
    if count >= len(words) or " ".join((*words[:count], "")) != found[0]:
        return None
    if not all(map(is_harmless_assignment, words[1:count] if words[0] == "env" else ())):
        return None
    return words[count:]

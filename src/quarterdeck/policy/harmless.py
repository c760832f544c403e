"""Assignments and wrappers that do not change what a command does; data.

`CI=true npm test` and `timeout 60 npm test` run `npm test`: a rule that allows `npm test` allows
them. Other variables can change the program that is found, the code that it loads or the programs
that it starts (`PATH`, `LD_PRELOAD`, `NODE_OPTIONS`, `PYTHONPATH`, `GIT_SSH`, `PAGER`), so a
pattern allows them only if it begins with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from quarterdeck.policy.simple_command import names

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


def is_harmless_assignment(assignment: str) -> bool:
    """Return whether an assignment leaves what a command does unchanged."""
    found = _ASSIGNED.fullmatch(assignment)
    return found is not None and found[1] in _VARIABLES


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

"""`quarterdeck completion SHELL`: what a shell needs to complete this command.

The scripts are made of the parsers, so they offer exactly what is understood; what a value may be
is offered where a parser says so. Names of agents and sessions are asked of this same command when
they are completed, which looks into the data directory. Nothing is asked of a hub: completing must
not wait for anything.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.main import VERBS
from quarterdeck.cli.parsers import PARSERS, WORDS, completion_parser
from quarterdeck.cli.places import data_directory

# Verbs whose parsers are not made of the standard library alone; a test compares them.
_ELSEWHERE: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "acp": (
        ("serve",),
        (
            *("--model", "--config", "--agent", "--initial-message", "--sessions"),
            *("--no-sessions", "--host", "--port", "--token-file", "--no-token"),
            *("--allow-host", "--allow-origin", "--help"),
        ),
    ),
}

_NAMED: Final[Mapping[str, str]] = {
    "run": "agents",
    "show": "sessions",
    "tail": "sessions",
    "export": "sessions",
}
"""What the words behind a verb are the names of; those of `run` only the first."""
_NAMED_BY: Final[Mapping[str, str]] = {"--session": "sessions"}
"""What the value of an option is the name of."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """What may follow a verb."""

    options: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    """For each option with a closed set of values, those."""
    paths: tuple[str, ...]
    """Options whose value is a file or a folder."""
    positional: tuple[str, ...]
    asked: Mapping[str, str]
    """For each option whose value is a name, of what."""


def run(arguments: list[str]) -> int:
    chosen = read(completion_parser(), arguments)
    if chosen is None:
        return DONE
    if chosen.shell in WORDS:
        print("\n".join(_known_words(chosen.shell)))
    else:
        print(script(chosen.shell), end="")
    return DONE


def _known_words(what: str) -> list[str]:
    # Not for those who want a script: databases and the hub's configuration.
    from quarterdeck.cli.known_words import agent_words, session_words  # noqa: PLC0415

    environ = os.environ
    return agent_words(environ) if what == "agents" else session_words(data_directory(environ))


def script(shell: str) -> str:
    """Return the script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def words_of(verb: str) -> Words:
    """Return what may follow a verb."""
    if verb in _ELSEWHERE:
        words, options = _ELSEWHERE[verb]
        return Words(options=options, values={}, paths=(), positional=words, asked={})
    parser = PARSERS[verb]()
    actions = parser._actions  # noqa: SLF001 - there is no other way to them
    named = {action.option_strings[-1]: action for action in actions if action.option_strings}
    others = [action for action in actions if not action.option_strings]
    return Words(
        options=tuple(named),
        values={name: tuple(action.choices) for name, action in named.items() if action.choices},
        paths=tuple(name for name, action in named.items() if _is_path(action)),
        positional=tuple(str(each) for action in others for each in action.choices or ()),
        asked={name: what for name, what in _NAMED_BY.items() if name in named},
    )


def _is_path(action: argparse.Action) -> bool:
    return action.type is Path


def _bash() -> str:
    cases = "\n".join(_bash_case(verb) for verb in VERBS)
    return f"""\
# bash completion for quarterdeck; source this, or put it where bash-completion looks.
_quarterdeck() {{
    local cur prev verb words
    cur="${{COMP_WORDS[COMP_CWORD]}}"
    prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    verb="${{COMP_WORDS[1]}}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join((*VERBS, "--help", "--version"))}" -- "$cur"))
        return
    fi
    case "$verb" in
{cases}
        *) return ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -F _quarterdeck quarterdeck
"""


def _bash_case(verb: str) -> str:
    words = words_of(verb)
    lines = [f"        {verb})"]
    branches = [
        f"{option}) words={shlex.quote(' '.join(values))} ;;"
        for option, values in words.values.items()
    ]
    branches += [
        f'{option}) words="$(quarterdeck completion {what} 2>/dev/null)" ;;'
        for option, what in words.asked.items()
    ]
    if words.paths:
        branches.append(f'{"|".join(words.paths)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;')
    everything = shlex.quote(" ".join((*words.positional, *words.options)))
    branches.append(f"*) words={everything} {_bash_names(verb)};;")
    lines.append('            case "$prev" in')
    lines += (f"                {branch}" for branch in branches)
    lines += ("            esac ;;",)
    return "\n".join(lines)


def _bash_names(verb: str) -> str:
    if verb not in _NAMED:
        return ""
    place = '"$COMP_CWORD" -eq 2' if verb == "run" else '"${cur#-}" = "$cur"'
    more = f'words="$words $(quarterdeck completion {_NAMED[verb]} 2>/dev/null)"'
    return f"; if [ {place} ]; then {more}; fi "


def _zsh() -> str:
    verbs = "\n".join(
        f"        {shlex.quote(f'{verb}:{summary}')}" for verb, (_, summary) in VERBS.items()
    )
    cases = "\n".join(_zsh_case(verb) for verb in VERBS)
    return f"""\
#compdef quarterdeck
# zsh completion for quarterdeck; put it into a folder of $fpath as _quarterdeck.
_quarterdeck() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe 'verb' verbs
        return
    fi
    case "$words[2]" in
{cases}
    esac
}}
if [ "$funcstack[1]" = "_quarterdeck" ]; then
    _quarterdeck "$@"
else
    compdef _quarterdeck quarterdeck
fi
"""


def _zsh_case(verb: str) -> str:
    words = words_of(verb)
    branches = [
        f"{option}) compadd -- {shlex.join(values)} ;;" for option, values in words.values.items()
    ]
    branches += [
        f"{option}) compadd -- $(quarterdeck completion {what} 2>/dev/null) ;;"
        for option, what in words.asked.items()
    ]
    if words.paths:
        branches.append(f"{'|'.join(words.paths)}) _files ;;")
    names = ""
    if verb in _NAMED:
        place = "(( CURRENT == 3 )) && " if verb == "run" else ""
        names = f"; {place}compadd -- $(quarterdeck completion {_NAMED[verb]} 2>/dev/null)"
    everything = shlex.join((*words.positional, *words.options))
    branches.append(f"*) compadd -- {everything}{names} ;;")
    inner = "\n".join(f"                {branch}" for branch in branches)
    return f'        {verb})\n            case "$words[CURRENT-1]" in\n{inner}\n            esac ;;'


def _fish() -> str:
    lines = [
        "# fish completion for quarterdeck; put it into ~/.config/fish/completions.",
        "complete -c quarterdeck -f",
    ]
    for verb, (_, summary) in VERBS.items():
        lines.append(
            f"complete -c quarterdeck -n __fish_use_subcommand -a {verb} -d {_fish_text(summary)}"
        )
    for verb in VERBS:
        words = words_of(verb)
        seen = f"complete -c quarterdeck -n '__fish_seen_subcommand_from {verb}'"
        lines += (f"{seen} -a {word}" for word in words.positional)
        if verb in _NAMED:
            lines.append(f"{seen} -a '(quarterdeck completion {_NAMED[verb]} 2>/dev/null)'")
        for option in words.options:
            values = words.values.get(option)
            more = f" -x -a {_fish_text(' '.join(values))}" if values else ""
            more = " -r -F" if option in words.paths else more
            if option in words.asked:
                more = f" -x -a '(quarterdeck completion {words.asked[option]} 2>/dev/null)'"
            lines.append(f"{seen} -l {option.removeprefix('--')}{more}")
    return "\n".join(lines) + "\n"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

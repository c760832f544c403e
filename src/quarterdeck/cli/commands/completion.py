"""`quarterdeck completion SHELL`: a completion script for a shell; `install` installs them all.

The scripts are generated from the parsers of all commands: options, fixed values, paths. Names of
agents and ids of sessions are looked up when they are completed, by `quarterdeck completion
agents|sessions`, which reads the data directory. It never contacts or starts a hub: the user is
waiting for a key to take effect.

Agents choose the ids of sessions, and shells expand what they complete: only plain words are
offered.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from typing_extensions import override

from quarterdeck.cli.arguments import DONE, Parser, data_directory
from quarterdeck.cli.main import COMMANDS

SHELLS: Final = ("bash", "zsh", "fish")
NAMES: Final = ("agents", "sessions", "machines")

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_MOST: Final = 200  # the newest sessions: a longer list cannot be read
_SECONDS: Final = 0.5  # to wait for the database


class _Shells(tuple[str, ...]):
    """The words that are listed; those that only the scripts use are accepted as well."""

    __slots__ = ()

    @override
    def __contains__(self, word: object) -> bool:
        return word in NAMES or super().__contains__(word)


def parser() -> Parser:
    parser = Parser(
        "completion",
        "Print a completion script for a shell. `quarterdeck completion install` puts the scripts"
        " and the man page where shells and man find them.",
        (
            ("quarterdeck completion install", "for every shell on this computer"),
            ("quarterdeck completion bash", "add it to ~/.bash_completion, or source it"),
            ("quarterdeck completion zsh", "save it as _quarterdeck in a directory of $fpath"),
            (
                "quarterdeck completion fish",
                "save it as ~/.config/fish/completions/quarterdeck.fish",
            ),
        ),
    )
    parser.subparsers["install"] = _install_parser()
    parser.add_argument(
        "shell",
        choices=_Shells(SHELLS),
        metavar="SHELL",
        help="bash, zsh or fish",
    )
    return parser


def _install_parser() -> Parser:
    parser = Parser(
        "completion install",
        "Link the completion scripts and the man page into ~/.local/share (or $XDG_DATA_HOME)."
        " uv and older versions of pipx install them where no shell looks. Shell start-up files are"
        " not changed.",
        (
            ("quarterdeck completion install", "for every shell on this computer"),
            ("quarterdeck completion install --remove", "undo it"),
        ),
    )
    parser.add_argument("--shell", choices=SHELLS, help="only this shell and the man page")
    parser.add_argument("--remove", action="store_true", help="remove what was installed")
    parser.set_defaults(installs=True)
    return parser


def load() -> Callable[[Namespace], int]:
    return run


def run(chosen: Namespace) -> int:
    if "installs" not in chosen:
        return print_completion(chosen)
    from quarterdeck.cli.shared_files import change_files

    return change_files(chosen)


def print_completion(chosen: Namespace) -> int:
    if chosen.shell in NAMES:
        environ = os.environ
        home = data_directory(environ)
        lookups: dict[str, Callable[[], list[str]]] = {
            "agents": lambda: agent_names(environ),
            "sessions": lambda: session_ids(home),
            "machines": lambda: machine_names(home),
        }
        print("\n".join(lookups[chosen.shell]()))
    else:
        print(script(chosen.shell), end="")
    return DONE


def script(shell: str) -> str:
    """Return the script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


# ---- names that are looked up ------------------------------------------------------------------


def session_ids(home: Path) -> list[str]:
    """Return the ids of the newest sessions in a data directory; none if it cannot be read."""
    return _column(home / "log.db", "SELECT session_id FROM sessions ORDER BY id DESC LIMIT ?")


def machine_names(home: Path) -> list[str]:
    """Return the names of the machines that have joined the hub of a data directory."""
    query = "SELECT name FROM machines WHERE removed_at IS NULL ORDER BY name LIMIT ?"
    return _column(home / "hub.db", query)


def _column(database: Path, query: str) -> list[str]:
    import sqlite3  # the scripts do without

    address = f"file:{quote(str(database))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_SECONDS)) as connection:
            return _plain_words(str(row[0]) for row in connection.execute(query, (_MOST,)))
    except sqlite3.Error:
        return []


def agent_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the agents that can be started here."""
    from quarterdeck.agents import known_agents
    from quarterdeck.cli.config import HubConfig, catalogue_folder, load_config
    from quarterdeck.errors import SettingsInvalid
    from quarterdeck.hub.options import default_home

    try:
        config = load_config(environ)
    except SettingsInvalid:
        config = HubConfig()
    home, folder = default_home(environ), catalogue_folder(environ)
    known = known_agents(config.agents, environ, home=home, folder=folder).all()
    return _plain_words(each.name for each in known if each.installed)


def _plain_words(names: Iterable[str]) -> list[str]:
    return [name for name in names if _WORD.fullmatch(name)]


# ---- words of the parsers ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CompletionWords:
    """What can follow a command."""

    options: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    """The values of each option that has a fixed set."""
    paths: tuple[str, ...]
    """Options whose value is a path."""
    positional: tuple[str, ...]
    option_names: Mapping[str, str]
    """Options whose value is a name, and of what: one of `NAMES`."""
    names: str | None
    """What the positional argument names, one of `NAMES`."""
    is_first_only: bool
    """Whether only the first word after the command is such a name."""


def words_of(command: str) -> CompletionWords:
    """Return what can follow a command."""
    module = importlib.import_module(f"quarterdeck.cli.commands.{command}")
    parser: Parser = module.parser()
    parsers = (parser, *parser.subparsers.values())
    actions = [action for each in parsers for action in each._actions]  # noqa: SLF001 - no other way
    named = {action.option_strings[-1]: action for action in actions if action.option_strings}
    others = [action for action in actions if not action.option_strings]
    first = next((each for each in others if each.dest in parser.completed), None)
    return CompletionWords(
        options=tuple(named),
        values={name: tuple(action.choices) for name, action in named.items() if action.choices},
        paths=tuple(name for name, action in named.items() if action.type is Path),
        positional=(
            *parser.subparsers,
            *(str(each) for action in others for each in action.choices or ()),
        ),
        option_names={name: what for name, what in parser.completed.items() if name in named},
        names=None if first is None else parser.completed[first.dest],
        is_first_only=first is not None and first.nargs == argparse.ZERO_OR_MORE,
    )


# ---- scripts -----------------------------------------------------------------------------------


def _bash() -> str:
    cases = "\n".join(_bash_case(command) for command in COMMANDS)
    return f"""\
# bash completion for quarterdeck; source it, or save it where bash-completion looks.
_quarterdeck() {{
    local cur prev command words
    cur="${{COMP_WORDS[COMP_CWORD]}}"
    prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    command="${{COMP_WORDS[1]}}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join((*COMMANDS, "--help", "--version"))}" -- "$cur"))
        return
    fi
    case "$command" in
{cases}
        *) return ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -F _quarterdeck quarterdeck
"""


def _bash_case(command: str) -> str:
    words = words_of(command)
    lines = [f"        {command})"]
    branches = [
        f"{option}) words={shlex.quote(' '.join(values))} ;;"
        for option, values in words.values.items()
    ]
    branches += [
        f'{option}) words="$(quarterdeck completion {what} 2>/dev/null)" ;;'
        for option, what in words.option_names.items()
    ]
    if words.paths:
        branches.append(f'{"|".join(words.paths)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;')
    everything = shlex.quote(" ".join((*words.positional, *words.options)))
    branches.append(f"*) words={everything} {_bash_names(words)};;")
    lines.append('            case "$prev" in')
    lines += (f"                {branch}" for branch in branches)
    lines += ("            esac ;;",)
    return "\n".join(lines)


def _bash_names(words: CompletionWords) -> str:
    if words.names is None:
        return ""
    condition = '"$COMP_CWORD" -eq 2' if words.is_first_only else '"${cur#-}" = "$cur"'
    more = f'words="$words $(quarterdeck completion {words.names} 2>/dev/null)"'
    return f"; if [ {condition} ]; then {more}; fi "


def _zsh() -> str:
    commands = "\n".join(
        f"        {shlex.quote(f'{command}:{summary}')}" for command, summary in COMMANDS.items()
    )
    cases = "\n".join(_zsh_case(command) for command in COMMANDS)
    return f"""\
#compdef quarterdeck
# zsh completion for quarterdeck; save it as _quarterdeck in a directory of $fpath.
_quarterdeck() {{
    local -a commands
    commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe 'command' commands
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


def _zsh_case(command: str) -> str:
    words = words_of(command)
    branches = [
        f"{option}) compadd -- {shlex.join(values)} ;;" for option, values in words.values.items()
    ]
    branches += [
        f"{option}) compadd -- $(quarterdeck completion {what} 2>/dev/null) ;;"
        for option, what in words.option_names.items()
    ]
    if words.paths:
        branches.append(f"{'|'.join(words.paths)}) _files ;;")
    names = ""
    if words.names is not None:
        condition = "(( CURRENT == 3 )) && " if words.is_first_only else ""
        names = f"; {condition}compadd -- $(quarterdeck completion {words.names} 2>/dev/null)"
    everything = shlex.join((*words.positional, *words.options))
    branches.append(f"*) compadd -- {everything}{names} ;;")
    inner = "\n".join(f"                {branch}" for branch in branches)
    return (
        f'        {command})\n            case "$words[CURRENT-1]" in\n{inner}\n            esac ;;'
    )


def _fish() -> str:
    lines = [
        "# fish completion for quarterdeck; save it in ~/.config/fish/completions.",
        "complete -c quarterdeck -f",
    ]
    for command, summary in COMMANDS.items():
        first = "complete -c quarterdeck -n __fish_use_subcommand"
        lines.append(f"{first} -a {command} -d {_fish_text(summary)}")
    for command in COMMANDS:
        words = words_of(command)
        seen = f"complete -c quarterdeck -n '__fish_seen_subcommand_from {command}'"
        lines += (f"{seen} -a {word}" for word in words.positional)
        if words.names is not None:
            lines.append(f"{seen} -a '(quarterdeck completion {words.names} 2>/dev/null)'")
        for option in words.options:
            values = words.values.get(option)
            more = f" -x -a {_fish_text(' '.join(values))}" if values else ""
            more = " -r -F" if option in words.paths else more
            if option in words.option_names:
                more = f" -x -a '(quarterdeck completion {words.option_names[option]} 2>/dev/null)'"
            lines.append(f"{seen} -l {option.removeprefix('--')}{more}")
    return "\n".join(lines) + "\n"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

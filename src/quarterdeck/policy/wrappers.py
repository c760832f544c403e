"""The programs that a simple command runs, also behind `sudo`, `env`, `xargs` and `sh -c`.

Each wrapper is described by its options that take a value, because the wrapped command begins at
the first word which is neither an option nor the value of one. If that is wrong for a wrapper, a
value may be taken for a program: a rule that denies then matches too little, so a new option
belongs in the table. Nested lines are read up to `DEEPEST` levels; beyond that, and for lines that
cannot be read, a dynamic command represents what is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from quarterdeck.policy.command_line import (
    KEYWORDS,
    SHELLS,
    SimpleCommand,
    is_expanded,
    read_command,
)

_WITH_VALUE: Final = {
    name: frozenset(options.split())
    for name, options in {
        "sudo": "-u -g -h -p -C -D -r -t -R -T -U --user --group --host --prompt --chdir --chroot"
        " --close-from --role --type --command-timeout --other-user",
        "doas": "-u -C",
        "env": "-u -C --unset --chdir",
        "nice": "-n --adjustment",
        "ionice": "-c -n --class --classdata",
        "timeout": "-s -k --signal --kill-after",
        "xargs": "-I -n -P -L -d -a -E -s --max-args --max-procs --max-lines --max-chars"
        " --delimiter --arg-file",
        "time": "-f -o",
        "stdbuf": "-i -o -e --input --output --error",
        "strace": "-o -e -p",
        "ltrace": "-o -e -p",
        "watch": "-n --interval",
        "exec": "-a",
        "parallel": "-j --jobs",
        "flock": "-w -E --timeout --conflict-exit-code",
        "runuser": "-u -g -G --user --group",
        "pkexec": "--user",
        "caffeinate": "-t -w",
        "systemd-run": "-p -u -H -M --property --unit --slice --uid --gid --description",
        **dict.fromkeys(("nohup", "command", "builtin", "setsid", "busybox", "coproc"), ""),
        **dict.fromkeys(("chroot", "unshare", "taskset", "numactl"), ""),
    }.items()
}
"""Programs that run another one, with their options that take a value."""
_POSITIONAL: Final = {"timeout": 1, "flock": 1, "chroot": 1, "taskset": 1}
_LINE_TAKERS: Final = frozenset({"su", "runuser", "script", "flock"})
"""Programs that run the line behind `-c`, as shells do."""
_EXECUTES: Final = re.compile(r"-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch")
_SPLITS: Final = re.compile(r"-[0iv]*S(.*)|--split-string=?(.*)", re.DOTALL)
_RUNNERS: Final = frozenset({*SHELLS, *_WITH_VALUE, *_LINE_TAKERS, "eval", "trap", "find", "fd"})
DEEPEST: Final = 8
_UNREADABLE: Final = SimpleCommand(("unreadable",), is_dynamic=True)
"""Represents the unknown part of a nested line."""


def is_shell(program: str) -> bool:
    return program in SHELLS


def program_of(command: SimpleCommand) -> str:
    """Return the program of a command, without its folder."""
    if not command.words:
        return ""
    program = command.words[0]
    return program.rpartition("/")[2] if "/" in program else program


def all_commands(commands: Sequence[SimpleCommand]) -> Sequence[SimpleCommand]:
    """Return the commands and those that they run, each after the one that runs it."""
    if not any(program_of(command) in _RUNNERS for command in commands):
        return commands  # the usual case
    return [inner for command in commands for inner in _with_inner(command)]


def unwrapped(command: SimpleCommand) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each program that a command runs, outermost first, with its arguments."""
    for each in all_commands((command,)):
        if each.words:
            yield program_of(each), each.words[1:]


def _with_inner(command: SimpleCommand, depth: int = 0) -> Iterator[SimpleCommand]:
    yield command
    if depth >= DEEPEST:
        yield _UNREADABLE
        return
    for inner in _inner(program_of(command), command.words[1:]):
        yield from _with_inner(inner, depth + 1)


def _inner(program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    if program in SHELLS or program in _LINE_TAKERS:
        yield from _shell_line(arguments)
    if program == "eval":
        yield from _line(" ".join(arguments))
    elif program == "trap":
        yield from _line(" ".join(arguments[:1]))
    elif program == "env" and (split := _split_line(arguments)) is not None:
        yield from _line(split)
    elif program in _WITH_VALUE:
        words = _behind_options(program, arguments)
        if words:
            yield SimpleCommand(tuple(words), is_dynamic=is_expanded(words[0]))
    elif program in ("find", "fd"):
        for position, word in enumerate(arguments):
            if _EXECUTES.fullmatch(word) and (run := tuple(arguments[position + 1 :])):
                yield SimpleCommand(run, is_dynamic=is_expanded(run[0]))


def _split_line(arguments: Sequence[str]) -> str | None:
    """Return the line that `env -S` splits into words, with the words that follow."""
    for position, word in enumerate(arguments):
        found = _SPLITS.fullmatch(word)
        if found is not None:
            return " ".join([found[1] or found[2] or "", *arguments[position + 1 :]])
    return None


def _behind_options(program: str, arguments: Sequence[str]) -> list[str]:
    words = list(arguments)
    skipped = _POSITIONAL.get(program, 0)
    while words:
        if words[0].startswith("-"):
            if _takes_value(words.pop(0), _WITH_VALUE[program]) and words:
                words.pop(0)
        elif re.match(r"[A-Za-z_]\w*=", words[0]) or words[0] in KEYWORDS:
            words.pop(0)
        elif skipped:
            skipped -= 1
            words.pop(0)
        else:
            break
    return words


def _takes_value(option: str, valued: frozenset[str]) -> bool:
    """Return whether the next word is the value of an option; also for the last of `-nu`."""
    if option.startswith("--"):
        return option in valued
    for position, letter in enumerate(option[1:], 1):
        if f"-{letter}" in valued:
            return position == len(option) - 1
    return False


def _shell_line(arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    """Read the line behind `-c`, also as `-lc`."""
    for position, argument in enumerate(arguments):
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*|--command", argument):
            rest = [each for each in arguments[position + 1 :] if not each.startswith("-")]
            yield from _line(rest[0] if rest else "")
            return


def _line(text: str) -> Iterator[SimpleCommand]:
    parsed = read_command(text)
    yield from parsed.commands
    if not parsed.is_complete:
        yield _UNREADABLE

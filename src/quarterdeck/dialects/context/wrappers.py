"""What a simple command really runs: behind `sudo`, `env`, `xargs`, `sh -c`, `find -exec`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from quarterdeck.dialects.context.plain import SimpleCommand
from quarterdeck.dialects.context.shell import parse_command_line

_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "ash"})
_WITH_VALUE: Final = {
    "sudo": {"-u", "-g", "-h", "-p", "-C", "-D", "-r", "-t", "--user", "--group"},
    "doas": {"-u", "-C"},
    "env": {"-u", "-C", "-S", "--unset", "--chdir"},
    "nice": {"-n"},
    "ionice": {"-c", "-n"},
    "timeout": {"-s", "-k", "--signal"},
    "xargs": {"-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s"},
    "time": {"-f", "-o"},
    "stdbuf": {"-i", "-o", "-e"},
    "strace": {"-o", "-e", "-p"},
    "watch": {"-n"},
    "exec": {"-a"},
    "nohup": set(),
    "command": set(),
    "builtin": set(),
    "setsid": set(),
    "busybox": set(),
    "coproc": set(),
    "parallel": {"-j"},
}  # fmt: skip
"""Programs that run another, and which of their options take a word of their own."""
_POSITIONAL: Final = {"timeout": 1}
_RUNNERS: Final = frozenset({*_SHELLS, *_WITH_VALUE, "su", "eval", "trap", "find", "fd"})
DEEPEST: Final = 8


def is_shell(program: str) -> bool:
    return program in _SHELLS


def program_of(command: SimpleCommand) -> str:
    """Return the program of a command, without its folder."""
    return command.words[0].rpartition("/")[2] if command.words else ""


def programs_of(command: SimpleCommand) -> list[tuple[str, Sequence[str]]]:
    """Return what `unwrapped` yields, at once for the many programs that run no other."""
    program = program_of(command)
    if program and program not in _RUNNERS:
        return [(program, command.words[1:])]
    return list(unwrapped(command))


def unwrapped(command: SimpleCommand, depth: int = 0) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each program that a command runs, the outermost first, with its arguments."""
    if not command.words:
        return
    program, arguments = program_of(command), command.words[1:]
    yield program, arguments
    if depth >= DEEPEST:
        yield "", ()  # nothing is known of what is deeper
        return
    for inner in _inner(program, arguments):
        yield from unwrapped(inner, depth + 1)


def _inner(program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    if program in _SHELLS or program == "su":
        yield from _shell_line(arguments)
    elif program == "eval":
        yield from _line(" ".join(arguments))
    elif program == "trap":
        yield from _line(" ".join(arguments[:1]))
    elif program == "env" and "-S" in arguments:
        yield from _line(" ".join(arguments[arguments.index("-S") + 1 :]))
    elif program in _WITH_VALUE:
        words = _behind_options(program, arguments)
        if words:
            yield SimpleCommand(tuple(words))
    elif program in ("find", "fd"):
        for option in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"):
            if option in arguments:
                yield SimpleCommand(tuple(arguments[arguments.index(option) + 1 :]))


def _behind_options(program: str, arguments: Sequence[str]) -> list[str]:
    words = list(arguments)
    valued = _WITH_VALUE[program]
    skipped = _POSITIONAL.get(program, 0)
    while words:
        if words[0].startswith("-"):
            option = words.pop(0)
            if option in valued and words:
                words.pop(0)
        elif re.match(r"[A-Za-z_]\w*=", words[0]):
            words.pop(0)
        elif skipped:
            skipped -= 1
            words.pop(0)
        else:
            break
    return words


def _shell_line(arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    """Find the line behind `-c`, also as `-lc`."""
    for position, argument in enumerate(arguments):
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*|--command", argument):
            rest = [each for each in arguments[position + 1 :] if not each.startswith("-")]
            yield from _line(rest[0] if rest else "")
            return


def _line(text: str) -> Iterator[SimpleCommand]:
    parsed = parse_command_line(text)
    yield from parsed.commands
    if not parsed.is_complete:
        yield SimpleCommand(("unreadable",))

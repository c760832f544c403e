"""What a simple command really runs: behind `sudo`, `env`, `xargs`, `sh -c`, `find -exec`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from quarterdeck.dialects.context.plain import SHELLS, SimpleCommand
from quarterdeck.dialects.context.shell import parse_command_line

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
"""Programs that run another, and which of their options take a word of their own."""
_POSITIONAL: Final = {"timeout": 1, "flock": 1, "chroot": 1, "taskset": 1}
_LINE_TAKERS: Final = frozenset({"su", "runuser", "script"})
"""Programs that, like shells, run the line behind `-c`."""
_EXECUTES: Final = re.compile(r"-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch")
_SPLITS: Final = re.compile(r"-[0iv]*S(.*)|--split-string=?(.*)", re.DOTALL)
_RUNNERS: Final = frozenset({*SHELLS, *_WITH_VALUE, *_LINE_TAKERS, "eval", "trap", "find", "fd"})
DEEPEST: Final = 8


def is_shell(program: str) -> bool:
    return program in SHELLS


def program_of(command: SimpleCommand) -> str:
    """Return the program of a command, without its folder."""
    if not command.words:
        return ""
    program = command.words[0]
    return program.rpartition("/")[2] if "/" in program else program


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
            yield SimpleCommand(tuple(words))
    elif program in ("find", "fd"):
        for position, word in enumerate(arguments):
            if _EXECUTES.fullmatch(word):
                yield SimpleCommand(tuple(arguments[position + 1 :]))


def _split_line(arguments: Sequence[str]) -> str | None:
    """Return what `env` makes words of: the text behind `-S`, and all that follows."""
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
            if _takes_a_word(words.pop(0), _WITH_VALUE[program]) and words:
                words.pop(0)
        elif re.match(r"[A-Za-z_]\w*=", words[0]):
            words.pop(0)
        elif skipped:
            skipped -= 1
            words.pop(0)
        else:
            break
    return words


def _takes_a_word(option: str, valued: frozenset[str]) -> bool:
    """Say whether an option is one that the next word belongs to; also the last of `-nu`."""
    if option.startswith("--"):
        return option in valued
    for position, letter in enumerate(option[1:], 1):
        if f"-{letter}" in valued:
            return position == len(option) - 1
    return False


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

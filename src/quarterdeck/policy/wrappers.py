"""The programs that a simple command runs, also behind `sudo`, `env`, `xargs` and `sh -c`; pure.

Each wrapper is described by its options that take a value, because the wrapped command begins at
the first word which is neither an option nor the value of one. If that is wrong for a wrapper, a
value may be taken for a program: a rule that denies then matches too little, so a new option
belongs in the table. Lines and commands within each other are read up to a depth, a number of
commands and an amount of text; beyond that, and for what cannot be read, a dynamic command
represents what is not known.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from quarterdeck.policy.command_line import KEYWORDS, CommandLine, commands_in_text, read_command
from quarterdeck.policy.simple_command import SHELLS, SimpleCommand, is_expanded, names, program_of

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
        "exec": "-a",
        "parallel": "-j --jobs",
        "flock": "-w -E --timeout --conflict-exit-code",
        "runuser": "-u -g -G --user --group",
        "pkexec": "--user",
        "caffeinate": "-t -w",
        "systemd-run": "-p -u -H -M --property --unit --slice --uid --gid --description",
        "prlimit": "-p --pid",
        "nsenter": "-t -S -G --target --setuid --setgid",
        "setpriv": "--reuid --regid --groups --inh-caps --bounding-set --ambient-caps",
        "chrt": "-T -P -D -p",
        "firejail": "",
        "bwrap": "",
        "proot": "-r -b -w -q -k",
        "faketime": "-f",
        "xvfb-run": "-n -s -e -f -p -w",
        "valgrind": "",
        "gosu": "",
        "chpst": "-u -U -b -n -l -m -d -o -p -f -c -r -t -e -/",
        "proxychains": "-f",
        "cgexec": "-g",
        "start-stop-daemon": "-n -p -x -a -u -d --name --pidfile --exec --startas --user --chdir",
        **dict.fromkeys(("nohup", "command", "builtin", "setsid", "busybox", "coproc"), ""),
        **dict.fromkeys(("chroot", "unshare", "taskset", "numactl", "toybox", "fakeroot"), ""),
        **dict.fromkeys(
            ("noglob", "nocorrect", "repeat", "-", "unbuffer", "rlwrap", "torsocks"), ""
        ),
        **dict.fromkeys(("dbus-run-session", "catchsegv", "setarch", "linux64", "tini"), ""),
        **dict.fromkeys(("eatmydata", "chronic", "proxychains4", "su-exec", "dumb-init"), ""),
    }.items()
}
"""Programs that run another one, with their options that take a value."""
_POSITIONAL: Final = {
    **dict.fromkeys(("timeout", "flock", "chroot", "taskset", "repeat", "chrt"), 1),
    **dict.fromkeys(("faketime", "gosu", "su-exec", "ssh"), 1),
}
_LINE_TAKERS: Final = frozenset({"su", "runuser", "script", "flock", "emulate"})
"""Programs that run the line behind `-c`, as shells do."""
_LINES: Final = frozenset({"eval", "watch", "ssh", "hyperfine", "concurrently", "sched", "at"})
"""Programs that run their arguments as a line, or a person's shell elsewhere does."""
_OF_LINES: Final = {
    "watch": frozenset({"-n", "--interval"}),
    "ssh": names("-b -c -B -D -e -E -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"),
}
"""Their options that take a value."""
_EVALUATORS: Final = names(
    """let test [ [[ printf print declare typeset local readonly export integer float unset read
    wait exit return shift break continue kill"""
)
"""Commands of a shell that calculate their arguments, and expand them once more."""
_FEEDERS: Final = frozenset({"xargs", "parallel"})
_EXECUTES: Final = re.compile(r"-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch")
_SPLITS: Final = re.compile(r"-[0iv]*S(.*)|--split-string=?(.*)", re.DOTALL)
_CODE_OPTIONS: Final = re.compile(
    r"-[A-Za-z]*[ceErRp]|--(?:eval|print|execute|command)(?:=.*)?", re.DOTALL
)
_INTERPRETERS: Final = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|php|deno|bun|lua|tclsh|awk|gawk|mawk|osascript|vim?|nvim|ex)"
    r"[\d.]*"
)
_SPAWNS: Final = re.compile(
    r"system|exec|spawn|popen|subprocess|child_process|os\.|shutil|unlink|rmtree|remove|`|eval"
    r"|__import__|%x|!|getline|\|",
    re.IGNORECASE,
)
"""Text of an inline program that may start another one."""
_GIT_LINES: Final = re.compile(r"--exec=?(.*)|-x(.*)|(?:foreach|run)|(?:.*=)!(.*)", re.DOTALL)
_DEFINERS: Final = names("alias trap complete compgen mapfile readarray")
_RUNNERS: Final = frozenset(
    {*SHELLS, *_WITH_VALUE, *_LINE_TAKERS, *_LINES, *_EVALUATORS, *_DEFINERS}
    | {"find", "fd", "fdfind", "git"}
)
DEEPEST: Final = 8
MOST_COMMANDS: Final = 128  # that are found behind others
_MOST_TEXT: Final = 16_384  # characters of lines within a line
_MOST_WORDS: Final = 32  # of one command behind another one
_UNREADABLE: Final = SimpleCommand(("unreadable",), is_dynamic=True)
"""Represents the unknown part of a nested line."""


def is_shell(program: str) -> bool:
    return program in SHELLS


def all_commands(commands: Sequence[SimpleCommand]) -> Sequence[SimpleCommand]:
    """Return the commands and those that they run, each after the one that runs it."""
    if not any(map(may_run_another, commands)):
        return commands  # the usual case
    search = _Search()
    return [inner for command in commands for inner in search.with_inner(command, 0)]


def commands_of_line(line: CommandLine) -> Sequence[SimpleCommand]:
    """Return `all_commands` of both readings of a line.

    Rules and the assessment of risk need them, one after the other: the last few are stored.
    """
    for known, found in _recent:
        if known is line:
            return found
    found = all_commands((*line.commands, *line.others))
    _recent.append((line, found))
    return found


_recent: Final[deque[tuple[CommandLine, Sequence[SimpleCommand]]]] = deque(maxlen=4)


def unwrapped(command: SimpleCommand) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each program that a command runs, outermost first, with its arguments."""
    for each in all_commands((command,)):
        if each.words:
            yield program_of(each), each.words[1:]


def inner_commands(program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    """Yield the commands that a program runs, not those that they run in turn."""
    yield from _Search().inner(program, arguments)


def shell_text(program: str, arguments: Sequence[str]) -> str | None:
    """Return the line behind `-c`, also as `-lc`, of a shell; None if there is none."""
    if program not in SHELLS and program not in _LINE_TAKERS:
        return None
    for position, argument in enumerate(arguments):
        if re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*|--command", argument):
            rest = [each for each in arguments[position + 1 :] if not each.startswith("-")]
            return rest[0] if rest else ""
        if argument.startswith("--command="):
            return argument.partition("=")[2]
    return None


def may_run_another(command: SimpleCommand) -> bool:
    """Return whether a command may run another one."""
    program = program_of(command)
    if program in _RUNNERS or command.assignments:
        return True
    return _runs_code(program, command.words[1:])


def _runs_code(program: str, arguments: Sequence[str]) -> bool:
    return bool(arguments) and _INTERPRETERS.fullmatch(program) is not None


class _Search:
    """A search for the commands behind others, which ends after so much work."""

    def __init__(self) -> None:
        self._commands = MOST_COMMANDS
        self._text = _MOST_TEXT

    def with_inner(self, command: SimpleCommand, depth: int) -> Iterator[SimpleCommand]:
        yield command
        if not may_run_another(command):
            return
        if depth >= DEEPEST or self._commands < 0:
            yield _UNREADABLE
            return
        for assignment in command.assignments:
            yield from self._expanded(assignment)
        for inner in self.inner(program_of(command), command.words[1:]):
            self._commands -= 1
            if self._commands < 0:
                yield _UNREADABLE
                return
            if command.is_piped and not inner.is_piped:
                inner = replace(inner, is_piped=True)  # noqa: PLW2901 - what it reads
            yield from self.with_inner(inner, depth + 1)

    def inner(self, program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
        text = shell_text(program, arguments)
        if text is not None:
            yield from self._line(text)
        if program in _LINES:
            yield from self._line(" ".join(_behind_options(program, arguments)[:_MOST_WORDS]))
        elif program in _EVALUATORS:
            for argument in arguments:
                yield from self._expanded(argument)
        elif program == "env" and (split := _split_line(arguments)) is not None:
            yield from self._line(split)
        elif program in _WITH_VALUE:
            yield from _wrapped(program, arguments)
        elif program in _DEFINERS:
            yield from self._defined(program, arguments)
        elif program == "git":
            yield from self._git(arguments)
        else:
            yield from _of_arguments(program, arguments)

    def _defined(self, program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
        """Read the lines that aliases stand for, those of traps, and those behind `-C`."""
        if program == "trap":
            yield from self._line(" ".join(arguments[:1]))
        elif program == "alias":
            for argument in arguments:
                yield from self._line(argument.partition("=")[2])
        else:
            for position, argument in enumerate(arguments[:-1]):
                if argument == "-C":
                    yield from self._line(arguments[position + 1])

    def _git(self, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
        """Read lines that git gives to a shell: aliases, `rebase --exec`, `submodule foreach`."""
        for position, argument in enumerate(arguments):
            found = _GIT_LINES.fullmatch(argument)
            if found is None:
                continue
            line = next(filter(None, found.groups()), "")
            is_foreach = argument in ("foreach", "run")
            if not is_foreach and not line and not argument.startswith(("--exec", "-x")):
                continue
            following = arguments[position + 1 : position + 1 + _MOST_WORDS]
            words = [each for each in following if each not in ("--recursive", "--quiet")]
            yield from self._line(line or " ".join(words if is_foreach else words[:1]))

    def _line(self, text: str) -> Iterator[SimpleCommand]:
        self._text -= len(text)
        if self._text < 0:
            yield _UNREADABLE
            return
        parsed = read_command(text)
        yield from parsed.commands
        yield from parsed.others
        if not parsed.is_complete:
            yield _UNREADABLE

    def _expanded(self, text: str) -> Iterator[SimpleCommand]:
        if "$" not in text and "`" not in text:
            return
        self._text -= len(text)
        if self._text < 0:
            yield _UNREADABLE
            return
        parsed = commands_in_text(text)
        yield from parsed.commands
        if not parsed.is_complete:
            yield _UNREADABLE


def _of_arguments(program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    """Yield the commands in the arguments of programs that are not shells."""
    if program in ("find", "fd", "fdfind"):
        yield from _executed(arguments)
    elif _runs_code(program, arguments) and _has_spawning_code(program, arguments):
        yield _UNREADABLE


def _has_spawning_code(program: str, arguments: Sequence[str]) -> bool:
    is_awk = program.endswith("awk")
    for position, argument in enumerate(arguments):
        if is_awk or _CODE_OPTIONS.fullmatch(argument) or argument.startswith(("-c", "-e", "+")):
            code = " ".join(arguments[position : position + 2])
            if _SPAWNS.search(code, 0, _MOST_TEXT) is not None or len(code) > _MOST_TEXT:
                return True
    return False


def _wrapped(program: str, arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    words = _behind_options(program, arguments)
    if words:
        yield SimpleCommand(
            tuple(words),
            is_dynamic=is_expanded(words[0]),
            has_open_word=program in _FEEDERS,
        )


def _executed(arguments: Sequence[str]) -> Iterator[SimpleCommand]:
    """Yield the commands of `find -exec`, each up to its end."""
    for position, word in enumerate(arguments):
        if _EXECUTES.fullmatch(word) is None:
            continue
        run = arguments[position + 1 : position + 1 + _MOST_WORDS]
        if ";" in run:
            run = run[: run.index(";")]
        if run:
            yield SimpleCommand(tuple(run), is_dynamic=is_expanded(run[0]))


def _split_line(arguments: Sequence[str]) -> str | None:
    """Return the line that `env -S` splits into words, with the words that follow."""
    for position, word in enumerate(arguments):
        found = _SPLITS.fullmatch(word)
        if found is not None:
            return " ".join([found[1] or found[2] or "", *arguments[position + 1 :]])
    return None


def _behind_options(program: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the words behind the options of a wrapper, and behind what it takes first."""
    skipped = _POSITIONAL.get(program, 0)
    valued = _WITH_VALUE.get(program) or _OF_LINES.get(program, frozenset())
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("-") and word != "-":
            at += 2 if _takes_value(word, valued) and at + 1 < len(arguments) else 1
        elif word in KEYWORDS or re.match(r"[A-Za-z_]\w*=", word):
            at += 1
        elif skipped:
            skipped -= 1
            at += 1
        else:
            break
    return arguments[at:]


def _takes_value(option: str, valued: frozenset[str]) -> bool:
    """Return whether the next word is the value of an option; also for the last of `-nu`."""
    if option.startswith("--"):
        return option in valued
    for position, letter in enumerate(option[1:], 1):
        if f"-{letter}" in valued:
            return position == len(option) - 1
    return False

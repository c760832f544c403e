"""How the patterns of a rule allow and deny a command line; pure.

To allow, every command of the strict reading must match a pattern. What a pattern does not show is
not allowed by its wildcards:

- a word that acts, such as `--output=FILE` of `git diff`, must be spelled by the pattern
  (`quarterdeck.policy.acting_words`);
- a program that runs another one needs a pattern that names the other one, or one that allows it;
- an assignment must be harmless (`quarterdeck.policy.simple_command`), or spelled in front;
- a command that changes how the shell reads what follows (`alias`, `source`, `export`) must be
  spelled from beginning to end;
- a shell or an interpreter that reads its program from a pipe is never allowed;
- files that output is written to need a rule for writing, and files outside the workspace that
  input is read from need one for reading;
- a wildcard of a shell must not become a word that acts (`git conf*` where a file is `config`).

To deny, commands are found wherever they might run, also behind `sudo`, `env` or `sh -c`, and a
line that was not read completely, but may match, needs a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from quarterdeck.policy.acting_words import ActingWord, acting_words, canonical_program, spells
from quarterdeck.policy.command_line import CommandLine
from quarterdeck.policy.globs import CommandPattern, command_pattern, matches_text, relative_path
from quarterdeck.policy.simple_command import (
    SHELLS,
    SimpleCommand,
    is_harmless_assignment,
    names,
    program_of,
    without_wrapper,
)
from quarterdeck.policy.strict_reading import KEYWORDS, read_strictly
from quarterdeck.policy.wrappers import (
    commands_of_line,
    inner_commands,
    is_shell,
    may_run_another,
    shell_text,
    unwrapped,
)

Denial: TypeAlias = Literal["deny", "ask"]
WriteCheck: TypeAlias = Callable[[Sequence[str]], bool]
"""Whether a rule allows, or denies, writing to or reading some files."""

_PROGRAM: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*|\[|:")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_SPELLED_WHOLE: Final = names(
    """. source read getopts alias unalias export unset set shopt setopt unsetopt emulate enable
    disable hash unhash rehash trap autoload functions zmodload zstyle zle zcompile zparseopts
    vared sched bindkey bind compgen complete compopt mapfile readarray history fc umask
    ulimit popd dirs global chroot nsenter unshare"""
)
_MOVES: Final = frozenset({"cd", "pushd", "chdir"})
_FEEDERS: Final = frozenset({"xargs", "parallel"})
_INTERPRETERS: Final = names(
    """python pypy node deno bun perl ruby php lua tclsh osascript Rscript R julia ghci irb"""
)
"""Programs that run their input if no argument names a file."""
_RUN_INPUT: Final = names(
    """psql mysql sqlite3 ed ex ssh at batch gdb ftp sftp su dc m4 gnuplot crontab parallel ipython
    tsx ts-node expect mongosh redis-cli iptables-restore telnet nc mail"""
)
"""Programs that run commands of their input, whatever their arguments are."""
_NO_FILE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_WRITES_OPERANDS: Final = {"tee": 0, "uniq": 1, "xxd": 1}
"""Programs that write to their arguments, from this one on: `uniq a b` writes `b`."""
_UNSEEN: Final = "\x00"
"""Stands for arguments that a command gets when it runs."""
_DEEPEST: Final = 4  # programs that run each other
_MOST_ALLOWED: Final = 64  # commands of a line that is allowed
_MOST_INSIDE: Final = 8  # commands that one command runs
_MOST_STARTS: Final = 8  # folders from which a `cd` may start
_MOST_DENIED: Final = 256  # commands that are compared with rules that deny


# ---- allow -----------------------------------------------------------------------------------


def allows_line(
    patterns: Sequence[str],
    line: CommandLine,
    workspace: str,
    may_write: WriteCheck,
    may_read: WriteCheck,
) -> bool:
    """Return whether every command of a line is allowed by one of the patterns."""
    commands = line.understood
    if not commands or len(commands) > _MOST_ALLOWED:
        return False
    # After a change of folder it is not known what a relative path is relative to.
    if any(map(_changes_folder, commands)) and any(each.writes or each.reads for each in commands):
        return False
    if any(each.reads and not may_read(each.reads) for each in commands):
        return False
    judge = _Judge(_pattern_index(tuple(patterns)), workspace, may_write)
    return all(judge.allows(command) for command in commands)


def _changes_folder(command: SimpleCommand) -> bool:
    words: Sequence[str] | None = command.words
    while words:
        if words[0] in _MOVES or words[0] == "popd":
            return True
        words = without_wrapper(words)
    return False


def folders_entered(commands: Sequence[SimpleCommand], folders: Sequence[str]) -> tuple[str, ...]:
    """Return where `cd` leads, by the text: from the workspace, from `folders`, one by one."""
    starts = ["", *folders]
    entered: list[str] = []
    for command in commands[:_MOST_ALLOWED]:
        if command.words[:1] and command.words[0] in _MOVES and len(command.words) == 2:
            target = command.words[1]
            joined = [f"{start}/{target}".lstrip("/") if start else target for start in starts]
            found = [target] if target.startswith("/") else joined
            entered += found
            starts = [*starts, *found][:_MOST_STARTS]
    return tuple(dict.fromkeys(entered))


class _PatternIndex:
    """The patterns of rules that allow, by the program that they name."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._named: dict[str, Sequence[CommandPattern]] = {}
        self._others: list[CommandPattern] = []
        for text in patterns:
            pattern = command_pattern(text)
            if pattern.program is None:
                self._others.append(pattern)
            else:
                known = self._named.get(pattern.program, ())
                self._named[pattern.program] = (*known, pattern)

    def matching(self, words: Sequence[str]) -> Iterator[CommandPattern]:
        program = words[0]
        unversioned = program.rstrip("0123456789.")
        candidates = self._named.get(program, ())
        if unversioned != program:
            candidates = (*candidates, *self._named.get(unversioned, ()))
        for patterns in (candidates, self._others):
            for pattern in patterns:
                if pattern.matches(words):
                    yield pattern


@lru_cache(maxsize=256)
def _pattern_index(patterns: tuple[str, ...]) -> _PatternIndex:
    return _PatternIndex(patterns)


class _Judge:
    """Decides about commands one by one, with the patterns of the rules that allow."""

    def __init__(self, patterns: _PatternIndex, workspace: str, may_write: WriteCheck) -> None:
        self._patterns = patterns
        self._workspace = workspace
        self._may_write = may_write

    def allows(self, command: SimpleCommand, depth: int = 0) -> bool:
        words = command.words
        if depth > _DEEPEST or _PROGRAM.fullmatch(words[0]) is None:
            return False
        if (words[0] in KEYWORDS and words[0] != "time") or not self._may_write_files(command):
            return False
        if words[0] == "export" and words[1:] and all(map(is_harmless_assignment, words[1:])):
            return True
        inner = without_wrapper(words)
        if inner is not None and self.allows(_with_words(command, inner), depth + 1):
            return True
        matching = [each for each in self._patterns.matching(words) if _assigns(each, command)]
        if not matching or _runs_input(command):
            return False
        if any(each.is_exact for each in matching):
            return True
        return self._is_harmless(command) and self._is_spelled(matching, command, depth)

    def _may_write_files(self, command: SimpleCommand) -> bool:
        written = (*command.writes, *operands_written(command))
        if any(".." in path.split("/") for path in written):
            return False  # behind a link it may lead anywhere
        return not written or self._may_write(written)

    def _is_harmless(self, command: SimpleCommand) -> bool:
        """Return whether wildcards may allow a command at all."""
        if program_of(command) in _SPELLED_WHOLE:
            return False
        return command.words[0] not in _MOVES or self._stays(command)

    def _is_spelled(
        self, matching: Sequence[CommandPattern], command: SimpleCommand, depth: int
    ) -> bool:
        """Return whether a pattern names what acts, and what the command runs."""
        acting = _acting(command, self._shortened(command.words))
        inside = list(_commands_inside(command)) if may_run_another(command) else ()
        if len(inside) > _MOST_INSIDE:
            return False
        return any(
            spells(pattern.text, acting)
            and all(self._allows_inner(pattern, inner, depth) for inner in inside)
            for pattern in matching
        )

    def _allows_inner(
        self, pattern: CommandPattern, inner: SimpleCommand | None, depth: int
    ) -> bool:
        """Decide about a command that another one runs; None is one that is not understood."""
        if inner is None or inner.is_dynamic:
            return False
        words = tuple(word for word in inner.words if word != _UNSEEN)
        if depth > _DEEPEST or not spells(pattern.text, [(words[0],)]):
            return self.allows(inner, depth + 1)
        acting = _acting(inner, self._shortened(words))
        deeper = _commands_inside(inner) if may_run_another(inner) else ()
        return spells(pattern.text, acting) and all(
            self._allows_inner(pattern, each, depth + 1) for each in deeper
        )

    def _shortened(self, words: Sequence[str]) -> Sequence[str]:
        """Return words with paths in the workspace relative to it: those are the project's own."""
        begin = f"{self._workspace}/"
        return [
            word[len(begin) :] if word.startswith(begin) and _is_name(word, len(begin)) else word
            for word in words
        ]

    def _stays(self, command: SimpleCommand) -> bool:
        """Return whether a change of folder stays in the workspace."""
        if len(command.words) != 2 or command.has_open_word:
            return False
        target = command.words[1]
        if not target or target.startswith("-") or re.search(r"[*?\[]", target) is not None:
            return False
        if ".." in target.split("/"):
            return False
        return is_inside(target, self._workspace)


def _is_name(word: str, start: int) -> bool:
    """Return whether what is behind the workspace in a word can only be the name of a file."""
    return start > 1 and word[start : start + 1] not in ("", "-", "@", "+", "/", "~")


def is_inside(folder: str, workspace: str) -> bool:
    """Return whether a folder is the workspace or in it, by the text of its path."""
    return not relative_path(f"{folder}/x", workspace).startswith("/")


def _with_words(command: SimpleCommand, words: Sequence[str]) -> SimpleCommand:
    return SimpleCommand(
        tuple(words),
        command.assignments,
        is_piped=command.is_piped,
        is_given=command.is_given,
        has_open_word=command.has_open_word,
        globs=command.globs,
    )


def _acting(command: SimpleCommand, words: Sequence[str]) -> list[ActingWord]:
    return acting_words(words, has_open_word=command.has_open_word, globs=command.globs)


def _assigns(pattern: CommandPattern, command: SimpleCommand) -> bool:
    """Return whether a pattern spells the assignments of a command that are not harmless."""
    if not command.assignments:
        return not pattern.assignments
    others = [each for each in command.assignments if not is_harmless_assignment(each)]
    given = frozenset(command.assignments)
    return pattern.assignments.issuperset(others) and pattern.assignments <= given


def operands_written(command: SimpleCommand) -> Sequence[str]:
    """Return the files that a command writes because they are its arguments."""
    first = _WRITES_OPERANDS.get(program_of(command))
    if first is None:
        return ()
    words = command.words[1:]
    operands: list[str] = []
    has_ended = False
    for word in words:
        if has_ended or word == "-" or not word.startswith("-"):
            is_value = bool(first) and word.isdecimal()  # of an option
            operands += [] if is_value else [word]
            has_ended = has_ended or (bool(first) and not is_value)
        has_ended = has_ended or word == "--"
    return [each for each in operands[first:] if each not in _NO_FILE]


def _runs_input(command: SimpleCommand) -> bool:
    """Return whether a command runs text that it reads from another one or from the line."""
    if not command.is_piped and not command.is_given:
        return False
    for program, arguments in unwrapped(command):
        name = canonical_program(program)
        if program in SHELLS or name in _RUN_INPUT:
            return True
        if name in _INTERPRETERS and all(word.startswith("-") for word in arguments):
            return True
        if name in _INTERPRETERS and "-" in arguments:
            return True
    return False


def _commands_inside(command: SimpleCommand) -> Iterator[SimpleCommand | None]:
    """Yield the commands that a command runs; None for what is not understood."""
    program, arguments = program_of(command), command.words[1:]
    text = shell_text(program, arguments)
    if text is not None:
        understood = read_strictly(text)
        yield from [None] if understood is None else understood
        return
    for inner in islice(inner_commands(program, arguments), _MOST_INSIDE + 1):
        before = arguments[: len(arguments) - len(inner.words)]
        assigned = [each for each in before if _ASSIGNMENT.match(each)]
        is_moved = any(each in command.globs for each in before)  # one glob may be many words
        if not inner.words or is_moved or not all(map(is_harmless_assignment, assigned)):
            yield None
        elif program in _FEEDERS:
            yield SimpleCommand((*inner.words, _UNSEEN), has_open_word=True, globs=command.globs)
        else:
            is_open = inner.has_open_word or command.has_open_word
            yield replace(inner, has_open_word=is_open, globs=command.globs)


def words_to_spell(line: CommandLine) -> list[str]:
    """Return the words of a line that act: a pattern allows them only if it spells them."""
    found = [
        acting[0] if acting else "a glob that may become an option or a subcommand"
        for command in line.understood or ()
        for acting in _acting(command, command.words)
    ]
    return list(dict.fromkeys(found))


# ---- deny ------------------------------------------------------------------------------------


def denies_line(patterns: Sequence[str], line: CommandLine, writes: WriteCheck) -> Denial | None:
    """Return whether a pattern denies a command of a line, wherever it might run."""
    commands = commands_of_line(line)
    patterns = _denied_patterns(tuple(patterns))
    beginnings = _beginnings(patterns)
    for command in commands[:_MOST_DENIED]:
        if command.writes and writes(command.writes):
            return "deny"
        for text in _spellings(command):
            if text.startswith(beginnings) and any(matches_text(text, each) for each in patterns):
                return "deny"
    if not patterns:
        return None
    is_unclear = any(each.is_dynamic or _runs_unseen(each) for each in commands)
    return "ask" if is_unclear or not line.is_complete or len(commands) > _MOST_DENIED else None


@lru_cache(maxsize=256)
def _denied_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*patterns, *map(_with_folded_program, patterns))))


def _with_folded_program(text: str) -> str:
    """Return a command with its program in lower case: where case is ignored, `RM` runs `rm`."""
    program, blank, rest = text.partition(" ")
    return f"{program.casefold()}{blank}{rest}"


@lru_cache(maxsize=256)
def _beginnings(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the text of each pattern before its first wildcard: most commands match none."""
    return tuple(re.split(r"[*?\[]", pattern, maxsplit=1)[0] for pattern in patterns)


def _spellings(command: SimpleCommand) -> set[str]:
    """Return every text that a pattern may match to deny a command."""
    words = " ".join(command.words)
    found = {words, command.text} if command.assignments else {words}
    if command.words and (command.has_open_word or "/" in command.words[0]):
        bare = " ".join((program_of(command), *command.words[1:]))
        # Arguments that it gets when it runs follow a blank.
        found |= {bare, f"{bare} "} if command.has_open_word else {bare}
    return found.union(map(_with_folded_program, found))


def _runs_unseen(command: SimpleCommand) -> bool:
    """Return whether a shell runs text that is not in the line."""
    if command.words and command.words[0] in ("source", "."):
        return True
    return command.is_piped and is_shell(program_of(command))

"""Globs for paths and for commands; pure.

In a glob for paths, `*` and `?` match within a folder, `**` crosses folders, and `{a,b}` matches
either. Paths are relative to the workspace; a path outside it only matches globs that begin with
`/`. To allow, a wildcard does not match a leading dot, so `**` does not cover `.git` or `.env`. To
deny, it does, and case and Unicode form do not matter (`folded_path`): some file systems, those of
macOS for one, ignore them.

In a glob for commands, `*` matches any text. `CommandPattern` says what a glob means to a rule that
allows.

No glob takes more than linear time for a text: between two `*` there is a piece of fixed length,
and its first occurrence behind the piece before it is the right one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from quarterdeck.policy.simple_command import names

_MAX_EXPANSIONS: Final = 64  # of the braces in one glob
_LONGEST_PATH: Final = 4_096  # what Linux accepts
_MOST_PARTS: Final = 256  # of a path
_LINKED_FOLDERS: Final = ("etc", "tmp", "var")  # of macOS: /tmp is a link to /private/tmp
_STARS: Final = re.compile(r"\*+")
_SET: Final = re.compile(r"\[([!^]?)([^\[\]]+)\]")

_Piece: TypeAlias = tuple[str, re.Pattern[str] | None, int]
"""Text between two `*`: the literal, or the pattern if it has wildcards; and its length."""


class Glob:
    """A glob for one text; `*` matches anything, also nothing."""

    __slots__ = ("_first", "_last", "_middle", "is_literal", "starts_wild")

    def __init__(self, glob: str, *, any_character: str = ".") -> None:
        pieces = [_piece(each, any_character) for each in _STARS.split(glob)]
        self.starts_wild = glob[:1] in ("*", "?", "[")
        self.is_literal = len(pieces) == 1 and pieces[0][1] is None
        self._first, self._middle, self._last = pieces[0], pieces[1:-1], pieces[-1]
        if len(pieces) == 1:
            self._last = ("", None, -1)

    def matches(self, text: str) -> bool:
        literal, pattern, length = self._first
        if self._last[2] < 0:
            return text == literal if pattern is None else pattern.fullmatch(text) is not None
        end = len(text) - self._last[2]
        if end < length or not _is_at(self._first, text, 0) or not _is_at(self._last, text, end):
            return False
        at = length
        for literal, pattern, length in self._middle:
            if pattern is None:
                found = text.find(literal, at, end)
            else:
                match = pattern.search(text, at, end)
                found = -1 if match is None else match.start()
            if found < 0:
                return False
            at = found + length
        return True


def _is_at(piece: _Piece, text: str, at: int) -> bool:
    literal, pattern, _ = piece
    return text.startswith(literal, at) if pattern is None else pattern.match(text, at) is not None


def _piece(glob: str, any_character: str) -> _Piece:
    """Translate text between two `*`, which matches texts of one length."""
    if "?" not in glob and "[" not in glob:
        return glob, None, len(glob)
    pattern, at, length = "", 0, 0
    while at < len(glob):
        chosen, used = _character(glob, at, any_character)
        pattern += chosen
        at += used
        length += 1
    return "", re.compile(pattern, re.DOTALL), length


def _character(glob: str, at: int, any_character: str) -> tuple[str, int]:
    """Translate what matches one character; return the pattern and how long it is in the glob."""
    if glob[at] == "?":
        return any_character, 1
    found = _SET.match(glob, at) if glob[at] == "[" else None
    if found is not None:
        chosen = found[2].replace("\\", r"\\").replace("^", r"\^")
        try:
            re.compile(f"[{chosen}]")
        except re.error:
            return re.escape(glob[at]), 1
        return f"[{'^/' if found[1] else ''}{chosen}]", len(found[0])
    return re.escape(glob[at]), 1


@lru_cache(maxsize=1024)
def text_glob(glob: str) -> Glob:
    return Glob(glob)


def matches_text(text: str, glob: str) -> bool:
    """Match a command, a query or an address."""
    return text_glob(glob).matches(text)


# ---- paths -----------------------------------------------------------------------------------


def matches_path(path: str, glob: str, *, with_dots: bool) -> bool:
    """Match a path; one that is longer than any file's is denied, and never allowed."""
    parts = path.split("/")
    if len(path) > _LONGEST_PATH or len(parts) > _MOST_PARTS:
        return with_dots
    return any(_match_parts(parts, each, with_dots=with_dots) for each in _path_globs(glob))


@lru_cache(maxsize=512)
def _path_globs(glob: str) -> tuple[tuple[Glob | None, ...], ...]:
    """Return the parts of each expansion of a glob; None for `**`."""
    expanded = (each.split("/") for each in _braces(glob))
    return tuple(
        tuple(None if part == "**" else Glob(part, any_character="[^/]") for part in parts)
        for parts in expanded
    )


def _match_parts(parts: Sequence[str], globs: Sequence[Glob | None], *, with_dots: bool) -> bool:
    """Match part by part; `reached` has the numbers of parts that the globs so far can match."""
    reached = {0}
    for position, glob in enumerate(globs):
        following: set[int] = set()
        if glob is None:
            is_last = position == len(globs) - 1
            for start in sorted(reached):
                at = start
                if not is_last:
                    following.add(at)
                while at < len(parts) and at + 1 not in following:
                    if not parts[at] or (parts[at][0] == "." and not with_dots):
                        break
                    at += 1
                    following.add(at)
        else:
            for at in reached:
                if at < len(parts) and _match_part(parts[at], glob, with_dots=with_dots):
                    following.add(at + 1)
        if not following:
            return False
        reached = following
    return len(parts) in reached


def _match_part(part: str, glob: Glob, *, with_dots: bool) -> bool:
    is_hidden = part[:1] == "." and not with_dots and glob.starts_wild
    return not is_hidden and glob.matches(part)


def relative_path(path: str, workspace: str) -> str:
    """Return a path relative to the workspace, or absolute if it is outside.

    Only the text is compared: a symbolic link in the workspace may lead out of it.
    """
    absolute = path if path.startswith("/") else f"{workspace}/{path}"
    parts, base = _parts(absolute), _parts(workspace)
    if parts[: len(base)] == base and len(parts) > len(base):
        return "/".join(parts[len(base) :])
    return "/" + "/".join(parts)


def folded_path(path: str) -> str:
    """Return a path, or a glob, so that two names of one file on macOS are equal."""
    if len(path) > _LONGEST_PATH:
        return path
    folded = path.lower()
    if not path.isascii():
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
    if folded.startswith("/private/") and folded.split("/", 3)[2] in _LINKED_FOLDERS:
        return folded.removeprefix("/private")
    return folded


def plain_path(path: str) -> str:
    """Return a path without `.` and `..`, so that a file has one path."""
    return "/" * path.startswith("/") + "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return parts


@lru_cache(maxsize=256)
def _braces(glob: str) -> tuple[str, ...]:
    """Expand `a{b,c}`; a glob with too many expansions is returned as it is and matches nothing."""
    done, todo = [], [glob.removeprefix("./")]
    while todo:
        each = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if found is None:
            done.append(each)
        else:
            before, after = each[: found.start()], each[found.end() :]
            todo += [before + choice + after for choice in found[1].split(",")]
        if len(todo) + len(done) > _MAX_EXPANSIONS:
            return (glob,)
    return tuple(done)


# ---- patterns that allow commands ------------------------------------------------------------

_BREAK: Final = "\x1f"
"""Stands between two words of a command, so that a blank in a quoted word is not a word break."""
_LEADING_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*=[^\s*?\[]*) +", re.ASCII)
_VERSION: Final = re.compile(r"[0-9.]*", re.ASCII)
_VERSIONED: Final = names(
    """python pypy pip pipx node ruby gem perl php lua gcc g++ clang clang++ java javac go ghc llvm
    pytest postgres psql erl tclsh pydoc idle 2to3 luajit"""
)
"""Programs that are installed under a name with their version."""
_WILD: Final = re.compile(r"[*?\[]")
_IN_FOLDER: Final = re.compile(r"([^*?\[]*/)[^*?\[]*[*?\[]")
_PARENT: Final = re.compile(r"(?:^|[/=:])\.\.(?:$|/)")
_WITH_SUBCOMMANDS: Final = names(
    """git npm cargo go docker podman kubectl gh pip pip3 poetry terraform helm brew apt"""
)


_RUN_PACKAGE: Final = names("npx bunx pnpx uvx")
_RUN_PROGRAM: Final = names("uv poetry pipenv pdm hatch rye pipx pixi conda mamba")
_EXECUTES: Final = names("exec dlx x")
"""Subcommands behind which a program is named, whatever has them."""


class CommandPattern:
    """What a glob means to a rule that allows commands.

    A blank is the end of a word. A `*` at the end of the program's name stands for the arguments:
    `ls*` does not match `lsof` or `ls/../rm`. Languages have a version in their name, so
    `python*` matches `python3.11 x.py`. The same holds for a subcommand: `git diff*` does not match
    `git difftool`, and for a program that another one runs: `npx jest*` does not match the package
    `jest-evil`. A wildcard in a folder, as in `cat src/*`, matches no path with `..` and no further
    path elsewhere, as in `cat src/a /etc/passwd`.
    """

    __slots__ = (
        "_arguments",
        "_folders",
        "_program",
        "_spelled",
        "_stem",
        "assignments",
        "is_exact",
        "program",
        "text",
    )

    def __init__(self, text: str) -> None:
        self.text = text
        assignments, rest = [], text.strip(" ")
        while (found := _LEADING_ASSIGNMENT.match(rest)) is not None:
            assignments.append(found[1])
            rest = rest[found.end() :]
        self.assignments = frozenset(assignments)
        """Variables that a command must set, spelled as here."""
        self.is_exact = _WILD.search(text) is None
        """Whether it has no wildcard, so that the owner has spelled the whole command."""
        program, *words = re.split(" +", rest)
        self._stem = _stem_of(program)
        self.program = self._stem or (None if _WILD.search(program) else program)
        """The program, if the pattern names one; with a wildcard at its end, without version."""
        self._program = [Glob(part, any_character="[^/]") for part in program.split("/")]
        self._arguments = _argument_globs(program, words)
        self._folders = tuple(found[1] for word in words if (found := _IN_FOLDER.match(word)))
        self._spelled = frozenset(words)

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether the pattern matches the program and the arguments of a command."""
        if self._folders and not all(map(self._is_in_folder, words[1:])):
            return False
        return self._matches_program(words[0]) and self._matches_arguments(words[1:])

    def _is_in_folder(self, word: str) -> bool:
        """Return whether a word is not a path, or one in a folder that the pattern names."""
        if _PARENT.search(word):
            return False
        is_path = "/" in word or word.startswith((".", "~"))
        return not is_path or word.startswith(self._folders) or word in self._spelled

    def _matches_program(self, program: str) -> bool:
        if self._stem is not None:
            if program == self._stem:
                return True
            if self._stem not in _VERSIONED or not program.startswith(self._stem):
                return False
            return _VERSION.fullmatch(program, len(self._stem)) is not None
        parts = program.split("/") if "/" in program else [program]
        if len(parts) != len(self._program):
            return False
        return all(glob.matches(part) for glob, part in zip(self._program, parts, strict=True))

    def _matches_arguments(self, arguments: Sequence[str]) -> bool:
        if self._arguments is None:
            return True
        text = "".join([_BREAK + word for word in arguments])
        return any(glob.matches(text) for glob in self._arguments)


def _stem_of(word: str) -> str | None:
    """Return a word without the `*` at its end, if that is its only wildcard; else None."""
    stem = word.rstrip("*")
    is_name = stem != word and stem and not stem.endswith("/") and _WILD.search(stem) is None
    return stem if is_name else None


def _argument_globs(program: str, words: Sequence[str]) -> list[Glob] | None:
    """Return globs of which one must match the arguments; None if any arguments do."""
    if not words:
        return None if program.endswith("*") else [Glob("")]
    stem = _stem_of(words[-1]) if _ends_in_name(program, words) else None
    if stem is not None:
        named = "".join([_BREAK + word for word in (*words[:-1], stem)])
        return [Glob(named), Glob(f"{named}{_BREAK}*")]
    return [Glob("".join([_BREAK + word for word in words]))]


def _ends_in_name(program: str, words: Sequence[str]) -> bool:
    """Return whether the last word of a pattern names a subcommand, or a program that is run."""
    if len(words) == 1:
        return program in _WITH_SUBCOMMANDS or program in _RUN_PACKAGE
    if len(words) != 2:
        return False
    if words[0] == "-m":
        return program.rstrip("0123456789.*") in ("python", "pypy")
    return words[0] in _EXECUTES or (words[0] == "run" and program in _RUN_PROGRAM)


@lru_cache(maxsize=1024)
def command_pattern(text: str) -> CommandPattern:
    return CommandPattern(text)

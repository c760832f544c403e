"""What a command does besides reading: its words that act, by the table of acting options; pure.

`acting_words` returns them for one command, and `spells` says whether a pattern names one. A
pattern allows a command only if it spells each of its acting words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from quarterdeck.policy.acting_options import ACTING, CARRIERS, SAME
from quarterdeck.policy.harmless import is_harmless_assignment

ActingWord: TypeAlias = tuple[str, ...]
"""The spellings of one word that acts; a pattern has to contain one of them."""

_VERSION: Final = re.compile(r"[0-9][0-9.]*$")
_VARIABLE: Final = re.compile(r"([A-Za-z_.][\w.-]*)[:+?]?=", re.ASCII)
_SHELLED: Final = re.compile(r"[$`\\\"!\n;&|<>]")
_MOST_CARRIED: Final = 3  # programs behind each other, as in `uv run npx tsx`
_ANY_OPTION: Final[ActingWord] = ()
"""Stands for a word that may be any option: no pattern spells it."""


class _Entry(Struct, frozen=True, gc=False):
    """A line of the table, ready to be compared."""

    long: dict[str, str]
    """Long options as written, by their letters alone."""
    harmless: frozenset[str]
    letters: str
    single: tuple[str, ...]
    valued: str
    words: frozenset[str]
    variables: frozenset[str]
    prefixes: tuple[str, ...]
    flags: frozenset[str]


def _letters_of(option: str) -> str:
    """Return an option without dashes and case: programs accept `--outDir` and `--out-dir`."""
    return option.replace("-", "").replace("_", "").lower()


@lru_cache(maxsize=512)
def _entry(name: str) -> _Entry | None:
    written = ACTING.get(name)
    if written is None:
        return None
    tokens = written.split()
    dashed = [each for each in tokens if each.startswith("-") and each != "-"]
    single = [each for each in dashed if len(each) > 2 and not each.startswith("--")]
    flags = frozenset(each[1:] for each in tokens if each.startswith("%"))
    is_loose = bool(flags & {"dashes", "exact"})
    long = [each for each in dashed if each.startswith("--") or (is_loose and each in single)]
    special = "-~+%"
    return _Entry(
        long={_letters_of(each): "--" + each.lstrip("-") for each in long},
        harmless=frozenset(_letters_of(each[1:]) for each in tokens if each[0] == "+"),
        letters="".join(each[1] for each in dashed if len(each) == 2 and each != "--"),
        single=() if is_loose else tuple(single),
        valued="".join(each[1:] for each in tokens if each.startswith("~")),
        words=frozenset(each for each in tokens if each[0] not in special and each[-1] not in "=:,")
        | frozenset(each for each in tokens if each == "-"),
        variables=frozenset(each[:-1] for each in tokens if each.endswith("=")),
        prefixes=tuple(each for each in tokens if each in ("+", "@") or each[-1] in ":,"),
        flags=flags,
    )


@lru_cache(maxsize=1024)
def canonical_program(program: str) -> str:
    """Return the name under which the table has a program: `python3.11` is `python`."""
    name = program.rpartition("/")[2]
    if name not in ACTING and name not in SAME:
        name = _VERSION.sub("", name).rstrip("-") or name
    return SAME.get(name, name)


_PARENT: Final = re.compile(r"(?:^|[^\w.]|^-\w)\.\.(?:/|$)")
"""A word that leaves a folder: `cat src/*` does not mean `cat src/../../etc/passwd`."""


def acting_words(words: Sequence[str], *, has_open_word: bool = False) -> list[ActingWord]:
    """Return the words of a command that act; those of a program that it carries, too."""
    found = list(_found(words, has_open_word=has_open_word, carried=0))
    return found + [(word, "..") for word in words[1:] if _PARENT.search(word)]


def _found(words: Sequence[str], *, has_open_word: bool, carried: int) -> Iterator[ActingWord]:
    program = canonical_program(words[0])
    arguments = words[1:]
    entry = _entry(program)
    if entry is not None:
        yield from _of_entry(entry, arguments)
        if has_open_word:
            yield _ANY_OPTION
        yield from _of_subcommands(program, arguments)
    scripts = _SCRIPTS.get(program)
    if scripts is not None:
        yield from scripts(arguments)
    if program in CARRIERS:
        yield from _of_carried(arguments, has_open_word=has_open_word, carried=carried)


def _of_subcommands(program: str, arguments: Sequence[str]) -> Iterator[ActingWord]:
    seen: set[str] = set()
    for position, word in enumerate(arguments):
        if word in seen or word.startswith("-"):
            continue
        seen.add(word)
        if f"{program} {word}" in ACTING:
            entry = _entry(f"{program} {word}")
            if entry is not None:
                yield from _of_entry(entry, arguments[position + 1 :])


def _of_carried(
    arguments: Sequence[str], *, has_open_word: bool, carried: int
) -> Iterator[ActingWord]:
    for position, word in enumerate(arguments):
        bare = word.removeprefix("-m")  # `python -mpytest`
        name = canonical_program(bare) if bare and not bare.startswith("-") else ""
        if name in ACTING or name in _SCRIPTS or name in CARRIERS:
            if carried >= _MOST_CARRIED:
                yield _ANY_OPTION
            else:
                inner = (bare, *arguments[position + 1 :])
                yield from _found(inner, has_open_word=has_open_word, carried=carried + 1)
            return


def _of_entry(entry: _Entry, arguments: Sequence[str]) -> Iterator[ActingWord]:
    is_shelled = "shelled" in entry.flags
    if "bundle" in entry.flags and arguments and not arguments[0].startswith("-"):
        yield from _of_letters(entry, "-" + arguments[0], shown=arguments[0])
    has_ended = is_value = False
    for word in arguments:
        if is_shelled and _SHELLED.search(word) is not None:
            yield (word,)
        if has_ended or is_value:
            is_value = False
        elif word == "--" and "always" not in entry.flags:
            has_ended = True
        elif word.startswith("-") and len(word) > 1:
            yield from _of_option(entry, word)
            is_value = "before" in entry.flags and _wants_value(entry, word)
        else:
            yield from _of_operand(entry, word)
            has_ended = "before" in entry.flags


def _wants_value(entry: _Entry, word: str) -> bool:
    """Return whether the next word is the value of an option."""
    return (
        not word.startswith("--")
        and word[-1] in entry.valued
        and not (set(word[1:-1]) & set(entry.valued))
    )


def _of_operand(entry: _Entry, word: str) -> Iterator[ActingWord]:
    if word in entry.words or (entry.prefixes and word.startswith(entry.prefixes)):
        yield (word,)
    if entry.variables:
        variable = _VARIABLE.match(word)
        is_listed = variable is not None and bool(entry.variables & {"", variable[1]})
        if variable is not None and is_listed and not is_harmless_assignment(word):
            yield (variable[0], variable[1])


def _of_option(entry: _Entry, word: str) -> Iterator[ActingWord]:
    name = word.partition("=")[0]
    is_loose = bool(entry.flags & {"dashes", "exact"})
    if word.startswith("--") or (is_loose and len(name.lstrip("-")) > 1):
        letters = _letters_of(name)
        if letters in entry.harmless:
            return
        for long, written in entry.long.items():
            if letters == long or ("exact" not in entry.flags and long.startswith(letters)):
                yield (name, written, written[1:])
                return
    elif entry.single or is_loose:
        for option in entry.single:
            if word.startswith(option):
                yield (option,)
                return
        bare = word.lstrip("-")
        if bare[:1] in entry.letters and (not is_loose or len(name.lstrip("-")) == 1) and bare:
            yield (f"-{bare[0]}",)
    else:
        yield from _of_letters(entry, word, shown=word)


def _of_letters(entry: _Entry, cluster: str, *, shown: str) -> Iterator[ActingWord]:
    """Find acting letters in a cluster, up to one that takes the rest as its value."""
    for position, letter in enumerate(cluster[1:], 1):
        if letter in entry.letters:
            end = position + 1 - (len(cluster) - len(shown))
            yield (f"-{letter}", shown[:end])
            return
        if letter in entry.valued:
            return


# ---- scripts of sed and awk ------------------------------------------------------------------

_ADDRESS: Final = r"(?:[0-9]+|\$|/(?:[^/\\\n]|\\.)*/I?)"
_PART: Final = r"(?:(?!\1)[^\\\n]|\\.)*"
_SED_STEP: Final = (
    rf"(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+[0-9]+))?)? ?!?"
    r"(?:[pdqPDNnGgHhx=]|[qQ][0-9]+|s([/|#,@:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1"
    r"[gpiI0-9]*)"
)
_SED_SCRIPT: Final = re.compile(r" ?(?:" + _SED_STEP + r")? ?", re.DOTALL)
_AWK_ACTS: Final = re.compile(r"system|getline|close|fflush|[|>@`]|-i|load|include")
_LONGEST_SCRIPT: Final = 500


def _of_sed(arguments: Sequence[str]) -> Iterator[ActingWord]:
    """Yield scripts that may write files or run programs: all but the usual commands."""
    scripts, operands = _scripts_and_operands(arguments, ("--expression", "e"))
    if not scripts:
        scripts = operands[:1]
    for script in scripts:
        steps = script.split(";") if ";" in script else [script]
        if len(script) > _LONGEST_SCRIPT or not all(map(_SED_SCRIPT.fullmatch, steps)):
            yield (script,)


def _of_awk(arguments: Sequence[str]) -> Iterator[ActingWord]:
    """Yield programs that may write files or run programs."""
    scripts, operands = _scripts_and_operands(arguments, ("--source", "e"), valued="Fv")
    if not scripts:
        scripts = operands[:1]
    for script in scripts:
        if _AWK_ACTS.search(script) is not None:
            yield (script,)


def _scripts_and_operands(
    arguments: Sequence[str], option: tuple[str, str], valued: str = ""
) -> tuple[list[str], list[str]]:
    """Split arguments into the values of an option, long or short, and operands."""
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            name, _, value = word.partition("=")
            if len(name) > 2 and option[0].startswith(name):
                scripts.append(value or next(rest, ""))
        elif word.startswith("-") and len(word) > 1:
            for position, letter in enumerate(word[1:], 1):
                if letter in valued or letter == option[1]:
                    value = word[position + 1 :] or next(rest, "")
                    scripts += [value] if letter == option[1] else []
                    break
        else:
            operands.append(word)
    return scripts, operands


_SCRIPTS: Final = {"sed": _of_sed, "awk": _of_awk}


# ---- patterns --------------------------------------------------------------------------------

_WILDCARD: Final = re.compile(r"[*?]+|\[[^\[\]]+\]")


@lru_cache(maxsize=512)
def _literal_pieces(pattern: str) -> tuple[str, ...]:
    return tuple(_WILDCARD.split(pattern))


def spells(pattern: str, acting: ActingWord) -> bool:
    """Return whether the literal text of a pattern contains one of the spellings of a word."""
    for piece in _literal_pieces(pattern):
        for spelling in acting:
            at = piece.find(spelling)
            while spelling and at >= 0:
                end = at + len(spelling)
                before, after = piece[at - 1 : at], piece[end : end + 1]
                if before in ("", " ") and not (after.isalnum() or after in ("-", "_")):
                    return True
                at = piece.find(spelling, at + 1)
    return False

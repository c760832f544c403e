"""What a command does besides reading: its words that act, by the table of acting options; pure.

`acting_words` returns them for one command, and `spells` says whether a pattern names one. A
pattern allows a command only if it spells each of its acting words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from quarterdeck.policy.acting_options import ACTING, CARRIERS, SAME
from quarterdeck.policy.simple_command import is_harmless_assignment, names

ActingWord: TypeAlias = tuple[str, ...]
"""The spellings of one word that acts; a pattern has to contain one of them."""
_At: TypeAlias = tuple[int, ActingWord]
"""A word that acts, with its position in the command."""

_VERSION: Final = re.compile(r"[0-9][0-9.]*$")
_VARIABLE: Final = re.compile(r"([^=:+?!\s]*)\s*[:+?!]*=")
"""An assignment; make takes `SHELL = ./x` and `SHELL::=./x` as well."""
_FIRST_WILD: Final = re.compile(r"[*?\[]")
_SHELLED: Final = re.compile(r"[$`\\\"!\n;&|<>]")
_MOST_CARRIED: Final = 3  # programs behind each other, as in `uv run npx tsx`
_NEGATED: Final = re.compile(r"-+(?:no-)+", re.IGNORECASE)
"""`--no-script-shell=x` sets what `--script-shell=x` sets: nopt, which npm uses, ignores the `no`
of an option whose value is a text."""
_ABSOLUTE: Final = ("/", "~", "file:")
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
    abbreviations: frozenset[str]
    """Every beginning of a subcommand that acts, by its letters alone."""


def _letters_of(option: str) -> str:
    """Return an option without dashes and case: programs accept `--outDir` and `--out-dir`."""
    return option.replace("-", "").replace("_", "").lower()


def _abbreviations(tokens: Sequence[str]) -> frozenset[str]:
    words = [_letters_of(each) for each in tokens if each[0].isalpha()]
    begun = {word[:end] for word in words for end in range(1, len(word) + 1)}
    return frozenset(begun - {each[1:] for each in tokens if each.startswith("!")})


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
    special = "-~+%!"
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
        abbreviations=_abbreviations(tokens) if "abbreviated" in flags else frozenset(),
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


def acting_words(
    words: Sequence[str], *, has_open_word: bool = False, globs: Sequence[str] = ()
) -> list[ActingWord]:
    """Return the words of a command that act; those of a program that it carries, too.

    `globs` are words that a shell may replace by names of files.
    """
    found = dict.fromkeys(_found(words, 0, 0))  # a word that two entries list counts once
    acting = [spellings for _, spellings in found]
    acting += [(word, "..") for word in words[1:] if _PARENT.search(word)]
    if _has_entry(words) and (has_open_word or (globs and _may_become_acting(words, globs))):
        acting.append(_ANY_OPTION)
    return acting


def _may_become_acting(words: Sequence[str], globs: Sequence[str]) -> bool:
    """Return whether a shell may replace a word by one that acts: `git conf*` by `git config`."""
    programs = [canonical_program(words[0])]
    if programs[0] in CARRIERS:
        programs += [name for each in words[1:] if (name := canonical_program(each)) in _KNOWN]
    beginnings = [_FIRST_WILD.split(each, maxsplit=1)[0] for each in globs]
    if programs == programs[:1] and programs[0] in CARRIERS:
        names = [each for each in beginnings if "/" not in each]
        if any(known.startswith(each) for each in names for known in _KNOWN):
            return True
    if any(_is_script(program, words[1:], globs) for program in programs):
        return True
    return any(
        known.startswith(each) or (known == "=" and "/" not in each)
        for program in programs
        for known in _acting_operands(program)
        for each in beginnings
    )


@lru_cache(maxsize=512)
def _acting_operands(program: str) -> frozenset[str]:
    """Return the operands of a program that act, and its subcommands with options that act."""
    found: set[str] = set()
    for name in [program, *(each for each in ACTING if each.startswith(f"{program} "))]:
        entry = _entry(name)
        if entry is not None:
            found.update((*entry.words, *entry.prefixes, name.partition(" ")[2]))
            found.update(each or "=" for each in entry.variables)
    return frozenset(found - {""})


def _has_entry(words: Sequence[str]) -> bool:
    """Return whether a program, or one that it may carry, has options that act."""
    program = canonical_program(words[0])
    return program in ACTING or program in _SCRIPTS or program in CARRIERS


def _found(words: Sequence[str], start: int, carried: int) -> Iterator[_At]:
    """Yield acting words with their positions; `words` begins at the position `start`."""
    program = canonical_program(words[0])
    arguments = words[1:]
    entry = _entry(program)
    if entry is not None:
        yield from _of_entry(entry, arguments, start + 1)
        yield from _of_subcommands(program, arguments, start + 1)
    scripts = _SCRIPTS.get(program)
    if scripts is not None:
        find, acts = scripts
        yield from ((start, (script,)) for script in find(arguments) if acts(script))
    if program in CARRIERS:
        yield from _of_carried(arguments, start + 1, carried)


def _of_subcommands(program: str, arguments: Sequence[str], start: int) -> Iterator[_At]:
    seen: set[str] = set()
    for position, word in enumerate(arguments):
        if word in seen or (word.startswith("-") and word != "--"):
            continue
        seen.add(word)
        entry = _entry(f"{program} {word}") if f"{program} {word}" in ACTING else None
        if entry is not None:
            yield from _of_entry(entry, arguments[position + 1 :], start + position + 1)


def _of_carried(arguments: Sequence[str], start: int, carried: int) -> Iterator[_At]:
    for position, word in enumerate(arguments):
        bare = word.removeprefix("-m")  # `python -mpytest`
        name = canonical_program(bare) if bare and not bare.startswith("-") else ""
        if name in ACTING or name in _SCRIPTS or name in CARRIERS:
            if carried >= _MOST_CARRIED:
                yield start, _ANY_OPTION
            else:
                inner = (bare, *arguments[position + 1 :])
                yield from _found(inner, start + position, carried + 1)
            return


def _of_entry(entry: _Entry, arguments: Sequence[str], start: int) -> Iterator[_At]:
    if "listed" in entry.flags:
        words = enumerate(arguments, start)
        yield from ((at, (word,)) for at, word in words if not _is_listed(entry, word))
        return
    is_shelled = "shelled" in entry.flags
    if "bundle" in entry.flags and arguments and not arguments[0].startswith("-"):
        bundle = _of_letters(entry, "-" + arguments[0], shown=arguments[0])
        yield from ((start, each) for each in bundle)
    has_ended = is_value = may_be_value = has_operand = False
    for position, word in enumerate(arguments, start):
        if is_shelled and _SHELLED.search(word) is not None:
            yield position, (word,)
        if has_ended or is_value:
            is_operand = not is_value and "before" not in entry.flags
            if is_operand and (not has_operand or entry.variables):
                yield from ((position, each) for each in _of_operand(entry, word, not has_operand))
                has_operand = True
            is_value = False
        elif word == "--" and "always" not in entry.flags:
            has_ended = True
        elif word.startswith("-") and len(word) > 1:
            yield from ((position, each) for each in _of_option(entry, word))
            is_value = "before" in entry.flags and _wants_value(entry, word)
            may_be_value = word.startswith("--") and "=" not in word
        else:
            yield from ((position, each) for each in _of_operand(entry, word, not has_operand))
            has_ended = "before" in entry.flags and not may_be_value
            has_operand = has_operand or not may_be_value
            may_be_value = False


def _is_listed(entry: _Entry, word: str) -> bool:
    """Return whether a word is harmless where only what is listed is."""
    if not word.startswith("-") or word in ("-", "--"):
        return not word.startswith((*_ABSOLUTE, "@"))
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        is_plain = not value.startswith((*_ABSOLUTE, ".", "@"))
        return (is_plain and _letters_of(name) in entry.harmless) or _letters_of(
            name
        ) + equals + value.lower() in entry.harmless
    return word[1] in entry.valued and (len(word) == 2 or word[2:].isdigit())


def _wants_value(entry: _Entry, word: str) -> bool:
    """Return whether the next word is the value of an option."""
    return (
        not word.startswith("--")
        and word[-1] in entry.valued
        and not (set(word[1:-1]) & set(entry.valued))
    )


def _of_operand(entry: _Entry, word: str, is_first: bool) -> Iterator[ActingWord]:  # noqa: FBT001
    is_listed = word in entry.words or (entry.prefixes and word.startswith(entry.prefixes))
    is_listed = is_listed or ("relative" in entry.flags and word.startswith(_ABSOLUTE))
    is_first = is_first and bool(entry.abbreviations)
    if is_listed or (is_first and _letters_of(word) in entry.abbreviations):
        yield (word,)
    if entry.variables:
        variable = _VARIABLE.match(word)
        is_listed = variable is not None and bool(entry.variables & {"", variable[1]})
        if variable is not None and is_listed and not is_harmless_assignment(word):
            yield (variable[0], variable[1])


def _of_option(entry: _Entry, word: str) -> Iterator[ActingWord]:
    name, _, value = word.partition("=")
    is_loose = bool(entry.flags & {"dashes", "exact"})
    if "dashes" in entry.flags:
        name = _NEGATED.sub("--", name)
    if value and entry.prefixes and value.startswith(entry.prefixes):
        yield (word,)
    elif word.startswith("--") or (is_loose and len(name.lstrip("-")) > 1):
        yield from _of_long(entry, name)
    elif entry.single or is_loose:
        option = next((each for each in entry.single if word.startswith(each)), None)
        bare = word.lstrip("-")
        if option is not None:
            yield (option,)
        elif bare[:1] in entry.letters and (not is_loose or len(name.lstrip("-")) == 1) and bare:
            yield (f"-{bare[0]}",)
    else:
        yield from _of_letters(entry, word, shown=word)


def _of_long(entry: _Entry, name: str) -> Iterator[ActingWord]:
    letters = _letters_of(name)
    if letters in entry.harmless:
        return
    for long, written in entry.long.items():
        if letters == long or ("exact" not in entry.flags and long.startswith(letters)):
            yield (name, written, written[1:])
            return


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

_REGEX: Final = r"(?:[^{0}\\\n\[]|\\.|\[\^?[^{0}\[\]\\\n]+\])*"
"""A pattern up to its delimiter. Within brackets only some programs take that for a character, so
it must not be there."""
_ADDRESS: Final = rf"(?:[0-9]+|\$|/{_REGEX.format('/')}/I?)"
_REPLACES: Final = "|".join(
    rf"s[{each}]{_REGEX.format(each)}[{each}](?:[^{each}\\\n]|\\.)*[{each}]" for each in "/|#,@:"
)
_SED_STEP: Final = (
    rf"(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+[0-9]+))?)? ?!?"
    rf"(?:[pdqPDNnGgHhx=]|[qQ][0-9]+|(?:{_REPLACES})[gpiI0-9]*)"
)
_SED_SCRIPT: Final = re.compile(r" ?(?:" + _SED_STEP + r")? ?", re.DOTALL)
_AWK_ACTS: Final = re.compile(r"system|getline|close|fflush|[|>@`]|-i|load|include")
_LONGEST_SCRIPT: Final = 500


class _ScriptOptions(Struct, frozen=True, gc=False):
    """The options of a program whose first operand, or the value of an option, is a script."""

    script: tuple[str, str]
    """The option with a script: long, and its letter."""
    valued: str
    """Letters with a value, which is not a script."""
    flags: str
    """Letters without a value."""
    long_flags: frozenset[str]
    """Long options without a value."""


_SED_OPTIONS: Final = _ScriptOptions(
    ("--expression", "e"),
    "",
    "nErsuzba",
    names(
        """--quiet --silent --regexp-extended --separate --unbuffered --null-data --posix --debug
        --sandbox --follow-symlinks --binary --zero-terminated"""
    ),
)
_AWK_OPTIONS: Final = _ScriptOptions(
    ("--source", "e"), "Fv", "bcCgknNOPrSstM", names("--posix --traditional --re-interval --csv")
)


def _sed_scripts(arguments: Sequence[str]) -> list[str]:
    return _scripts(arguments, _SED_OPTIONS)


def _awk_scripts(arguments: Sequence[str]) -> list[str]:
    return _scripts(arguments, _AWK_OPTIONS)


def _acts_in_sed(script: str) -> bool:
    """Return whether a script may write files or run programs: all but the usual commands."""
    steps = script.split(";") if ";" in script else [script]
    return len(script) > _LONGEST_SCRIPT or not all(map(_SED_SCRIPT.fullmatch, steps))


def _acts_in_awk(script: str) -> bool:
    return _AWK_ACTS.search(script) is not None


def _scripts(arguments: Sequence[str], options: _ScriptOptions) -> list[str]:
    """Return every word that may be a script.

    An option that is not known may take the next word as its value, so another operand may be the
    script: `sed -l 5p 'w x'` runs the second one.
    """
    scripts: list[str] = []
    operands: list[str] = []
    most = 1
    rest = iter(arguments)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            if len(name) > 2 and options.script[0].startswith(name):
                scripts.append(value or next(rest, ""))
            most += not equals and name not in options.long_flags
        elif word.startswith("-") and len(word) > 1:
            for position, letter in enumerate(word[1:], 1):
                if letter in options.valued or letter == options.script[1]:
                    value = word[position + 1 :] or next(rest, "")
                    scripts += [value] if letter == options.script[1] else []
                    break
                most += letter not in options.flags
        else:
            operands.append(word)
    return scripts + (operands[: most - 1] if scripts else operands[:most])


_SCRIPTS: Final[
    Mapping[str, tuple[Callable[[Sequence[str]], list[str]], Callable[[str], bool]]]
] = {
    "sed": (_sed_scripts, _acts_in_sed),
    "awk": (_awk_scripts, _acts_in_awk),
}
"""How the scripts of a program are found, and whether one writes files or runs programs."""
_KNOWN: Final = frozenset({each.partition(" ")[0] for each in ACTING} | CARRIERS | _SCRIPTS.keys())


def _is_script(program: str, arguments: Sequence[str], globs: Sequence[str]) -> bool:
    """Return whether a shell may replace a script by the name of a file."""
    found = _SCRIPTS.get(program)
    return found is not None and not set(globs).isdisjoint(found[0](arguments))


# ---- patterns --------------------------------------------------------------------------------

_WILDCARD: Final = re.compile(r"[*?]+|\[[^\[\]]+\]")


@lru_cache(maxsize=512)
def _literal_pieces(pattern: str) -> tuple[str, ...]:
    return tuple(_WILDCARD.split(pattern))


def spells(pattern: str, acting: Sequence[ActingWord]) -> bool:
    """Return whether the literal text of a pattern contains each word, as often as it is there.

    `find * -exec ls*` allows one `-exec`, not two.
    """
    pieces = _literal_pieces(pattern)
    return all(_times(pieces, each) >= count for each, count in Counter(acting).items())


def _times(pieces: Sequence[str], acting: ActingWord) -> int:
    """Count where a pattern contains one of the spellings of a word."""
    found: set[tuple[int, int]] = set()
    for number, piece in enumerate(pieces):
        for spelling in acting:
            at = piece.find(spelling)
            while spelling and at >= 0:
                end = at + len(spelling)
                before, after = piece[at - 1 : at], piece[end : end + 1]
                if before in ("", " ") and not (after.isalnum() or after in ("-", "_")):
                    found.add((number, at))
                at = piece.find(spelling, at + 1)
    return len(found)

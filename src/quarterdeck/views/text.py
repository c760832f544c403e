"""Makes text of agents harmless for a terminal. All such text passes through here.

    plain      for reading: drops escape sequences, control characters, bidirectional overrides
    visible    for decisions: drops nothing, spells out what cannot be seen as `<U+202E>`

`visible` keeps line breaks and replaces long runs of blanks by their number, so that nothing can be
pushed out of sight.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# Sequences without text are dropped whole. Those that carry text (OSC, DCS, ...) lose only their
# control characters: text could be hidden in what is dropped.
_SEQUENCES: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-OQ-WYZ\\`-~]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_OVERRIDES: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_BLANKS: Final = re.compile(r"[ ]{9,}")
_EMPTY_LINES: Final = re.compile(r"\n(?:[ ]*\n){4,}")

# Letters that are drawn as blanks; their category does not show it.
_BLANK_LETTERS: Final = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u034f")
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"))
_SELECTORS: Final = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))


def plain(text: object) -> str:
    """Return text that cannot move the cursor, change colours, or reorder its surroundings."""
    words = str(text).replace("\r\n", "\n").replace("\t", "    ")
    words = _CONTROLS.sub("", _SEQUENCES.sub("", words))
    return _SURROGATES.sub("\ufffd", _OVERRIDES.sub("", words))


def one_line(text: object) -> str:
    """Return text as `plain` does, on one line."""
    return " ".join(plain(text).split())


def visible(text: object) -> str:
    """Return the whole text with invisible characters spelled out."""
    words = str(text).replace("\r\n", "\n").replace("\t", "    ")
    if not words.isascii() or not words.replace("\n", "").isprintable():
        words = "".join(map(_spelled, words))
    words = _BLANKS.sub(lambda run: f" <{len(run[0])} blanks> ", words)
    return _EMPTY_LINES.sub(lambda run: f"\n<{run[0].count(chr(10)) - 1} empty lines>\n", words)


def _spelled(character: str) -> str:
    if character in "\n ":
        return character
    category = unicodedata.category(character)
    is_unseen = category in _UNSEEN or category == "Zs"
    if is_unseen or character in _BLANK_LETTERS or character in _SELECTORS:
        return f"<U+{ord(character):04X}>"
    return character


def cells(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, room: int) -> str:
    """Return a text that takes at most `room` columns; the rest becomes three dots."""
    if cells(text) <= room:
        return text
    used, kept = 3, 0
    for kept, character in enumerate(text):  # noqa: B007 - its last value is what we want
        used += _cells(character)
        if used > room:
            break
    return text[:kept] + "..."[: max(0, room)]


def wrapped(text: str, room: int) -> Iterator[str]:
    """Break a line between words, or within one that is longer than the line; nothing is lost."""
    line, used = "", 0
    for word in re.findall(r" *[^ ]+| +$", text):
        width = cells(word)
        if used and used + width > room:
            yield line
            word, width = word.lstrip(" "), cells(word.lstrip(" "))  # noqa: PLW2901
            line, used = "", 0
        while width > room > 0:
            head = _prefix(word, room - used)
            yield line + head
            line, used = "", 0
            word = word[len(head) :]  # noqa: PLW2901
            width = cells(word)
        line, used = line + word, used + width
    yield line


def _prefix(word: str, room: int) -> str:
    used = 0
    for index, character in enumerate(word):
        used += _cells(character)
        if used > room and index:
            return word[:index]
    return word

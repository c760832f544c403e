"""A reader of systemd's unit files, written from systemd.syntax(7) and systemd.service(5).

It knows only what our units use, and fails for everything else.
"""

from __future__ import annotations

import re
from collections import defaultdict

_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "s": " "}


def read_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the values of each key, by section."""
    sections: dict[str, dict[str, list[str]]] = {}
    keys: dict[str, list[str]] | None = None
    for line in text.split("\n"):
        if not line.strip() or line[0] in "#;":
            continue
        assert not line.endswith("\\"), "a continued line"
        if header := re.fullmatch(r"\[(\w+)\]", line):
            keys = sections[header[1]] = defaultdict(list)
            continue
        assert keys is not None, "a key before the first section"
        name, equals, value = line.partition("=")
        assert equals, f"not an assignment: {line}"
        assert re.fullmatch(r"\w+", name), line
        keys[name].append(value.strip(" \t"))
    return sections


def words(value: str) -> list[str]:
    """Split a value into words: quotes, escapes and specifiers are resolved."""
    found: list[str] = []
    rest = value.lstrip(" \t")
    while rest:
        word, rest = _first_word(rest)
        found.append(plain(word))
        rest = rest.lstrip(" \t")
    return found


def _first_word(text: str) -> tuple[str, str]:
    word, position, quote = "", 0, ""
    while position < len(text):
        character = text[position]
        if character == "\\":
            word += _ESCAPES[text[position + 1]]
            position += 1
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote = character
        elif not quote and character in " \t":
            return word, text[position:]
        else:
            word += character
        position += 1
    assert not quote, "a quote is not closed"
    return word, ""


def plain(text: str) -> str:
    """Resolve specifiers; only `%%` is one of ours."""
    assert "%" not in text.replace("%%", ""), f"another specifier: {text}"
    return text.replace("%%", "%")


def command(value: str) -> list[str]:
    """Return the words of an `ExecStart=`; `:` switches variables off, else `$` is one."""
    if value.startswith(":"):
        return words(value[1:])
    assert "$" not in value, "a variable"
    return words(value)

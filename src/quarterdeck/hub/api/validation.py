"""Validation errors of bodies and queries, as sentences for the client.

msgspec reports ``Expected `str`, got `int` - at `$.agent` ``. Clients see the name of the field as
they sent it, what it must be, and for a missing or unknown field the fields of the call.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

_NAMES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LIMITS: Final = (
    (re.compile(r" matching regex '(.*)'"), r" that matches \1"),
    (re.compile(r" of length == (\d+)"), r" of length \1"),
    (re.compile(r" of length >= (\d+)"), r" of length \1 or more"),
    (re.compile(r" of length <= (\d+)"), r" of length \1 or less"),
    (re.compile(r" >= (\S+)"), r", \1 or more"),
    (re.compile(r" <= (\S+)"), r", \1 or less"),
    (re.compile(r" > (\S+)"), r" above \1"),
    (re.compile(r" < (\S+)"), r" below \1"),
)


def describe_mismatch(error: msgspec.DecodeError, wanted: type) -> str:
    """Say which field of `wanted` is wrong, and what to send instead."""
    reason, _, where = str(error).partition(" - at ")
    path = re.sub(r"^.*\$\.?|`", "", where)
    if found := re.fullmatch(r"Object missing required field `(.+)`", reason):
        return f'"{found[1]}" is missing' + (f" in {_named(path)}" if path else _fields(wanted))
    if found := re.fullmatch(r"Object contains unknown field `(.+)`", reason):
        more = f" in {_named(path)}" if path else _hint(found[1], wanted)
        return f'unknown field "{found[1]}"{more}'
    subject = _named(path) if path else "it"
    if found := re.fullmatch(r"Invalid enum value (.+)", reason):
        choices = ", ".join(map(str, _choices(wanted, path)))
        return f"{subject} cannot be {found[1]}{f'; use one of {choices}' if choices else ''}"
    if not reason.startswith("Expected "):
        return reason[:1].lower() + reason[1:]
    return f"{subject} must be {_type_words(reason.removeprefix('Expected '))}"


def _named(path: str) -> str:
    """Return a field as the client knows it; msgspec writes the items of lists as `name[0]`."""
    item = re.fullmatch(r"(.+)\[(\d+|\.\.\.)\]", path)
    if item is None:
        return f'"{path}"'
    number = f"item {int(item[2]) + 1}" if item[2].isdecimal() else "an item"
    return f'{number} of "{item[1]}"'


def _type_words(text: str) -> str:
    words = re.sub(r"`([^`]*)`", lambda each: _types(each[1]), text)
    for pattern, replacement in _LIMITS:
        words = pattern.sub(replacement, words)
    return re.sub(r"(\d)\.0\b", r"\1", words).replace(", got ", ", not ")


def _types(names: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in names.split(" | "))


def _fields(wanted: type) -> str:
    """List the fields of a call after a missing one."""
    fields = msgspec.structs.fields(wanted)
    optional = ", ".join(each.encode_name for each in fields if not each.required)
    required = ", ".join(each.encode_name for each in fields if each.required)
    return f"; required: {required}" + (f"; optional: {optional}" if optional else "")


def _hint(name: str, wanted: type) -> str:
    known = [each.encode_name for each in msgspec.structs.fields(wanted)]
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; known fields: {', '.join(known)}" if known else "; this call takes none"


def _choices(wanted: type, path: str) -> tuple[Any, ...]:
    names = {each.encode_name: each.name for each in msgspec.structs.fields(wanted)}
    name = names.get(re.sub(r"\[.*", "", path))
    return () if name is None else tuple(_literals(get_type_hints(wanted)[name]))


def _literals(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for each in get_args(hint):
        yield from _literals(each)

"""Text that is JSON, inside of a call: every value counts, also those of a key that is repeated.

Readers of JSON differ about an object with the same key twice: most take the last value, some the
first, some fail. What its reader will take is not known here, so all values are read, which is what
rules that deny need, and the object gets a further key that no table has: no rule allows it.

Most texts repeat nothing. This is found by counting: the names in the text, which a pattern finds
without decoding it, are as many as the keys of the decoded value.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any, Final

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

MOST_TEXT: Final = 100_000
"""Characters of JSON, or of a patch, that are read in all."""
_MOST_STRINGS: Final = 2_000  # of a text; one with more is not compared, and counts as repeating
_MOST_VALUES: Final = 2_000
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)', re.DOTALL)
_NESTED: Final = "input"  # a key whose value is read like the object itself
_TWICE: Final = "the same key twice"


def json_of(text: str) -> Any:
    """Return the object or list that a text is, as a whole; None for any other text.

    An object with a repeated key becomes one with a list of objects, one for each time, and with a
    key that is not known.
    """
    stripped = text.strip() if len(text) <= MOST_TEXT else ""
    if stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]"):
        return None
    try:
        found = decode_json(stripped.encode("utf-8", "surrogatepass"))
    except JsonInvalid:
        return None
    if not isinstance(found, dict | list):
        return None
    is_plain = _names_in(stripped) == _keys_of(found)
    return found if is_plain else _spread(stripped, found)


def every_value_of(text: str) -> Any:
    """Decode a text that is known to be JSON, of any size; repeated keys are as in `json_of`."""
    return json.loads(text, object_pairs_hook=_each_time, parse_constant=_null)


def is_repeating(given: Any) -> bool:
    """Return whether an object that was decoded here had a key twice."""
    return isinstance(given, dict) and _TWICE in given


def _names_in(text: str) -> int:
    """Return the number of names of members in a text; -1 if it has many strings."""
    colons = [match[1] for match in islice(_STRING.finditer(text), _MOST_STRINGS + 1)]
    return -1 if len(colons) > _MOST_STRINGS else colons.count(":")


def _keys_of(value: Any) -> int:
    """Return the number of keys in a value; -2 if it has many values."""
    keys, seen, todo = 0, 0, [value]
    while todo:
        each = todo.pop()
        seen += 1
        if isinstance(each, dict):
            keys += len(each)
            todo += each.values()
        elif isinstance(each, list):
            todo += each
        if seen + len(todo) > _MOST_VALUES:
            return -2
    return keys


def _spread(text: str, found: Any) -> Any:
    if _names_in(text) < 0 or _keys_of(found) < 0:
        return {_NESTED: found, _TWICE: "too large to compare"}
    return every_value_of(text)


def _each_time(pairs: list[tuple[str, Any]]) -> Any:
    times: list[dict[str, Any]] = [{}]
    counts: dict[str, int] = {}
    for key, value in pairs:
        number = counts[key] = counts.get(key, -1) + 1
        if number == len(times):
            times.append({})
        times[number][key] = value
    return times[0] if len(times) == 1 else {_NESTED: times, _TWICE: ", ".join(times[1])}


def _null(_name: str) -> None:
    """Read NaN and the infinities as `decode_json` does."""

"""Apply changes made to a typed value to the message it was read from. Plain JSON data, pure.

`before` and `after` are the typed value, unchanged and changed. What `received` has beyond `before`
is what the types could not hold; it stays wherever its surroundings still exist.
"""

from __future__ import annotations

from typing import Any

from quarterdeck.jsontext import encode_json


def amend(received: Any, before: Any, after: Any) -> Any:
    """Return `received` changed in the places where `after` differs from `before`."""
    match received, before, after:
        case dict(), dict(), dict():
            return _amend_object(received, before, after)
        case list(), list(), list() if len(received) == len(before):
            return _amend_list(received, before, after)
        case _:
            return received if _same(before, after) else after


def _amend_object(
    received: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    amended = {key: value for key, value in received.items() if key in after or key not in before}
    for key, value in after.items():
        if key in before and key in received:
            amended[key] = amend(received[key], before[key], value)
        elif key not in before or not _same(before[key], value):
            amended[key] = value
    return amended


def _amend_list(received: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Items may have moved: an unchanged one is found by its value, a changed one by its place."""
    old = [encode_json(item) for item in before]
    new = [encode_json(item) for item in after]
    amended = []
    for place, item in enumerate(after):
        if place < len(old) and old[place] == new[place]:
            amended.append(received[place])
        elif new[place] in old:
            amended.append(received[old.index(new[place])])
        elif place < len(old) and old[place] not in new:
            amended.append(amend(received[place], before[place], item))
        else:
            amended.append(item)
    return amended


def _same(one: Any, other: Any) -> bool:
    # Not `==`: to Python, true is 1 and 1 is 1.0.
    return encode_json(one) == encode_json(other)

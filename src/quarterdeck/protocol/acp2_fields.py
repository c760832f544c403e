"""What all readers of updates of ACP 2 share: checked fields, bounded tables."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, TypeAlias

ACP2: Final = "acp2"
"""The key in `extensions` of what event types cannot say."""

JsonObject: TypeAlias = dict[str, Any]


class InvalidUpdate(Exception):
    """An update breaks the rules of its type; the argument says which."""


def take_id(fields: JsonObject, key: str) -> str:
    """Remove an id from the fields and return it.

    Raises:
        InvalidUpdate: if it is not a text.
    """
    value = fields.pop(key, None)
    if not isinstance(value, str):
        raise InvalidUpdate(f"it needs `{key}`, a text")
    return value


def take_list(fields: JsonObject, key: str) -> list[Any] | None:
    """Remove a list from the fields and return it; None if it is null or absent.

    Raises:
        InvalidUpdate: if it is something else.
    """
    value = fields.pop(key, None)
    if value is not None and not isinstance(value, list):
        raise InvalidUpdate(f"its `{key}` is not a list")
    return value


def has_patch(fields: JsonObject, *, is_known: bool) -> bool:
    """Return whether more than an empty patch of metadata is left of an upsert.

    Null removes the metadata of what is known, and says nothing of what is new.
    """
    return any(
        key != "_meta" or value or (value is None and is_known) for key, value in fields.items()
    )


def bound(table: OrderedDict[Any, Any], most: int) -> None:
    """Forget the oldest entry of a table that has more than `most`."""
    if len(table) > most:
        table.popitem(last=False)

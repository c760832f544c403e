"""Options of a session between ACP 1 and ACP 2: `configId` is `id`, `groupId` is `group`. Pure.

The state and every view have the words of ACP 1. An option that cannot be renamed, because it has
both names, is kept verbatim beside the renamed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

JsonObject = dict[str, Any]


def options_from_acp2(options: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """Return options in the words of ACP 1, and the originals if renaming back would lose some."""
    renamed = [_renamed(each, "configId", "id", "groupId", "group") for each in options]
    is_lossless = options_to_acp2(renamed) == list(options)
    return renamed, None if is_lossless else list(options)


def options_to_acp2(options: Iterable[Any]) -> list[Any]:
    """Return options in the words of ACP 2."""
    return [_renamed(each, "id", "configId", "group", "groupId") for each in options]


def _renamed(option: Any, old: str, new: str, old_group: str, new_group: str) -> Any:
    if not isinstance(option, dict):
        return option
    changed = _with_name(option, old, new)
    choices = changed.get("options")
    if isinstance(choices, list):
        groups = [
            _with_name(each, old_group, new_group) if _is_group(each) else each for each in choices
        ]
        changed["options"] = groups
    return changed


def _is_group(choice: Any) -> bool:
    return isinstance(choice, dict) and isinstance(choice.get("options"), list)


def _with_name(table: JsonObject, old: str, new: str) -> JsonObject:
    if old not in table or new in table:
        return dict(table)
    return {new if key == old else key: value for key, value in table.items()}

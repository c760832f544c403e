"""What a packet is: the documented detection functions, for packets of any origin.

Packets come from other programs, so every function takes whatever JSON gave and never raises.
Truth is JavaScript's, in which these rules were first written: `{}` and `[]` are true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from quarterdeck.dialects.packets.paths import relative_path

PathMapper: TypeAlias = Callable[[str], str]

BY_SESSION_UPDATE: Final[Mapping[str, str]] = {
    "agent_message_chunk": "agent_message_chunk",
    "tool_call": "tool_call_start",
    "tool_call_update": "tool_call_progress",
    "plan": "agent_plan_update",
}
UNKNOWN: Final = "unknown"
_TODO_TITLES: Final = frozenset({"todowrite", "todo_write"})
_PATH_KEYS: Final = ("file_path", "filePath", "path")


def packet_type(packet: object) -> str:
    """Return the type of a packet: its `type`, else by its `sessionUpdate`, else "unknown"."""
    if not isinstance(packet, Mapping):
        return UNKNOWN
    named = packet.get("type")
    if isinstance(named, str) and named:
        return named
    update = packet.get("sessionUpdate")
    return BY_SESSION_UPDATE.get(update, UNKNOWN) if isinstance(update, str) else UNKNOWN


def is_new_file_operation(packet: object) -> bool | None:
    """Tell a write (True) from an edit (False) by its first diff; None if it is neither."""
    if not isinstance(packet, Mapping) or packet.get("kind") != "edit":
        return None
    for diff in diffs(packet.get("content")):
        return "oldText" in diff and diff["oldText"] == ""
    return None


def is_todo_write_tool(packet: object) -> bool:
    """Recognise the todo tool, also after its title became a count."""
    if not isinstance(packet, Mapping):
        return False
    return has_todo_title(packet) or isinstance(_input(packet).get("todos"), list)


def is_task_tool(packet: object) -> bool:
    """Recognise a subagent, also after its title became a description."""
    if not isinstance(packet, Mapping):
        return False
    if _title(packet).lower() == "task":
        return True
    raw_input = _input(packet)
    return is_true(raw_input.get("subagent_type")) or is_true(raw_input.get("subagentType"))


def get_file_path(packet: object, relative: PathMapper = relative_path) -> str:
    """Return the file that a packet is about: from its input, its first diff, or its title.

    `relative` shortens what is found.
    """
    if not isinstance(packet, Mapping):
        return ""
    found = path_of_input(_input(packet)) or path_of_diffs(packet.get("content"))
    if not found and "/" in _title(packet):
        found = _title(packet)
    return relative(found) if found else ""


def has_todo_title(packet: Mapping[str, Any]) -> bool:
    return _title(packet).lower() in _TODO_TITLES


def diffs(content: object) -> Iterator[Mapping[str, Any]]:
    """Yield the diffs among the content items of a packet."""
    if isinstance(content, list):
        for item in content:
            if isinstance(item, Mapping) and item.get("type") == "diff":
                yield item


def path_of_input(raw_input: Mapping[str, Any]) -> str:
    for key in _PATH_KEYS:
        path = raw_input.get(key)
        if isinstance(path, str) and path:
            return path
    return ""


def path_of_diffs(content: object) -> str:
    for diff in diffs(content):
        path = diff.get("path")
        if isinstance(path, str) and path:
            return path
    return ""


def is_true(value: object) -> bool:
    """Tell what JavaScript takes for true."""
    return isinstance(value, Mapping | list) or bool(value)


def _input(packet: Mapping[str, Any]) -> Mapping[str, Any]:
    first = packet.get("raw_input")
    found = first if is_true(first) else packet.get("rawInput")
    return found if isinstance(found, Mapping) else {}


def _title(packet: Mapping[str, Any]) -> str:
    title = packet.get("title")
    return title if isinstance(title, str) else ""

"""The documented detection functions: the type of a packet, and what its tool call does.

Packets come from other programs, so every function accepts any JSON value and never raises. Truth
is JavaScript's, in which these rules were first written: `{}` and `[]` are true.

The path functions shorten a path for display to the part inside a session's workspace. They
implement the three rules that the documented readers use. A page that knows the folder of its
session should pass a mapper of its own to `get_file_path` and `parse_packet` instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

_SANDBOX: Final = re.compile(r"/sandboxes/[^/]+/(.+)")
_SESSION: Final = re.compile(r"/sessions/[0-9a-fA-F-]+/(.+)")
# Without the slash that ends it: the next folder of the same path may begin with it.
_WORKSPACE: Final = re.compile(r"/sessions/[0-9a-fA-F-]+(?=/)")
_NOT_IN_A_PATH: Final = re.compile(r"[\s'\"`]|/(?=/)")
_SHOWN_SEGMENTS: Final = 3


def relative_path(path: str) -> str:
    """Return what follows `/outputs/`, else what follows a sandbox's folder, else the file name."""
    _, outputs, rest = path.partition("/outputs/")
    if outputs:
        return rest
    if found := _SANDBOX.search(path):
        return found[1]
    return path.rpartition("/")[2] or path


def workspace_path(path: str) -> str:
    """Return what follows a session's folder, else the last three folders of a path."""
    if found := _SESSION.search(path):
        return found[1]
    segments = [segment for segment in path.split("/") if segment]
    if len(segments) > _SHOWN_SEGMENTS:
        return "/".join(segments[-_SHOWN_SEGMENTS:])
    return path.removeprefix("/")


def without_workspaces(text: str) -> str:
    """Cut the folders of sessions out of a text, for example a command or its output."""
    pieces, kept_to = [], 0
    for found in _WORKSPACE.finditer(text):
        start = _start_of_path(text, max(kept_to - 1, 0), found.start())
        pieces.append(text[kept_to:start])
        kept_to = found.end() + 1
    return "".join(pieces) + text[kept_to:] if pieces else text


def _start_of_path(text: str, begin: int, end: int) -> int:
    """Return where the path begins whose last folders are at `end`, not before `begin`."""
    after = begin
    for boundary in _NOT_IN_A_PATH.finditer(text, begin, end):
        after = boundary.end()
    slash = text.find("/", after, end)
    return end if slash < 0 else slash


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
    """Return True for a write, False for an edit, by the first diff; None if it is neither."""
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
    """Return whether a value is true in JavaScript."""
    return isinstance(value, Mapping | list) or bool(value)


def _input(packet: Mapping[str, Any]) -> Mapping[str, Any]:
    first = packet.get("raw_input")
    found = first if is_true(first) else packet.get("rawInput")
    return found if isinstance(found, Mapping) else {}


def _title(packet: Mapping[str, Any]) -> str:
    title = packet.get("title")
    return title if isinstance(title, str) else ""

"""Tool calls of OpenCode in ACP's words. Pure.

Kinds and contents are those that its ACP agent sends, so that a session looks the same whichever
way it was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "apply_patch": "edit",
    "bash": "execute",
    "edit": "edit",
    "glob": "search",
    "grep": "search",
    "list": "search",
    "multiedit": "edit",
    "patch": "edit",
    "read": "read",
    "shell": "execute",
    "task": "think",
    "todowrite": "think",
    "webfetch": "fetch",
    "websearch": "fetch",
    "write": "edit",
}
_TITLES: Final = ("command", "description", "pattern", "url", "query")
_LONGEST_TITLE: Final = 300


def kind_of(name: str) -> str:
    return _KINDS.get(name, "other")


def call_fields(name: str, given: Any, cwd: str) -> Json:
    """Return title, kind, content and locations of a call, by its tool and its input."""
    arguments: Json = given if isinstance(given, dict) else {}
    path = _path(arguments)
    fields: Json = {"title": _title(name, arguments, path, cwd), "kind": kind_of(name)}
    content = _diff(path, arguments)
    if content:
        fields["content"] = content
    if path:
        fields["locations"] = [{"path": path}]
    return fields


def result_content(name: str, given: Any, text: str) -> list[Json]:
    """Return the content of a call that has ended: its diff, and what it printed."""
    arguments: Json = given if isinstance(given, dict) else {}
    content = _diff(_path(arguments), arguments) if kind_of(name) == "edit" else []
    if text:
        content.append({"type": "content", "content": {"type": "text", "text": text}})
    return content


def _path(arguments: Json) -> str:
    for key in ("filePath", "filepath", "path"):
        if isinstance(arguments.get(key), str):
            return str(arguments[key])
    return ""


def _title(name: str, arguments: Json, path: str, cwd: str) -> str:
    inside = cwd.rstrip("/") + "/"
    is_plain = ".." not in path.split("/")  # that could lead out of the folder
    shown = path[len(inside) :] if cwd and path.startswith(inside) and is_plain else path
    words = [arguments[key] for key in _TITLES if isinstance(arguments.get(key), str)]
    if kind_of(name) == "execute" and words:
        title = words[0]
    elif shown:
        title = f"{name} {shown}"
    else:
        title = f"{name} {words[0]}" if words else name
    return title[:_LONGEST_TITLE].strip() or name


def _diff(path: str, arguments: Json) -> list[Json]:
    old, new = arguments.get("oldString"), arguments.get("newString")
    if not isinstance(new, str):
        old, new = None, arguments.get("content")
    if not path or not isinstance(new, str):
        return []
    return [{"type": "diff", "path": path, "oldText": old, "newText": new}]

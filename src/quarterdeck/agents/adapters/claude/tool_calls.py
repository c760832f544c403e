"""Tool calls of Claude Code in ACP's words. Pure.

Titles, kinds and contents are those that its ACP agent sends, so that a session looks the same
whichever way it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]

_KINDS: Final[Mapping[str, str]] = {
    "Agent": "think",
    "Bash": "execute",
    "BashOutput": "execute",
    "Edit": "edit",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
    "Glob": "search",
    "Grep": "search",
    "KillShell": "execute",
    "LS": "search",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "NotebookRead": "read",
    "Read": "read",
    "Task": "think",
    "TodoWrite": "think",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "Write": "edit",
}
_LONGEST_TITLE: Final = 300


def call_fields(name: str, given: Any, cwd: str) -> Json:
    """Return title, kind, content and locations of a call, by its tool and its input."""
    arguments: Json = given if isinstance(given, dict) else {}
    fields: Json = {"title": _title(name, arguments, cwd), "kind": _KINDS.get(name, "other")}
    content = _CONTENTS.get(name, _no_content)(arguments)
    if content:
        fields["content"] = content
    path = _path(arguments)
    if path:
        fields["locations"] = [{"path": path}]
    return fields


def _path(arguments: Json) -> str:
    for key in ("file_path", "notebook_path"):
        if isinstance(arguments.get(key), str):
            return str(arguments[key])
    return ""


def _title(name: str, arguments: Json, cwd: str) -> str:
    def text(key: str) -> str:
        value = arguments.get(key)
        return value if isinstance(value, str) else ""

    path = _relative(_path(arguments), cwd)
    match name:
        case "Bash":
            title = text("command")
        case "Agent" | "Task":
            title = text("description")
        case "Glob" | "Grep":
            title = f"{name} {text('pattern')}"
        case "WebFetch":
            title = f"Fetch {text('url')}"
        case "WebSearch":
            title = f"Search the web: {text('query')}"
        case _:
            title = f"{name} {path}" if path else name
    return title[:_LONGEST_TITLE].strip() or name


def _relative(path: str, cwd: str) -> str:
    inside = cwd.rstrip("/") + "/"
    is_plain = ".." not in path.split("/")  # that could lead out of the folder
    return path[len(inside) :] if cwd and path.startswith(inside) and is_plain else path


def _no_content(_arguments: Json) -> list[Json]:
    return []


def _diff(path: str, old: Any, new: Any) -> list[Json]:
    if not path or not isinstance(new, str):
        return []
    return [{"type": "diff", "path": path, "oldText": old, "newText": new}]


def _write(arguments: Json) -> list[Json]:
    return _diff(_path(arguments), None, arguments.get("content"))


def _edit(arguments: Json) -> list[Json]:
    return _diff(_path(arguments), arguments.get("old_string"), arguments.get("new_string"))


def _edits(arguments: Json) -> list[Json]:
    edits = arguments.get("edits")
    diffs: list[Json] = []
    for each in edits if isinstance(edits, list) else ():
        if isinstance(each, dict):
            diffs += _diff(_path(arguments), each.get("old_string"), each.get("new_string"))
    return diffs


def _prompt(arguments: Json) -> list[Json]:
    text = arguments.get("prompt") or arguments.get("plan")
    return [text_content(text)] if isinstance(text, str) and text else []


_CONTENTS: Final[Mapping[str, Callable[[Json], list[Json]]]] = {
    "Agent": _prompt,
    "Edit": _edit,
    "ExitPlanMode": _prompt,
    "MultiEdit": _edits,
    "Task": _prompt,
    "Write": _write,
}


def text_content(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def result_content(content: Any) -> list[Json]:
    """Return the content of a tool's result as contents of a tool call."""
    if isinstance(content, str):
        return [text_content(content)] if content else []
    blocks = content if isinstance(content, list) else []
    return [
        {"type": "content", "content": block}
        for block in (acp_block(each) for each in blocks)
        if block is not None
    ]


def acp_block(block: Any) -> Json | None:
    """Return a block of text or an image as ACP has it; None for any other."""
    if not isinstance(block, dict):
        return {"type": "text", "text": block} if isinstance(block, str) else None
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict) and source.get("data"):
        media = source.get("media_type")
        return {"type": "image", "data": source["data"], "mimeType": media or "image/png"}
    return None


def plan_entries(given: Any) -> list[Json] | None:
    """Return the input of `TodoWrite` as the entries of a plan; None if it is none."""
    todos = given.get("todos") if isinstance(given, dict) else None
    if not isinstance(todos, Sequence) or isinstance(todos, str):
        return None
    return [
        {
            "content": str(each.get("content", "")),
            "status": each.get("status", "pending"),
            "priority": each.get("priority", "medium"),
        }
        for each in todos
        if isinstance(each, dict)
    ]

"""Tools in packets: their names and kinds, and the texts that a page shows for a call.

The first half maps any spelling of a tool's name to a known tool, its kind and its title. The
second half finds the texts of a call in its input, output and content: agents put them in different
fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, get_args

from quarterdeck.views.packets.detection import diffs
from quarterdeck.views.packets.parsed_packets import Todo
from quarterdeck.views.packets.types import Priority, TodoStatus

_NUMBER: Final = re.compile(
    r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?", re.ASCII
)
KINDS: Final[Mapping[str, str]] = {
    "glob": "search",
    "grep": "search",
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "task": "task",
    "todowrite": "other",
    "webfetch": "other",
    "websearch": "other",
    "list": "read",
    "apply_patch": "edit",
    "lsp": "other",
    "skill": "other",
    "question": "other",
    "invalid": "other",
}
"""By name. `task` is a kind for readers only: its packets have one of the five of `WIRE_KINDS`."""

WIRE_KINDS: Final = frozenset({"search", "read", "execute", "edit", "other"})
_READABLE_KINDS: Final = WIRE_KINDS - {"other"} | {"task"}
_ALIASES: Final[Mapping[str, str]] = {
    "todo_write": "todowrite",
    "applypatch": "apply_patch",
    "ls": "list",
}
_NAME_OF_KIND: Final[Mapping[str, str]] = {
    "execute": "bash",
    "read": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "search": "glob",
    "task": "task",
    "fetch": "webfetch",
}
_TITLES: Final[Mapping[str, str]] = {
    "glob": "Searching files",
    "grep": "Searching content",
    "read": "Reading",
    "bash": "Running command",
    "task": "Running task",
    "todowrite": "Updating todos",
    "webfetch": "Fetching web content",
    "websearch": "Searching web",
    "lsp": "Checking code",
    "skill": "Running skill",
    "list": "Listing files",
    "question": "Asking",
    "invalid": "Validating",
}
_TITLES_BY_KIND: Final[Mapping[str, str]] = {
    "search": "Searching",
    "read": "Reading",
    "execute": "Running command",
    "task": "Running task",
}
WRITING: Final = "Writing file"
EDITING: Final = "Editing file"
_SKILL: Final = re.compile(r"(?:skills?|superpowers)[.:](.+)")
_SKILL_PATH: Final = re.compile(r"\.opencode/skills/([^/\s'\"]+)/")


def canonical_name(name: str) -> str | None:
    """Return the known tool that `name` spells, or None."""
    lowered = name.lower()
    lowered = _ALIASES.get(lowered, lowered)
    return lowered if lowered in KINDS else None


def tool_kind(name: str) -> str:
    """Return the kind of the tool called `name`, in any case; "other" if it is unknown."""
    return KINDS.get(canonical_name(name) or "", "other")


def resolve_name(name: str, raw_input: Mapping[str, Any], kind: object) -> str:
    """Return the known tool behind a call: by its name, then its input, then its kind.

    Titles change while a call runs, so a name that was a title proves nothing by its absence.
    """
    known = canonical_name(name)
    if known is not None:
        return known
    if raw_input.get("subagent_type") or raw_input.get("subagentType"):
        return "task"
    if isinstance(raw_input.get("todos"), list):
        return "todowrite"
    if isinstance(raw_input.get("patchText"), str):
        return "edit"
    if isinstance(raw_input.get("command"), str):
        return "bash"
    return _NAME_OF_KIND.get(kind, "unknown") if isinstance(kind, str) else "unknown"


def resolve_kind(name: str, kind: object) -> str:
    """Return the kind to show for a known tool; the kind of its packet if ours is "other"."""
    own = KINDS.get(name, "other")
    if own == "other" and isinstance(kind, str) and kind in _READABLE_KINDS:
        return kind
    return own


def display_title(name: str, kind: str, *, is_new_file: bool) -> str:
    if kind == "edit":
        return WRITING if is_new_file else EDITING
    return _TITLES.get(name) or _TITLES_BY_KIND.get(kind, "Running tool")


def skill_name(raw_name: str, name: str, kind: str, raw_input: Mapping[str, Any]) -> str | None:
    """Return the skill that a call uses: as its name, as its input, or in its command."""
    if name == "unknown" and (found := _SKILL.fullmatch(raw_name)):
        return found[1]
    given = raw_input.get("name")
    if name == "skill" and isinstance(given, str) and given:
        return given
    command = raw_input.get("command")
    if kind == "execute" and isinstance(command, str):
        if found := _SKILL_PATH.search(command):
            return found[1]
        if command.startswith("gh "):
            return "github"
    return None


_LINE_NUMBER: Final = re.compile(r"^\d+\| ?", re.MULTILINE)
_PATCH_HEADER: Final = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_FILE_TAGS: Final = re.compile(r"^\s*<file>\n?|\n?</file>\s*$")
_END_OF_FILE: Final = re.compile(r"^\(End of file.*$", re.MULTILINE)
_TASK_ID: Final = re.compile(r"^task_id:\s*(\S+)", re.MULTILINE)
_METADATA_ID: Final = re.compile(r"(?:session_id|task_id):\s*(\S+)")
_METADATA, _METADATA_END = "<task_metadata>", "</task_metadata>"
_RESULT, _RESULT_END = "<task_result>", "</task_result>"
_STATUSES: Final[Mapping[str, TodoStatus]] = {name: name for name in get_args(TodoStatus)}
_PRIORITIES: Final[Mapping[str, Priority]] = {name: name for name in get_args(Priority)}


def text_of(content: object) -> str:
    """Return the text of a message's content: of one block, of many, or of none."""
    match content:
        case str():
            return content
        case list():
            return "".join(text_of(block) for block in content if _is_text(block))
        case {"text": str(text), **rest} if rest.get("type", "text") == "text":
            return text
        case _:
            return ""


def _is_text(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text"


def as_object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_code(value: object) -> str:
    """Return the code of an error, which is a text or a number."""
    return str(value) if isinstance(value, str | int) else ""


def as_number(value: object) -> float | None:
    """Return a finite number, also one that is written as text; None if it is neither."""
    if isinstance(value, str):
        try:
            value = float(value) if _NUMBER.fullmatch(value.strip()) else None
        except ValueError:
            return None
        if value is not None and isfinite(value) and value.is_integer():
            value = int(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_count(value: object) -> int | None:
    """Return a whole number; what is behind its point is cut off."""
    number = as_number(value)
    return None if number is None else int(number)


def todo_status(value: object) -> TodoStatus:
    return _STATUSES.get(as_text(value), "pending")


def plan_priority(value: object) -> Priority:
    return _PRIORITIES.get(as_text(value), "medium")


def pretty(value: object) -> str:
    """Return any output as readable JSON; empty for an empty or unreadable one."""
    try:
        return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return ""


def execute_output(raw_output: object) -> str:
    output = as_object(raw_output)
    return as_text(as_object(output.get("metadata")).get("output")) or as_text(output.get("output"))


def search_output(raw_output: object) -> str:
    output = as_object(raw_output)
    if isinstance(output.get("output"), str):
        return as_text(output["output"])
    files = output.get("files")
    if isinstance(files, list):
        return "\n".join(each if isinstance(each, str) else pretty(each) for each in files)
    return pretty(raw_output)


def read_output(raw_output: object, content: object) -> str:
    if isinstance(content, list) and content:
        text = text_of(as_object(content[0]).get("content"))
        if text:
            return _unwrapped(text)
    inner = as_object(raw_output).get("content")
    return inner if isinstance(inner, str) else pretty(raw_output)


def _unwrapped(text: str) -> str:
    """Take a file out of its tags and line numbers, if it is there to its end."""
    if "<file>" not in text or not _END_OF_FILE.search(text):
        return text
    body = _END_OF_FILE.sub("", _FILE_TAGS.sub("", text))
    return _LINE_NUMBER.sub("", body).strip()


def edit_output(raw_input: Mapping[str, Any], raw_output: object, content: object) -> str:
    for diff in diffs(content):
        if isinstance(diff.get("newText"), str):
            return as_text(diff["newText"])
    if isinstance(raw_input.get("patchText"), str):
        return as_text(raw_input["patchText"])
    output = as_object(raw_output).get("output")
    return output if isinstance(output, str) else pretty(raw_output)


def diff_texts(content: object) -> tuple[str, str]:
    """Return the old and the new text of a call's diffs; with several, the last of each."""
    old = new = ""
    for diff in diffs(content):
        old = diff["oldText"] if isinstance(diff.get("oldText"), str) else old
        new = diff["newText"] if isinstance(diff.get("newText"), str) else new
    return old, new


def patch_header(raw_input: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the first header of a patch does (Add, Update or Delete), and to which file."""
    found = _PATCH_HEADER.search(as_text(raw_input.get("patchText")))
    return (found[1], found[2].strip()) if found else ("", "")


def todos_of(raw_input: Mapping[str, Any]) -> tuple[Todo, ...]:
    listed = raw_input.get("todos")
    return tuple(map(_todo, listed)) if isinstance(listed, list) else ()


def _todo(item: object) -> Todo:
    fields = as_object(item)
    content = as_text(fields.get("content"))
    return Todo(
        content=content,
        status=todo_status(fields.get("status")),
        active_form=as_text(fields.get("activeForm")) or content,
    )


def task_output(raw_output: object) -> str | None:
    """Return what a subagent answered, without what was added for machines."""
    text = as_text(as_object(raw_output).get("output"))
    kept, begin = [], 0
    while (opening := text.find(_METADATA, begin)) >= 0:
        closing = text.find(_METADATA_END, opening)
        if closing < 0:
            break
        kept.append(text[begin:opening])
        begin = closing + len(_METADATA_END)
    return ("".join(kept) + text[begin:]).strip() or None


def subagent_session(raw_output: object) -> str | None:
    """Return the session of a subagent, if its output names it."""
    text = as_text(as_object(raw_output).get("output"))
    if found := _TASK_ID.search(text):
        return found[1]
    metadata = text.partition(_METADATA)[2].partition(_METADATA_END)[0]
    named = _METADATA_ID.search(metadata)
    return named[1] if named else None


def clean_task_output(text: str | None) -> str | None:
    """Return the answer in a subagent's output: without its id, out of its tags; None if empty."""
    cleaned = (text or "").strip()
    if cleaned.startswith("task_id:"):
        cleaned = cleaned.partition("\n")[2].strip()
    _, opening, rest = cleaned.partition(_RESULT)
    result, closing, _ = rest.partition(_RESULT_END)
    return (result.strip() if opening and closing else cleaned) or None

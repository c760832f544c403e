"""Steps to the ACP objects that the agent sends. Pure.

Texts of a step may contain placeholders: `{n}` (the round of a `repeat`), `{last}` (the client's
last response, or the pid of the last `spawn`), `{last.content}` (a part of it), `{prompt}`,
`{session}`, `{cwd}`, `{id}` (of the request being played). A text that is exactly one placeholder
becomes the value itself, not its text. Other braces are unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from quarterdeck.testing.scenario import Step

Json = dict[str, Any]

_PLACEHOLDER: Final = re.compile(r"\{(n|prompt|session|cwd|id|last(?:\.\w+)*)\}")
_MARKS: Final = {"[x] ": "completed", "[>] ": "in_progress", "[ ] ": "pending"}
_CHUNKS: Final = {
    "say": "agent_message_chunk",
    "think": "agent_thought_chunk",
    "user": "user_message_chunk",
}
_OPTION_NAMES: Final = {
    "allow_once": "Allow",
    "allow_always": "Always allow",
    "reject_once": "Reject",
    "reject_always": "Always reject",
}
_DEFAULT_OPTIONS: Final = ("allow_once", "allow_always", "reject_once")


def fill(value: Any, known: Mapping[str, Any]) -> Any:
    """Return `value` with the placeholders in all its texts replaced."""
    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        if whole:
            return _lookup(whole[1], known)
        return _PLACEHOLDER.sub(lambda found: as_text(_lookup(found[1], known)), value)
    if isinstance(value, dict):
        return {key: fill(each, known) for key, each in value.items()}
    return [fill(each, known) for each in value] if isinstance(value, list) else value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _lookup(path: str, known: Mapping[str, Any]) -> Any:
    name, *parts = path.split(".")
    value = known.get(name)
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def chunks(step: Step) -> Iterator[Json]:
    """Yield the pieces of a message, one update each."""
    message_id = {"messageId": step.options["id"]} if "id" in step.options else {}
    for piece in cut(as_text(step.value), step.options.get("pieces", 1)):
        content = {"type": "text", "text": piece}
        yield {"sessionUpdate": _CHUNKS[step.verb], "content": content, **message_id}


def cut(text: str, count: int) -> list[str]:
    """Split a text into `count` pieces, after a nearby space if there is one."""
    pieces, start = [], 0
    for number in range(1, count):
        end = max(start, len(text) * number // count)
        space = text.find(" ", end, len(text) * (number + 1) // count)
        end = end if space < 0 else space + 1
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def update_of(step: Step) -> Json:
    """Return the update that a step sends."""
    return _UPDATES[step.verb](step)


def permission_of(step: Step) -> Json:
    """Return the params of `session/request_permission` without the session."""
    options = step.options.get("options", _DEFAULT_OPTIONS)
    return {
        "toolCall": {"toolCallId": step.value, **_call_fields(step)},
        "options": [_permission_option(option) for option in options],
    }


def _permission_option(option: Any) -> Json:
    if isinstance(option, dict):
        return option
    kind = as_text(option)  # a placeholder may have been replaced by any value
    return {"optionId": kind, "name": _OPTION_NAMES.get(kind, kind), "kind": kind}


def _call_fields(step: Step) -> Json:
    names = {"input": "rawInput", "output": "rawOutput"}
    plain = ("title", "kind", "status", "input", "output")
    fields = {names.get(key, key): step.options[key] for key in plain if key in step.options}
    if "locations" in step.options:
        fields["locations"] = [
            {"path": each} if isinstance(each, str) else each for each in step.options["locations"]
        ]
    content = list(_call_content(step.options))
    return {**fields, "content": content} if content or "content" in step.options else fields


def _call_content(options: Mapping[str, Any]) -> Iterator[Any]:
    if "text" in options:
        yield {"type": "content", "content": {"type": "text", "text": as_text(options["text"])}}
    if "diff" in options:
        diff = options["diff"]
        old = {"oldText": diff["old"]} if "old" in diff else {}
        yield {"type": "diff", "path": diff["path"], **old, "newText": diff["new"]}
    if "terminal" in options:
        yield {"type": "terminal", "terminalId": options["terminal"]}
    yield from options.get("content", ())


def _tool_call(step: Step) -> Json:
    defaults = {"title": step.value, "status": "in_progress"}
    call = {"sessionUpdate": "tool_call", "toolCallId": step.value}
    return {**call, **defaults, **_call_fields(step)}


def _tool_call_update(step: Step) -> Json:
    status = {"status": "completed"} if step.verb == "finish" else {}
    call = {"sessionUpdate": "tool_call_update", "toolCallId": step.value}
    return {**call, **status, **_call_fields(step)}


def _plan(step: Step) -> Json:
    return {"sessionUpdate": "plan", "entries": [_plan_entry(each) for each in step.value]}


def _plan_entry(entry: Any) -> Json:
    if isinstance(entry, dict):
        return {"priority": "medium", "status": "pending", **entry}
    text = as_text(entry)
    mark = next((mark for mark in _MARKS if text.startswith(mark)), "")
    status = _MARKS.get(mark, "pending")
    return {"content": text.removeprefix(mark), "priority": "medium", "status": status}


def _commands(step: Step) -> Json:
    commands = [
        {"description": "", **(each if isinstance(each, dict) else {"name": as_text(each)})}
        for each in step.value
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}


def _usage(step: Step) -> Json:
    usage = {"sessionUpdate": "usage_update", "used": step.value, "size": step.options["size"]}
    if "cost" not in step.options:
        return usage
    return {**usage, "cost": {"amount": step.options["cost"], "currency": "USD"}}


_UPDATES: Final[Mapping[str, Callable[[Step], Json]]] = {
    "plan": _plan,
    "tool": _tool_call,
    "progress": _tool_call_update,
    "finish": _tool_call_update,
    "commands": _commands,
    "mode": lambda step: {"sessionUpdate": "current_mode_update", "currentModeId": step.value},
    "usage": _usage,
    "title": lambda step: {"sessionUpdate": "session_info_update", "title": step.value},
    "update": lambda step: step.value,
}
MESSAGE_VERBS: Final = frozenset(_CHUNKS)
UPDATE_VERBS: Final = frozenset(_UPDATES)

"""A session as a Markdown document.

Text of agents and people is quoted in fences: none of it becomes a title, a link, a picture or HTML
of the document, and no character is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quarterdeck.protocol import SessionState, to_json
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.views.line_diff import unified_lines
from quarterdeck.views.text import one_line, plain

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
_SPEAKERS: Final = {"user": "You", "agent": "Agent", "thought": "Agent, thinking"}


def document(state: SessionState, *, cwd: str = "", last_seq: int = 0) -> str:
    """Return a session as Markdown."""
    return "\n".join(_lines(to_json(state), cwd, last_seq)) + "\n"


def _lines(state: Mapping[str, Any], cwd: str, last_seq: int) -> Iterator[str]:
    title = (state.get("info") or {}).get("title")
    yield f"# {_quoted(title or 'Session ' + state['sessionId'])}"
    yield ""
    yield f"- session: {_code(state['sessionId'])}"
    if cwd:
        yield f"- folder: {_code(cwd)}"
    yield f"- events: {last_seq}"
    yield f"- status: {_quoted(state['connection']['status'])}"
    if state.get("lastStopReason"):
        yield f"- last turn: {_quoted(state['lastStopReason'])}"
    messages = [(message["seq"], _message(message)) for message in state["messages"]]
    calls = [(call["seq"], _call(call)) for call in state["toolCalls"].values()]
    for _, lines in sorted((*messages, *calls), key=lambda part: part[0]):
        yield ""
        yield from lines
    yield from _plan(state.get("plan"))
    yield from _decisions(state)


def _message(message: Mapping[str, Any]) -> list[str]:
    text = "".join(_block(block) for block in message["content"])
    return [f"## {_SPEAKERS.get(message['kind'], 'Unknown')}", "", *_fence(plain(text))]


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            return f"[{kind}]"
        case _:
            return "[unreadable]"


def _call(call: Mapping[str, Any]) -> list[str]:
    lines = [f"## Tool: {_quoted(call['title'])}", ""]
    lines.append(f"- kind: {_quoted(call['kind'] or 'other')}, status: {_quoted(call['status'])}")
    lines += (f"- file: {_code(each.get('path'))}" for each in _tables(call["locations"]))
    if call.get("rawInput") is not None:
        lines += ("", "Input:", "", *_fence(_pretty(call["rawInput"]), "json"))
    for part in _tables(shown_content(call["content"])):
        lines += ("", *_content(part))
    return lines


def _content(part: Mapping[str, Any]) -> list[str]:
    match part:
        case {"type": "diff", "newText": str(new), **rest}:
            old = rest.get("oldText")
            path = str(rest.get("path"))
            before = old if isinstance(old, str) else None
            changes = unified_lines(f"b/{path}", before, new, origin=f"a/{path}")
            return _fence(plain("\n".join(changes)), "diff")
        case {"type": "content", "content": block}:
            return _fence(plain(_block(block)))
        case _:
            return _fence(_pretty(part), "json")


def _plan(plan: Any) -> Iterator[str]:
    entries = list(_tables(plan.get("entries"))) if isinstance(plan, Mapping) else []
    if entries:
        yield from ("", "## Plan", "")
        for entry in entries:
            mark = "x" if entry.get("status") == "completed" else " "
            yield f"- [{mark}] {_quoted(entry.get('content'))}"


def _decisions(state: Mapping[str, Any]) -> Iterator[str]:
    resolved, pending = state["resolvedPermissionRequests"], state["pendingPermissionRequests"]
    if resolved or pending:
        yield from ("", "## Permissions", "")
    for request in resolved:
        outcome = request.get("outcome")
        chosen = outcome.get("optionId", outcome.get("outcome")) if _is_table(outcome) else ""
        call = request.get("toolCall")
        title = call.get("title") if _is_table(call) else None
        words = f"{request['requestId']} {title or ''}: {request['status']} {chosen or ''}"
        yield f"- {_quoted(words)}"
    for request in pending:
        yield f"- {_quoted(request['requestId'])}: waiting for an answer"


def _fence(text: str, language: str = "text") -> list[str]:
    """Quote a text in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.split("\n"), fence]


def _quoted(text: object) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))


def _code(text: object) -> str:
    words = one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    ticks = "`" * (longest + 1)
    return f"{ticks} {words} {ticks}" if longest else f"{ticks}{words}{ticks}"


def _pretty(value: Any) -> str:
    return plain(json.dumps(value, ensure_ascii=False, indent=2))


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)

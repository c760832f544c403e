"""A session as a Markdown document.

Text of agents and people is quoted in fences: none of it becomes a title, a link, a picture or HTML
of the document, and no character is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from quarterdeck.protocol import SessionState, to_json
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.line_diff import unified_lines
from quarterdeck.views.block_words import block_words, blocks_words
from quarterdeck.views.entries import NoteEntry, tool_name
from quarterdeck.views.text import one_line, plain

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")
_SEVERITIES: Final = {"warning": "Warning", "error": "Error"}
_SPEAKERS: Final = {"user": "You", "agent": "Agent", "thought": "Agent, thinking"}


def document(
    state: SessionState,
    *,
    cwd: str = "",
    last_seq: int = 0,
    notes: Sequence[NoteEntry] = (),
) -> str:
    """Return a session as Markdown; `notes` are those of its transcript."""
    return "\n".join(_lines(to_json(state), cwd, last_seq, notes)) + "\n"


def _lines(
    state: Mapping[str, Any], cwd: str, last_seq: int, notes: Sequence[NoteEntry]
) -> Iterator[str]:
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
    yield from _settings(state)
    messages = [(message["seq"], _message(message)) for message in state["messages"]]
    calls = [(call["seq"], _call(call, state)) for call in state["toolCalls"].values()]
    noted = [(note.seq, _note(note)) for note in notes]
    for _, lines in sorted((*messages, *calls, *noted), key=lambda part: part[0]):
        yield ""
        yield from lines
    yield from _plans(state)
    yield from _decisions(state)


def _settings(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the agent reported of its mode, options, commands, and of usage and cost."""
    modes, usage = state.get("modes"), state.get("usage")
    if _is_table(modes) and modes.get("currentModeId") is not None:
        yield f"- mode: {_quoted(modes['currentModeId'])}"
    for option in _tables(state.get("configOptions")):
        name, value = option.get("name") or option.get("id"), option.get("currentValue")
        yield f"- {_quoted(name)}: {_quoted(value if isinstance(value, str) else _json(value))}"
    names = [f"/{each.get('name')}" for each in _tables(state.get("availableCommands"))]
    if names:
        yield f"- commands: {_quoted(', '.join(names))}"
    if _is_table(usage):
        yield f"- context: {usage.get('used')} of {usage.get('size')} tokens"
        cost = usage.get("cost")
        if _is_table(cost):
            yield f"- cost: {_quoted(cost.get('amount'))} {_quoted(cost.get('currency'))}"
    foreground = state.get("foreground")
    if _is_table(foreground) and foreground.get("background"):
        yield f"- in the background: {_code(_json(foreground['background']))}"


def _message(message: Mapping[str, Any]) -> list[str]:
    text = blocks_words(message["content"])
    return [f"## {_SPEAKERS.get(message['kind'], 'Unknown')}", "", *_fence(plain(text))]


def _note(note: NoteEntry) -> list[str]:
    """Return a note; one that has no words of its own as JSON."""
    lines = [f"## {_SEVERITIES.get(note.severity, 'Note')}: {_quoted(note.title)}"]
    if note.text:
        return [*lines, "", *_fence(plain(note.text))]
    has_words = note.update.get("sessionUpdate") != note.title
    return lines if has_words else [*lines, "", *_fence(_pretty(note.update), "json")]


def _call(call: Mapping[str, Any], state: Mapping[str, Any]) -> list[str]:
    lines = [f"## Tool: {_quoted(call['title'])}", ""]
    lines.append(f"- kind: {_quoted(call['kind'] or 'other')}, status: {_quoted(call['status'])}")
    name = tool_name(call)
    lines += () if name is None else (f"- tool: {_code(name)}",)
    lines += (f"- file: {_code(each.get('path'))}" for each in _tables(call["locations"]))
    if call.get("rawInput") is not None:
        lines += ("", "Input:", "", *_fence(_pretty(call["rawInput"]), "json"))
    for part in _tables(shown_content(call["content"])):
        lines += ("", *_content(part, state["terminals"]))
    if not call["content"] and call.get("rawOutput") is not None:
        lines += ("", "Output:", "", *_fence(_pretty(call["rawOutput"]), "json"))
    return lines


def _content(part: Mapping[str, Any], terminals: Mapping[str, Any]) -> list[str]:
    match part:
        case {"type": "diff", "newText": str(new), **rest}:
            old = rest.get("oldText")
            path = str(rest.get("path"))
            before = old if isinstance(old, str) else None
            changes = unified_lines(f"b/{path}", before, new, origin=f"a/{path}")
            return _fence(plain("\n".join(changes)), "diff")
        case {"type": "content", "content": block}:
            return _fence(plain(block_words(block)))
        case {"type": "terminal", "terminalId": str(name)} if name in terminals:
            return _terminal(terminals[name])
        case _:
            return _fence(_pretty(part), "json")


def _terminal(terminal: Mapping[str, Any]) -> list[str]:
    lines = [f"- command: {_code(terminal['command'])}"] if terminal.get("command") else []
    lines += [f"- folder: {_code(terminal['cwd'])}"] if terminal.get("cwd") else []
    ended = terminal.get("exit")
    if _is_table(ended) and (ended.get("signal") or ended.get("exitCode") is not None):
        how = ended.get("signal") or f"exit code {ended.get('exitCode')}"
        lines.append(f"- ended: {_quoted(how)}")
    return [*lines, *([""] if lines else []), *_fence(plain(terminal["output"]))]


def _plans(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the plan; of an agent with several, each."""
    plans = state.get("plans")
    if not _is_table(plans) or not plans:
        yield from _plan(state.get("plan"))
        return
    for plan in plans.values():
        words = plan.get("content") or plan.get("uri")
        if plan.get("type") == "items":
            yield from _plan(plan)
        elif words:
            yield from ("", "## Plan", "", *_fence(plain(words)))


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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pretty(value: Any) -> str:
    return plain(json.dumps(value, ensure_ascii=False, indent=2))


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


def _is_table(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)

"""Events and states in words for people. Pure: lines of styled text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quarterdeck.protocol import Event, SessionState, to_json
from quarterdeck.views.text import plain

_SHOWN_LINES: Final = 12  # of a tool's output; the rest is counted


class Line(NamedTuple):
    """A line of a body, and the style it is shown in (a key of `screen.STYLES`)."""

    text: str
    style: str = ""


class Marks(NamedTuple):
    """The characters for a status; ASCII for terminals that cannot show the others."""

    completed: str
    in_progress: str
    pending: str
    failed: str
    rule: str

    def of(self, status: object) -> str:
        marks = {
            "completed": self.completed,
            "in_progress": self.in_progress,
            "failed": self.failed,
        }
        return marks.get(str(status), self.pending)


UNICODE_MARKS: Final = Marks("✓", "▸", "·", "✗", "─")
ASCII_MARKS: Final = Marks("x", ">", ".", "!", "-")


def chunk_text(event: Event) -> str | None:
    """Return the text of a message chunk, a placeholder for other content; None for all else."""
    if not event.type.endswith("-message-chunk") and event.type != "agent-thought-chunk":
        return None
    return _block_text(event.payload.get("content"))


def summary(event: Event, state: SessionState, marks: Marks) -> str:
    """Summarise an event in a few words; `state` is the one after it."""
    describe = _SUMMARIES.get(event.type)
    words = describe(event.payload, state, marks) if describe else _compact(event.payload)
    return plain(words).replace("\n", " ")


def body(event: Event, marks: Marks, cwd: str) -> list[Line]:
    """Return what needs more than a few words: plans, outputs, diffs."""
    payload = event.payload
    match event.type:
        case "plan":
            return [_plan_line(entry, marks) for entry in _tables(payload.get("entries"))]
        case "tool-call" | "tool-call-update":
            return _content_lines(payload, cwd)
        case "permission-request-created":
            call = payload.get("toolCall")
            return _content_lines(call if isinstance(call, Mapping) else {}, cwd)
        case _:
            return []


def final_lines(state: SessionState, marks: Marks) -> list[tuple[str, list[str]]]:
    """Return the state as rows, a title and the lines beside it, without empty ones."""
    facts = to_json(state)
    modes, plan, usage = _table(facts["modes"]), _table(facts["plan"]), _table(facts["usage"])
    rows: list[tuple[str, list[str]]] = [
        ("status", [state.connection.status]),
        ("title", [state.info.title] if state.info.title else []),
        ("mode", [str(modes.get("currentModeId"))] if modes else []),
        ("messages", [_message_line(message) for message in facts["messages"]]),
        ("tool calls", [_call_line(call, marks) for call in facts["toolCalls"].values()]),
        ("plan", [_plan_line(each, marks).text for each in _tables(plan.get("entries"))]),
        ("permissions", list(_permission_lines(facts))),
        ("usage", [_usage(usage)] if usage else []),
        ("stopped", [_stopped(facts)] if state.last_stop_reason else []),
    ]
    return [(title, [plain(line) for line in lines]) for title, lines in rows if lines]


def _plan_line(entry: Mapping[str, Any], marks: Marks) -> Line:
    status = entry.get("status")
    style = {"completed": "good", "in_progress": "strong"}.get(str(status), "")
    return Line(f"{marks.of(status)} {plain(entry.get('content', ''))}", style)


def _content_lines(call: Mapping[str, Any], cwd: str) -> list[Line]:
    lines: list[Line] = []
    for part in _tables(call.get("content")):
        match part:
            case {"type": "diff", "newText": str(new)}:
                lines += _diff_lines(part, new, cwd)
            case {"type": "content", "content": {"type": "text", "text": str(text)}}:
                lines += _output_lines(text)
            case {"type": "terminal", "terminalId": terminal_id}:
                lines.append(Line(f"terminal {plain(terminal_id)}", "dim"))
            case _:
                lines.append(Line(_compact(part), "dim"))
    return lines


def _output_lines(text: str) -> list[Line]:
    lines = plain(text).splitlines()
    shown = [Line(f"| {line}", "dim") for line in lines[:_SHOWN_LINES]]
    hidden = len(lines) - _SHOWN_LINES
    return [*shown, Line(f"| and {hidden} more lines", "dim")] if hidden > 0 else shown


def _diff_lines(part: Mapping[str, Any], new: str, cwd: str) -> list[Line]:
    path = plain(part.get("path", "")).removeprefix(f"{cwd}/")
    old = part.get("oldText")
    before, after = plain(old or "").splitlines(), plain(new).splitlines()
    origin = "/dev/null" if old is None else f"a/{path}"
    unified = difflib.unified_diff(before, after, origin, f"b/{path}", lineterm="", n=2)
    return [Line(line, _diff_style(line)) for line in unified]


def _diff_style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "strong"
    return {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "")


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


def _table(value: object) -> Mapping[str, Any]:
    """Return an object, or an empty one: an agent may have sent any JSON."""
    return value if isinstance(value, Mapping) else {}


def _compact(value: Any) -> str:
    return plain(json.dumps(value, ensure_ascii=False, default=str))


def _message_line(message: Mapping[str, Any]) -> str:
    texts = (_block_text(block) for block in message["content"])
    return f"{message['kind']:8} {' '.join(''.join(texts).split())}"


def _block_text(block: object) -> str:
    """Return the text of a block, a placeholder for other content."""
    match block:
        case {"type": "text", **rest}:
            return plain(rest.get("text", ""))
        case {"type": kind}:
            return f"[{plain(kind)}]"
        case _:
            return "[unreadable]"


def _call_line(call: Mapping[str, Any], marks: Marks) -> str:
    status = call["status"]
    return f"{marks.of(status)} {call['kind'] or 'other'!s:8} {call['title']} ({status})"


def _permission_lines(state: Mapping[str, Any]) -> Iterator[str]:
    for pending in state["pendingPermissionRequests"]:
        yield f"{pending['requestId']} pending"
    for resolved in state["resolvedPermissionRequests"]:
        outcome = _table(resolved.get("outcome"))
        chosen = outcome.get("optionId") or outcome.get("outcome")
        yield f"{resolved['requestId']} {resolved['status']}" + (f": {chosen}" if chosen else "")


def _usage(usage: Mapping[str, Any]) -> str:
    words = f"{_number(usage.get('used'))} of {_number(usage.get('size'))} tokens"
    cost = _table(usage.get("cost"))
    return f"{words}, {cost.get('amount')} {cost.get('currency')}" if cost else words


def _stopped(state: Mapping[str, Any]) -> str:
    words = f"{state['lastStopReason']}{_turn_usage(state['lastTurnUsage'])}"
    error = _table(state["lastPromptError"])
    return f"error {error.get('code')}: {error.get('message')}" if error else words


def _turn_usage(value: object) -> str:
    usage = _table(value)
    if not usage:
        return ""
    used, written = _number(usage.get("inputTokens")), _number(usage.get("outputTokens"))
    return f", {used} tokens in, {written} out"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


# One function per type of event that has a summary.

_Describe = Callable[[Mapping[str, Any], SessionState, Marks], str]


def _describe_config(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    modes = payload.get("modes")
    if not isinstance(modes, Mapping):
        return ""
    current = modes.get("currentModeId")
    names = [str(mode.get("id")) for mode in _tables(modes.get("availableModes"))]
    return "modes " + ", ".join(f"[{name}]" if name == current else name for name in names)


def _describe_call(payload: Mapping[str, Any], _state: SessionState, marks: Marks) -> str:
    status = payload.get("status")
    words = f"{marks.of(status)} {payload.get('kind', 'other')}: {payload.get('title')}"
    return words if status in (None, "in_progress") else f"{words} ({status})"


def _describe_call_update(payload: Mapping[str, Any], state: SessionState, marks: Marks) -> str:
    call = state.tool_calls.get(str(payload.get("toolCallId")))
    if call is None:
        return f"{payload.get('toolCallId')} (not announced)"
    return f"{marks.of(call.status)} {call.status}: {call.title}"


def _describe_plan(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    entries = list(_tables(payload.get("entries")))
    done = sum(entry.get("status") == "completed" for entry in entries)
    return f"{done} of {len(entries)} done"


def _describe_request(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    call = payload.get("toolCall")
    title = call.get("title") if isinstance(call, Mapping) else None
    return f"{payload.get('requestId')}: {title or 'a tool call'}?"


def _describe_resolved(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    outcome = payload.get("outcome")
    chosen = outcome.get("optionId", outcome.get("outcome")) if isinstance(outcome, Mapping) else ""
    return f"{payload.get('requestId')}: {payload.get('status')} {chosen}".rstrip()


def _describe_finished(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    error = payload.get("error")
    if isinstance(error, Mapping):
        return f"error {error.get('code')}: {error.get('message')}"
    return f"{payload.get('stopReason')}{_turn_usage(payload.get('usage'))}"


def _describe_commands(payload: Mapping[str, Any], _state: SessionState, _marks: Marks) -> str:
    return ", ".join(f"/{each.get('name')}" for each in _tables(payload.get("availableCommands")))


_SUMMARIES: Final[Mapping[str, _Describe]] = {
    "session-config-init": _describe_config,
    "session-status-change": lambda payload, _state, _marks: str(payload.get("status")),
    "tool-call": _describe_call,
    "tool-call-update": _describe_call_update,
    "plan": _describe_plan,
    "permission-request-created": _describe_request,
    "permission-request-resolved": _describe_resolved,
    "prompt-finished": _describe_finished,
    "usage-update": lambda payload, _state, _marks: _usage(payload),
    "session-info-update": lambda payload, _state, _marks: str(payload.get("title", "")),
    "current-mode-update": lambda payload, _state, _marks: str(payload.get("currentModeId")),
    "available-commands-update": _describe_commands,
}


def choices(options: Sequence[Mapping[str, Any]]) -> str:
    """Return the options of a permission request as they are offered: `1 Allow  2 Reject`."""
    names = (plain(option.get("name", option.get("optionId"))) for option in options)
    return "  ".join(f"{number} {name}" for number, name in enumerate(names, 1))

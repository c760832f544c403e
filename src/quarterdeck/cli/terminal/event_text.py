"""Events and states in words for people. Pure: lines of styled text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from quarterdeck.protocol import (
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
    AnyEvent,
    ApprovalMismatchEvent,
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    ForegroundEvent,
    HostEvent,
    MessageUpdateEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PlanRemovedEvent,
    PlanUpdateEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionState,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    UsageUpdateEvent,
    UserMessageChunkEvent,
    any_event,
    to_json,
)
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.line_diff import unified_lines
from quarterdeck.views.block_words import block_words
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
            "cancelled": self.failed,
        }
        return marks.get(str(status), self.pending)


UNICODE_MARKS: Final = Marks("✓", "▸", "·", "✗", "─")
ASCII_MARKS: Final = Marks("x", ">", ".", "!", "-")


def chunk_text(event: Event) -> str | None:
    """Return the text of a message chunk, a placeholder for other content; None for all else."""
    if isinstance(event, UserMessageChunkEvent | AgentMessageChunkEvent | AgentThoughtChunkEvent):
        return _block_text(event.payload.get("content"))
    return None


def is_text_chunk(event: Event) -> bool:
    """Return whether a message chunk is text, which continues the line before it."""
    block: Any = event.payload.get("content")
    return isinstance(block, Mapping) and block.get("type") == "text"


def is_repetition(event: Event) -> bool:
    """Return whether the host added an update of a call, of what the agent sends elsewhere.

    A permission request is shown in full right after such an update.
    """
    ours = (event.extensions or {}).get("quarterdeck")
    return isinstance(event, ToolCallUpdateEvent) and isinstance(ours, Mapping) and "added" in ours


def summary(event: Event, state: SessionState, marks: Marks) -> str:
    """Summarise an event in a few words; `state` is the one after it."""
    return plain(_summary(any_event(event), state, marks)).replace("\n", " ")


def body(event: Event, marks: Marks, cwd: str) -> list[Line]:
    """Return what needs more than a few words: plans, outputs, diffs."""
    payload, known = event.payload, any_event(event)
    match known:
        case PlanEvent():
            return [_plan_line(entry, marks) for entry in _tables(payload.get("entries"))]
        case ToolCallEvent() | ToolCallUpdateEvent():
            return content_lines(payload, cwd)
        case ToolCallContentChunkEvent():
            return content_lines({"content": [payload.get("content")]}, cwd)
        case PlanUpdateEvent():
            return _plan_update_lines(payload, marks)
        case MessageUpdateEvent():
            blocks = payload.get("content")
            texts = map(_block_text, blocks if isinstance(blocks, list) else [])
            return [Line(line) for line in "".join(texts).splitlines()]
        case PermissionRequestCreatedEvent():
            call = payload.get("toolCall")
            return content_lines(call if isinstance(call, Mapping) else {}, cwd)
        case ApprovalMismatchEvent():
            return mismatch_lines(payload)
        case SessionEvent() | HostEvent() | UnknownEvent():
            return _no_lines(known)
        case _:
            assert_never(known)


def _no_lines(
    _event: UserMessageChunkEvent
    | AgentMessageChunkEvent
    | AgentThoughtChunkEvent
    | AvailableCommandsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | ConfigOptionsUpdateEvent
    | SessionInfoUpdateEvent
    | UsageUpdateEvent
    | PromptFinishedEvent
    | SessionStatusChangeEvent
    | SessionResetEvent
    | PermissionRequestResolvedEvent
    | TerminalOutputEvent
    | TerminalUpdateEvent
    | ForegroundEvent
    | PlanRemovedEvent
    | UnrecognizedUpdateEvent
    | HostEvent
    | UnknownEvent,
) -> list[Line]:
    """Return nothing: a few words are enough for such an event."""
    return []


def mismatch_lines(payload: Mapping[str, Any]) -> list[Line]:
    """Return what was shown and what the agent did instead, a line each."""
    lines: list[Line] = []
    for each in _tables(payload.get("differences")):
        for label in ("shown", "done"):
            texts = each.get(label)
            listed = texts if isinstance(texts, list) else []
            lines += [Line(f"{label}: {plain(str(text))}", "bad") for text in listed or ["nothing"]]
    return lines


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
        ("usage", [usage_words(usage)] if usage else []),
        ("stopped", [_stopped(facts)] if state.last_stop_reason else []),
    ]
    return [(title, [plain(line) for line in lines]) for title, lines in rows if lines]


def _plan_line(entry: Mapping[str, Any], marks: Marks) -> Line:
    status = entry.get("status")
    style = {"completed": "good", "in_progress": "strong"}.get(str(status), "")
    return Line(f"{marks.of(status)} {plain(entry.get('content', ''))}", style)


def _plan_update_lines(payload: Mapping[str, Any], marks: Marks) -> list[Line]:
    if payload.get("type") == "items":
        return [_plan_line(entry, marks) for entry in _tables(payload.get("entries"))]
    words = payload.get("content") or payload.get("uri") or ""
    return [Line(line) for line in plain(words).splitlines()]


def content_lines(call: Mapping[str, Any], cwd: str) -> list[Line]:
    """Return the content of a tool call as lines."""
    lines: list[Line] = []
    content = call.get("content")
    for part in _tables(shown_content(content) if isinstance(content, list | tuple) else ()):
        match part:
            case {"type": "diff", "newText": str(new)}:
                lines += _diff_lines(part, new, cwd)
            case {"type": "content", "content": block}:
                lines += text_lines(block_words(block), mark="| ")
            case {"type": "terminal", "terminalId": terminal_id}:
                lines.append(Line(f"terminal {plain(terminal_id)}", "dim"))
            case _:
                lines.append(Line(_compact(part), "dim"))
    return lines


def text_lines(text: str, mark: str = "") -> list[Line]:
    """Return the first lines of a text, each after a mark; the others are counted."""
    lines = plain(text).splitlines()
    shown = [Line(f"{mark}{line}", "dim") for line in lines[:_SHOWN_LINES]]
    hidden = len(lines) - _SHOWN_LINES
    if hidden <= 0:
        return shown
    return [*shown, Line(f"{mark}and {hidden} more {'line' if hidden == 1 else 'lines'}", "dim")]


def _diff_lines(part: Mapping[str, Any], new: str, cwd: str) -> list[Line]:
    path = plain(part.get("path", "")).removeprefix(f"{cwd}/")
    old = part.get("oldText")
    before = old if isinstance(old, str) else None
    unified = unified_lines(f"b/{path}", before, new, 2, origin=f"a/{path}")
    return [Line(shown, _diff_style(shown)) for shown in map(plain, unified)]


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
    """Return a block as text: of what is not text, what it is."""
    return plain(block_words(block))


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


def usage_words(usage: Mapping[str, Any]) -> str:
    """Return how full the context is, and what the session cost so far."""
    words = f"{_number(usage.get('used'))} of {_number(usage.get('size'))} tokens"
    cost = _table(usage.get("cost"))
    return f"{words}, {cost_words(cost)}" if cost else words


def cost_words(cost: Mapping[str, Any]) -> str:
    """Return an amount of money without what is left of adding floats."""
    amount = cost.get("amount")
    if isinstance(amount, float) and isfinite(amount):
        amount = f"{amount:.6f}".rstrip("0").rstrip(".")
    return f"{amount} {cost.get('currency')}"


def _stopped(state: Mapping[str, Any]) -> str:
    words = _with_usage(state["lastStopReason"], state["lastTurnUsage"])
    error = _table(state["lastPromptError"])
    return f"error {error.get('code')}: {error.get('message')}" if error else words


def turn_usage(value: object) -> str:
    """Return the tokens of a turn; empty if they are not known."""
    usage = _table(value)
    if "inputTokens" not in usage and "totalTokens" in usage:
        return f"{_number(usage['totalTokens'])} tokens"
    if not usage:
        return ""
    used, written = _number(usage.get("inputTokens")), _number(usage.get("outputTokens"))
    return f"{used} tokens in, {written} out"


def _with_usage(words: object, usage: object) -> str:
    return ", ".join(filter(None, (str(words), turn_usage(usage))))


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- summaries, one function per type of event that has one ------------------------------------

_SettingsEvent: TypeAlias = (
    AvailableCommandsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | SessionInfoUpdateEvent
    | SessionStatusChangeEvent
    | UsageUpdateEvent
)
_OtherEvent: TypeAlias = (
    UserMessageChunkEvent
    | AgentMessageChunkEvent
    | AgentThoughtChunkEvent
    | ConfigOptionsUpdateEvent
    | SessionResetEvent
    | ApprovalMismatchEvent
    | TerminalOutputEvent
    | UnrecognizedUpdateEvent
)
_WorkEvent: TypeAlias = (
    ForegroundEvent | MessageUpdateEvent | PlanRemovedEvent | PlanUpdateEvent | TerminalUpdateEvent
)


def _summary(event: AnyEvent, state: SessionState, marks: Marks) -> str:
    payload: Any = event.payload
    match event:
        case ToolCallEvent():
            return _describe_call(event, marks)
        case ToolCallUpdateEvent() | ToolCallContentChunkEvent():
            return _describe_call_update(payload, state, marks)
        case PlanEvent():
            return _describe_plan(payload)
        case PermissionRequestCreatedEvent():
            return _describe_request(payload)
        case PermissionRequestResolvedEvent():
            return _describe_resolved(payload)
        case PromptFinishedEvent():
            return _describe_finished(payload)
        case SessionEvent():
            return _describe_other(event)
        case HostEvent() | UnknownEvent():
            return _compact(payload)
        case _:
            assert_never(event)


def _describe_other(event: _SettingsEvent | _OtherEvent | _WorkEvent) -> str:
    payload: Any = event.payload
    match event:
        case (
            ForegroundEvent()
            | MessageUpdateEvent()
            | PlanRemovedEvent()
            | PlanUpdateEvent()
            | TerminalUpdateEvent()
        ):
            return _describe_work(event)
        case AvailableCommandsUpdateEvent():
            names = (each.get("name") for each in _tables(payload.get("availableCommands")))
            return ", ".join(f"/{name}" for name in names)
        case CurrentModeUpdateEvent() | SessionStatusChangeEvent():
            return str(payload.get("currentModeId", payload.get("status")))
        case SessionConfigInitEvent():
            return _describe_config(payload)
        case SessionInfoUpdateEvent():
            return str(payload.get("title", ""))
        case ApprovalMismatchEvent():
            return f"{payload.get('requestId')}: the agent did something other than what was shown"
        case UsageUpdateEvent():
            return usage_words(payload)
        case (
            UserMessageChunkEvent()
            | AgentMessageChunkEvent()
            | AgentThoughtChunkEvent()
            | ConfigOptionsUpdateEvent()
            | SessionResetEvent()
            | TerminalOutputEvent()
            | UnrecognizedUpdateEvent()
        ):
            return _compact(payload)
        case _:
            assert_never(event)


def _describe_work(event: _WorkEvent) -> str:
    payload: Any = event.payload
    match event:
        case ForegroundEvent():
            background = payload.get("background")
            count = len(background) if isinstance(background, list) else 0
            return f"{payload.get('state')}" + (f", {count} in the background" if count else "")
        case PlanUpdateEvent() if payload.get("type") == "items":
            return _describe_plan(payload)
        case PlanUpdateEvent() | PlanRemovedEvent():
            return str(payload.get("planId"))
        case MessageUpdateEvent() | TerminalUpdateEvent():
            return _compact(payload)
        case _:
            assert_never(event)


def _describe_config(payload: Mapping[str, Any]) -> str:
    modes = payload.get("modes")
    if not isinstance(modes, Mapping):
        return ""
    current = modes.get("currentModeId")
    names = [str(mode.get("id")) for mode in _tables(modes.get("availableModes"))]
    return "modes " + ", ".join(f"[{name}]" if name == current else name for name in names)


def _describe_call(event: ToolCallEvent, marks: Marks) -> str:
    payload: Any = event.payload
    status, name = payload.get("status"), (event.extensions or {}).get("name")
    words = f"{marks.of(status)} {payload.get('kind') or 'other'}: {payload.get('title')}"
    if isinstance(name, str) and name and name not in words:
        words += f" [{name}]"
    return words if status in (None, "in_progress") else f"{words} ({status})"


def _describe_call_update(payload: Mapping[str, Any], state: SessionState, marks: Marks) -> str:
    call = state.tool_calls.get(str(payload.get("toolCallId")))
    if call is None:
        return f"{payload.get('toolCallId')} (not announced)"
    return f"{marks.of(call.status)} {call.status}: {call.title}"


def _describe_plan(payload: Mapping[str, Any]) -> str:
    entries = list(_tables(payload.get("entries")))
    done = sum(entry.get("status") == "completed" for entry in entries)
    return f"{done} of {len(entries)} done"


def _describe_request(payload: Mapping[str, Any]) -> str:
    call = payload.get("toolCall")
    title = call.get("title") if isinstance(call, Mapping) else None
    return f"{payload.get('requestId')}: {title or 'a tool call'}?"


def _describe_resolved(payload: Mapping[str, Any]) -> str:
    outcome = payload.get("outcome")
    chosen = outcome.get("optionId", outcome.get("outcome")) if isinstance(outcome, Mapping) else ""
    return f"{payload.get('requestId')}: {payload.get('status')} {chosen}".rstrip()


def _describe_finished(payload: Mapping[str, Any]) -> str:
    error = payload.get("error")
    if isinstance(error, Mapping):
        return f"error {error.get('code')}: {error.get('message')}"
    return _with_usage(payload.get("stopReason"), payload.get("usage"))


def choices(options: Sequence[Mapping[str, Any]]) -> str:
    """Return the options of a permission request as they are offered: `1 Allow  2 Reject`."""
    names = (plain(option.get("name", option.get("optionId"))) for option in options)
    return "  ".join(f"{number} {name}" for number, name in enumerate(names, 1))

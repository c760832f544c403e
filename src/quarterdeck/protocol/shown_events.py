"""Events of tool calls as views show them: with the output that agents send beside `content`. Pure.

The log has what an agent sent, and `reduce` is documented to the letter. Agents send the output of
a command in five ways that neither has a place for:

    where                                     agents             shown as
    `_meta.terminal_output_delta`,            codex, pi, claude  output of a terminal of the call;
    `_meta.terminal_output`: `data` to add                       the terminal is added to the
    `_meta.terminal_exit`                                        content if the call has none
    `rawOutput` of a call without content     cline, copilot     text content, when the call ends
    `rawOutput` of a command whose content    codex-zed          text content after it, when the
    is from before its end                                       call ends without content

and `reduce` replaces the extensions of a call with those of each update, so the tool's `name` and
`_meta` of its announcement would be lost. `shown_events` returns an event with all of this in the
places where a view looks for it. Views that fold calls themselves use its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol.events import (
    Event,
    TerminalOutputEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
)
from quarterdeck.protocol.payloads import AcpEventExtensions
from quarterdeck.protocol.reduce import reduce
from quarterdeck.protocol.state import SessionState, ToolCallState
from quarterdeck.protocol.tool_calls import is_final_status, tool_call_key

_OUTPUTS: Final = ("terminal_output", "terminal_output_delta")
_PASSING: Final = frozenset({*_OUTPUTS, "terminal_exit"})
"""Keys of `_meta` that belong to one update and not to the call."""
_TEXTS: Final = (
    *("aggregated_output", "output", "stdout", "stderr", "text"),
    *("result", "content", "message", "error"),
)


def shown_events(state: SessionState, event: Event) -> Sequence[Event]:
    """Return the events that a view shows for one event; `state` is the one before it."""
    if not isinstance(event, ToolCallEvent | ToolCallUpdateEvent):
        return (event,)
    payload: Any = event.payload
    known = state.tool_calls.get(tool_call_key(payload))
    if known is None and isinstance(event, ToolCallUpdateEvent):
        return (event,)  # `reduce` ignores it
    outputs = tuple(terminal_payloads(event.extensions, tool_call_key(payload)))
    events = [_terminal_event(event, each) for each in outputs]
    before = known if isinstance(event, ToolCallUpdateEvent) else None
    content = _shown_content(before, payload, outputs)
    extensions = event.extensions
    if before is not None and extensions is not None and before.extensions is not UNSET:
        extensions = merged_extensions(before.extensions, extensions)
    if content is None and extensions is event.extensions:
        return (*events, event)
    shown = payload if content is None else {**payload, "content": content}
    return (*events, replace(event, payload=shown, extensions=extensions))


def reduce_shown(state: SessionState, event: Event) -> SessionState:
    """Return the state after an event as views show it."""
    for each in shown_events(state, event):
        state = reduce(state, each)
    return state


def terminal_payloads(
    extensions: Mapping[str, Any] | None, call_id: str
) -> Iterator[dict[str, Any]]:
    """Yield the output of terminals that an event of a tool call has in its `_meta`.

    Each is the payload of a `terminal-output` event; `call_id` names a terminal without an id.
    """
    meta = None if extensions is None else extensions.get("_meta")
    if not isinstance(meta, Mapping) or _PASSING.isdisjoint(meta):
        return
    for name in (*_OUTPUTS, "terminal_exit"):
        given = meta.get(name)
        if not isinstance(given, Mapping):
            continue
        terminal_id, data = given.get("terminal_id"), given.get("data")
        payload: dict[str, Any] = {
            "terminalId": terminal_id if isinstance(terminal_id, str) else call_id
        }
        if name == "terminal_exit":
            payload["exit"] = {"exitCode": given.get("exit_code"), "signal": given.get("signal")}
            yield payload
        elif isinstance(data, str) and data:
            payload["delta"] = data
            yield payload


def with_terminals(
    content: Sequence[Any], outputs: Sequence[Mapping[str, Any]]
) -> list[Any] | None:
    """Return content with the terminals of `outputs` that it lacks; None if it lacks none."""
    added: list[Any] = []
    for output in outputs:
        part = {"type": "terminal", "terminalId": output["terminalId"]}
        if not any(_is_same_terminal(each, part) for each in (*content, *added)):
            added.append(part)
    return [*content, *added] if added else None


def merged_extensions(before: AcpEventExtensions, newer: AcpEventExtensions) -> AcpEventExtensions:
    """Return the extensions of a call after an update, by key, and those of `_meta` likewise."""
    old_meta, new_meta = before.get("_meta"), newer.get("_meta")
    merged = {key: value for key, value in before.items() if key != "quarterdeck"} | dict(newer)
    if isinstance(old_meta, Mapping):
        lasting = {key: value for key, value in old_meta.items() if key not in _PASSING}
        merged["_meta"] = {**lasting, **(new_meta if isinstance(new_meta, Mapping) else {})}
    return merged


def raw_output_text(raw: Any) -> str:
    """Return the raw output of a tool as text for people: its text, or else its JSON."""
    if raw in (None, "", [], {}):
        return ""
    return _text_in(raw) or encode_json(raw).decode()


def _text_in(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, Sequence):
        return "\n".join(text for each in raw if (text := _text_in(each)))
    if not isinstance(raw, Mapping):
        return ""
    found = [(name, text) for name in _TEXTS if (text := _text_in(raw.get(name)))]
    if not found:
        return ""
    name, text = found[0]
    more = _text_in(raw.get("stderr")) if name == "stdout" else ""
    return f"{text.rstrip()}\n{more}" if more else text


def _shown_content(
    before: ToolCallState | None, payload: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]
) -> list[Any] | None:
    """Return the content that the call shows after an event; None if it is what the log has."""
    sent = payload.get("content")
    known: list[Any] = list(sent) if isinstance(sent, list) else []
    if sent is None and before is not None:
        known = list(before.content)
    shown = with_terminals(known, outputs)
    if shown is not None or not is_final_status(payload.get("status")):
        return shown
    kind = payload.get("kind", None if before is None else before.kind)
    if known and (isinstance(sent, list) or not is_before_output(kind, known)):
        return None
    raw = payload.get("rawOutput")
    if raw is None and before is not None and before.raw_output is not UNSET:
        raw = before.raw_output
    text = raw_output_text(raw)
    if not text or has_lines("\n".join(map(_text_in, known)), text):
        return None
    return [*known, {"type": "content", "content": {"type": "text", "text": text}}]


def is_before_output(kind: Any, content: Sequence[Any]) -> bool:
    """Return whether the content of a call can be from before its output: text of a command.

    Agents put the question of a permission request there.
    """
    return kind == "execute" and all(
        isinstance(each, Mapping) and each.get("type") == "content" for each in content
    )


def has_lines(text: str, lines: str) -> bool:
    """Return whether a text has each of the lines."""
    return all(line.strip() in text for line in lines.splitlines())


def _terminal_event(event: ToolCallEvent | ToolCallUpdateEvent, payload: Any) -> Event:
    return TerminalOutputEvent(
        session_id=event.session_id, seq=event.seq, ts=event.ts, payload=payload
    )


def _is_same_terminal(part: Any, other: Mapping[str, Any]) -> bool:
    return isinstance(part, Mapping) and all(part.get(key) == other[key] for key in other)

"""A session's log as lines for a terminal, in one of the views. Pure.

One line per event: its number, its time (UTC), its type and a summary; below it, indented, what
needs more room: diffs, outputs, plans, forms. Pieces of a text are not shown one by one. Nothing
that an agent wrote reaches the terminal as anything but visible text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from quarterdeck.protocol import Event, SessionSnapshotWire
from quarterdeck.views.block_words import block_words
from quarterdeck.views.context import ContextEvent, ContextProjector
from quarterdeck.views.packets import Packet, PacketProjector, packet_type
from quarterdeck.views.text import plain

ViewName: TypeAlias = Literal["context", "packets", "events"]
VIEWS: Final[tuple[ViewName, ...]] = ("context", "packets", "events")
WIDTH: Final = 100
MAX_BODY_LINES: Final = 20  # of one row; the rest is counted
_INDENT: Final = " " * 8
_TYPE_WIDTH: Final = 27  # of `session:status_changed` and `permission-request-resolved`
_PIECES: Final = frozenset({"message:delta", "thinking:delta", "tool:args_delta"})
# Invisible or direction-changing characters could show another command than the one that runs.
_INVISIBLE: Final = re.compile(r"[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
Json: TypeAlias = Mapping[str, Any]


class LogRow(NamedTuple):
    """One printed event, context event or packet."""

    seq: int | None
    time: str
    type: str
    text: str
    body: tuple[str, ...] = ()


def show_lines(
    session: SessionSnapshotWire | Mapping[str, Any] | str,
    events: Iterable[Event],
    view: ViewName,
    width: int = WIDTH,
) -> Iterator[str]:
    """Return the lines of a log, from its first event, in one of the views."""
    for row in _rows(session, events, view):
        yield from row_lines(row, width)


def _rows(session: Any, events: Iterable[Event], view: ViewName) -> Iterator[LogRow]:
    match view:
        case "context":
            projector = ContextProjector(session)
            return context_rows(each for event in events for each in projector.feed(event))
        case "packets":
            return packet_rows(_packets(session, events))
        case "events":
            return event_rows(events)
        case _:
            assert_never(view)


def row_lines(row: LogRow, width: int = WIDTH) -> Iterator[str]:
    """Return the lines of a row, none of them wider than `width` characters."""
    number = "" if row.seq is None else str(row.seq)
    head = f"{number:>6}  {row.time}  {masked(row.type):<{_TYPE_WIDTH}}"
    yield _cut(f"{head}  {_one_line(row.text)}".rstrip(), width)
    lines = [line for text in row.body for line in masked(text).rstrip("\n").split("\n")]
    for line in lines[:MAX_BODY_LINES]:
        yield _cut(f"{_INDENT}{line}".rstrip(), width)
    hidden = len(lines) - MAX_BODY_LINES
    if hidden > 0:
        yield _cut(f"{_INDENT}and {hidden} more {'line' if hidden == 1 else 'lines'}", width)


def masked(text: object) -> str:
    """Return text with control, invisible and direction-changing characters masked."""
    return _SURROGATE.sub("\ufffd", _INVISIBLE.sub("\ufffd", plain(text)))


def _one_line(text: str) -> str:
    return " ".join(masked(text).split())


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 3, 0)]}..."


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# ---- events of the log -------------------------------------------------------------------------


def event_rows(events: Iterable[Event]) -> Iterator[LogRow]:
    """Return the events of a log as they are."""
    for event in events:
        words = _compact(event.payload)
        if event.extensions:
            words += f" {_compact(event.extensions)}"
        yield LogRow(event.seq, _clock(event.ts), event.type, words)


def _clock(ts: float) -> str:
    try:
        return datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "--:--:--"


# ---- packets -----------------------------------------------------------------------------------


def _packets(session: Any, events: Iterable[Event]) -> Iterator[tuple[Event, Packet]]:
    is_table = isinstance(session, Mapping)
    projector = PacketProjector(str(session.get("sessionId")) if is_table else session)
    for event in events:
        for packet in projector.feed(event):
            yield event, packet


def packet_rows(packets: Iterable[tuple[Event, Packet]]) -> Iterator[LogRow]:
    """Return packets with the events they come from; consecutive chunks are one row."""
    held: LogRow | None = None
    for event, packet in packets:
        kind = packet_type(packet) or "unknown"
        row = LogRow(event.seq, _clock(event.ts), kind, *_packet_text(kind, packet))
        if held is not None and kind.endswith("_chunk") and kind == held.type:
            held = held._replace(text=held.text + row.text)
            continue
        if held is not None:
            yield held
        held = row
    if held is not None:
        yield held


def _packet_text(kind: str, packet: Json) -> tuple[str, tuple[str, ...]]:
    content = packet.get("content")
    if kind in ("tool_call_start", "tool_call_progress"):
        words = f"{packet.get('status')} {packet.get('kind')}: {packet.get('title')}"
        return words, tuple(_item(each) for each in content or () if isinstance(each, Mapping))
    if kind == "agent_plan_update":
        entries = packet.get("entries") or ()
        return "", tuple(f"{each.get('status')}: {each.get('content')}" for each in entries)
    if isinstance(content, Mapping):
        return _block(content), ()
    hidden = ("type", "sessionUpdate", "timestamp", "_meta")
    return _compact({key: value for key, value in packet.items() if key not in hidden}), ()


def _item(item: Json) -> str:
    if item.get("type") == "diff":
        before, after = str(item.get("oldText") or ""), str(item.get("newText") or "")
        verb = "edits" if before else "writes"
        size = len(after.splitlines())
        return f"{verb} {item.get('path')} ({size} lines)"
    block = item.get("content")
    return _block(block) if isinstance(block, Mapping) else _compact(item)


# ---- context events ----------------------------------------------------------------------------


def context_rows(events: Iterable[ContextEvent]) -> Iterator[LogRow]:
    """Return context events; text that arrives in pieces is one row when it is complete."""
    for event in events:
        if event.type in _PIECES:
            continue
        fields = msgspec.to_builtins(event)
        words, body = _TEXTS.get(event.type, _json_text)(fields)
        kind = f"{event.type} (replay)" if event.replay else event.type
        yield LogRow(event.seq, event.timestamp[11:19], kind, words, body)


_RowText: TypeAlias = tuple[str, tuple[str, ...]]


def _json_text(event: Json) -> _RowText:
    hidden = ("type", "seq", "sessionId", "timestamp", "replay")
    return _compact({key: value for key, value in event.items() if key not in hidden}), ()


def _message_text(event: Json) -> _RowText:
    return f"{event['role']}: {''.join(map(_block, event['content']))}", ()


def _block(block: Json) -> str:
    return str(block.get("text") or block_words(block))


def _permission_text(event: Json) -> _RowText:
    words = f"{event['requestId']}: {event['description']}? ({event['riskLevel']})"
    preview = event.get("preview") or {}
    shown = preview.get("diff") or preview.get("command") or preview.get("text")
    return words, (str(shown),) if shown else ()


def _resolution_text(event: Json) -> _RowText:
    verb = "approved" if event["approved"] else "not approved"
    reason = f": {event['reason']}" if "reason" in event else ""
    return f"{event['requestId']} {verb} by {event['resolvedBy']}{reason}", ()


def _error_text(event: Json) -> _RowText:
    error = event["error"]
    name = f"{event['name']}: " if "name" in event else ""
    return f"{name}{error['code']}: {error['message']}", ()


def _change_text(event: Json) -> _RowText:
    diff = event.get("diff")
    return f"{event['changeType']} {event['path']}", (diff,) if diff else ()


def _batch_text(event: Json) -> _RowText:
    lines = tuple(f"{each['changeType']} {each['path']}" for each in event["changes"])
    return f"{len(lines)} files", lines


def _elicitation_text(event: Json) -> _RowText:
    options = event.get("options") or ()
    return f"{event['questionId']}: {event['question']}", tuple(f"- {each}" for each in options)


def _todo_text(event: Json) -> _RowText:
    lines = tuple(f"{each['status']}: {each['content']}" for each in event["todos"])
    return f"{len(lines)} todos", lines


_TEXTS: Final[Mapping[str, Callable[[Json], _RowText]]] = {
    "session:started": lambda event: (f"{event['agent']} in {event['projectPath']}", ()),
    "session:status_changed": lambda event: (
        f"{event['from']} -> {event['to']}: {event.get('reason', '')}",
        (),
    ),
    "session:error": _error_text,
    "message:start": lambda event: (event["role"], ()),
    "message:complete": _message_text,
    "thinking:complete": lambda event: (event["content"], ()),
    "tool:start": lambda event: (event.get("description") or event["name"], ()),
    "tool:executing": lambda event: (
        f"{event['name']} ({event['riskLevel']}) {_compact(event['input'])}",
        (),
    ),
    "tool:result": lambda event: (
        f"{event['name']}, {event['duration']:.0f} ms",
        (event["output"],) if event["output"] else (),
    ),
    "tool:error": _error_text,
    "approval:requested": _permission_text,
    "approval:resolved": _resolution_text,
    "file:change": _change_text,
    "file:batch": _batch_text,
    "interaction:question": _elicitation_text,
    "interaction:notification": lambda event: (
        f"{event['level']}: {event['title']}: {event['message']}",
        (),
    ),
    "progress:todo_update": _todo_text,
}

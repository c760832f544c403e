"""Builders: packets with exactly the keys, nulls and empty values that their readers expect.

What an agent sent is completed, not copied: nested objects that are complete already are shared
with the caller, so neither side may change them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from quarterdeck.views.packets.tools import as_text, plan_priority, todo_status
from quarterdeck.views.packets.types import Json, Packet

_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000
_PADDING: Final[Mapping[str, Json]] = {
    "image": {"uri": None},
    "resource_link": {"title": None, "description": None, "mimeType": None, "size": None},
}


class ToolSnapshot(Struct, frozen=True, kw_only=True):
    """All that is known of a tool call."""

    tool_call_id: str
    title: str
    kind: str = "other"
    status: str = "pending"
    raw_input: Any = None
    raw_output: Any = None
    content: list[Json] | None = None
    locations: list[Json] | None = None
    meta: Json | None = None


def iso_time(milliseconds: float) -> str:
    """Return an event's time as ISO 8601 in UTC; times outside its years are clamped."""
    within = min(max(milliseconds, _FIRST), _LAST)
    seconds, microseconds = divmod(round(within * 1000), 1_000_000)
    return f"{_second(seconds)}.{microseconds:06}+00:00"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def text_block(text: str) -> Json:
    return {"_meta": None, "annotations": None, "text": text, "type": "text"}


def whole_block(block: object) -> Json | None:
    """Return a content block with its optional keys; None if it is none."""
    if isinstance(block, str):
        return text_block(block)
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if kind == "text":
        if not isinstance(block.get("text"), str):
            return None
        return {"_meta": None, "annotations": None, **block}
    if not isinstance(kind, str):
        return None
    return {"_meta": None, "annotations": None, **_PADDING.get(kind, {}), **block}


def agent_message_chunk(block: str | Json, meta: Json | None = None) -> Packet:
    """Build a message chunk; `block` is a text or a whole content block."""
    return _chunk("agent_message_chunk", block, meta)


def agent_thought_chunk(block: str | Json, meta: Json | None = None) -> Packet:
    """Build a thought chunk."""
    return _chunk("agent_thought_chunk", block, meta)


def _chunk(name: str, block: str | Json, meta: Json | None) -> Packet:
    content = text_block(block) if isinstance(block, str) else block
    return {"_meta": meta, "content": content, "sessionUpdate": name, "type": name}


def tool_call_start(call: ToolSnapshot) -> Packet:
    """Build the start of a tool call: without results, and without a `type`."""
    return {
        "_meta": call.meta,
        "content": (call.content or None) if call.status == "pending" else None,
        "kind": call.kind,
        "locations": [] if call.locations is None else call.locations,
        "rawInput": {} if call.raw_input is None else call.raw_input,
        "rawOutput": None,
        "status": "pending",
        "title": call.title,
        "toolCallId": call.tool_call_id,
        "sessionUpdate": "tool_call",
    }


def tool_call_progress(call: ToolSnapshot, timestamp: str) -> Packet:
    """Build the state of a tool call: everything known, not only what changed."""
    return {
        "_meta": call.meta,
        "content": call.content,
        "kind": call.kind,
        "locations": call.locations,
        "rawInput": {} if call.raw_input is None else call.raw_input,
        "rawOutput": call.raw_output,
        "status": call.status,
        "title": call.title,
        "toolCallId": call.tool_call_id,
        "sessionUpdate": "tool_call_update",
        "type": "tool_call_progress",
        "timestamp": timestamp,
    }


def agent_plan_update(entries: object, timestamp: str, meta: Json | None = None) -> Packet:
    """Build the plan; entries that are none are left out."""
    return {
        "_meta": meta,
        "entries": [_entry(entry) for entry in _objects(entries)],
        "sessionUpdate": "plan",
        "type": "agent_plan_update",
        "timestamp": timestamp,
    }


def _entry(entry: Mapping[str, Any]) -> Json:
    return {
        "_meta": _meta(entry),
        "content": as_text(entry.get("content")),
        "priority": plan_priority(entry.get("priority")),
        "status": todo_status(entry.get("status")),
    }


def current_mode_update(mode_id: str, meta: Json | None = None) -> Packet:
    return {
        "_meta": meta,
        "currentModeId": mode_id,
        "sessionUpdate": "current_mode_update",
        "type": "current_mode_update",
    }


def prompt_response(stop_reason: str) -> Packet:
    """Build the end of a turn; its `_meta` is empty, not null."""
    return {"_meta": {}, "stopReason": stop_reason, "type": "prompt_response"}


def error(message: str, code: str | None = None) -> Packet:
    """Build the end of a turn that failed."""
    packet = {"type": "error", "message": message}
    return packet if code is None else {**packet, "code": code}


def artifact_created(artifact: Mapping[str, Any]) -> Packet:
    return {"type": "artifact_created", "artifact": dict(artifact)}


def approval_requested(approval_id: str, session_id: str, timestamp: str) -> Packet:
    return {
        "type": "approval_requested",
        "timestamp": timestamp,
        "approval_id": approval_id,
        "session_id": session_id,
    }


def subagent_started(subagent_session_id: str, parent_session_id: str, timestamp: str) -> Packet:
    return {
        "type": "subagent_started",
        "timestamp": timestamp,
        "subagent_session_id": subagent_session_id,
        "parent_session_id": parent_session_id,
    }


def context_usage(used_tokens: int, cost: float | None, timestamp: str) -> Packet:
    return {
        "type": "context_usage",
        "timestamp": timestamp,
        "used_tokens": used_tokens,
        "cost": cost,
    }


def compaction(summary: str | None, timestamp: str) -> Packet:
    return {"type": "compaction", "timestamp": timestamp, "summary": summary}


def whole_item(item: Mapping[str, Any]) -> Json | None:
    """Return a content item of a tool call with its optional keys; None if packets have no such.

    A new file has no old text in ACP, and an empty one here.
    """
    meta = _meta(item)
    if item.get("type") == "content":
        block = whole_block(item.get("content"))
        return None if block is None else {"_meta": meta, "content": block, "type": "content"}
    if item.get("type") != "diff":
        return None
    return {
        "_meta": meta,
        "newText": as_text(item.get("newText")),
        "oldText": as_text(item.get("oldText")),
        "path": as_text(item.get("path")),
        "type": "diff",
    }


def text_item(text: str) -> Json:
    return {"_meta": None, "content": text_block(text), "type": "content"}


def whole_locations(locations: object) -> list[Json]:
    return [
        {
            "_meta": _meta(location),
            "line": _line(location.get("line")),
            "path": location["path"],
        }
        for location in _objects(locations)
        if isinstance(location.get("path"), str)
    ]


def _line(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _objects(values: object) -> Iterable[Mapping[str, Any]]:
    listed = values if isinstance(values, list) else ()
    return (each for each in listed if isinstance(each, Mapping))


def _meta(value: Mapping[str, Any]) -> Json | None:
    meta = value.get("_meta")
    return meta if isinstance(meta, dict) else None

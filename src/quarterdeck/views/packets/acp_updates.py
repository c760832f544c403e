"""Packets back to ACP: the `update` of a `session/update`, and the end of a prompt.

What packets do not carry (message ids, tool kinds beyond five) is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from quarterdeck.views.packets.detection import is_todo_write_tool, packet_type
from quarterdeck.views.packets.tools import (
    as_code,
    as_count,
    as_number,
    as_object,
    as_text,
    todos_of,
)
from quarterdeck.views.packets.types import Json, Packet

INTERNAL_ERROR: Final = -32603
_CAMEL: Final[Mapping[str, str]] = {
    "raw_input": "rawInput",
    "raw_output": "rawOutput",
    "tool_call_id": "toolCallId",
    "session_update": "sessionUpdate",
    "current_mode_id": "currentModeId",
    "field_meta": "_meta",
}
_NOT_ACP: Final = frozenset({"type", "timestamp", "tool_name", "toolName"})
_NAMES: Final[Mapping[str, str]] = {
    "agent_message_chunk": "agent_message_chunk",
    "agent_message": "agent_message_chunk",
    "agent_thought_chunk": "agent_thought_chunk",
    "agent_thought": "agent_thought_chunk",
    "user_message": "user_message_chunk",
    "tool_call_start": "tool_call",
    "tool_call_progress": "tool_call_update",
    "agent_plan_update": "plan",
    "current_mode_update": "current_mode_update",
}


class PromptResult(Struct, frozen=True):
    """The answer to `session/prompt`."""

    stop_reason: str


class PromptFailure(Struct, frozen=True):
    """The JSON-RPC error that answers `session/prompt`."""

    message: str
    code: int = INTERNAL_ERROR
    data: Any = None


PromptEnd: TypeAlias = PromptResult | PromptFailure


def prompt_end(packet: Packet) -> PromptEnd | None:
    """Return how a packet ends the prompt; None if it does not."""
    match packet_type(packet):
        case "prompt_response":
            reason = as_text(packet.get("stopReason", packet.get("stop_reason")))
            is_acp = reason not in ("", "stop_sequence")
            return PromptResult(reason if is_acp else "end_turn")
        case "error":
            code = as_code(packet.get("code"))
            message = as_text(packet.get("message")) or "the agent failed and did not say why"
            return PromptFailure(message, data={"code": code} if code else None)
        case _:
            return None


class SessionUpdates:
    """Packets of one stream to updates.

    A list of todos is a plan too, as long as the stream has no plans of its own. The size of the
    context is not in packets: give `context_size` to get usage updates.
    """

    def __init__(self, *, context_size: int | None = None) -> None:
        self._context_size = context_size
        self._has_plans = False

    def feed(self, packet: Packet) -> list[Json]:
        """Return the updates that a packet represents."""
        kind = packet_type(packet)
        if kind == "artifact_created":
            return [_artifact(packet)]
        if kind == "context_usage":
            return self._usage(packet)
        name = _NAMES.get(kind)
        if name is None:
            return []
        self._has_plans = self._has_plans or name == "plan"
        update = _update(name, packet)
        if kind == "tool_call_progress" and not self._has_plans and is_todo_write_tool(packet):
            return [update, _plan(update)]
        return [update]

    def _usage(self, packet: Packet) -> list[Json]:
        used = as_count(packet.get("used_tokens", packet.get("usedTokens")))
        cost = as_number(packet.get("cost"))
        if self._context_size is None or used is None:
            return []
        update = {"sessionUpdate": "usage_update", "used": used, "size": self._context_size}
        if cost is not None:
            return [{**update, "cost": {"amount": cost, "currency": "USD"}}]
        return [update]


def _update(name: str, packet: Packet) -> Json:
    named = {_CAMEL.get(key, key): value for key, value in packet.items() if key not in _NOT_ACP}
    update = {key: value for key, value in named.items() if value is not None}
    update["sessionUpdate"] = name
    meta = update.get("_meta")
    if isinstance(meta, dict) and isinstance(meta.get("messageId"), str):
        update["messageId"] = meta["messageId"]
        update["_meta"] = {key: value for key, value in meta.items() if key != "messageId"}
    if update.get("_meta") == {}:
        del update["_meta"]
    for key, restore in _NESTED.items():
        if isinstance(update.get(key), list):
            update[key] = [restore(as_object(each)) for each in update[key]]
        elif isinstance(update.get(key), dict) and key == "content":
            update[key] = _without_nulls(update[key])
    if update.get("status") == "cancelled":  # ACP has no such end
        update["status"] = "failed"
    return update


def _without_nulls(fields: Mapping[str, Any]) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _item(item: Mapping[str, Any]) -> Json:
    """Restore a content item of a tool call; a file without an old text is a new one."""
    restored = _without_nulls(item)
    if isinstance(item.get("content"), dict):
        restored["content"] = _without_nulls(item["content"])
    if restored.get("oldText") == "":
        restored["oldText"] = None
    return restored


_NESTED: Final[Mapping[str, Callable[[Mapping[str, Any]], Json]]] = {
    "content": _item,
    "locations": _without_nulls,
    "entries": _without_nulls,
}


def _plan(update: Json) -> Json:
    entries = [
        {
            "content": todo.content,
            "status": todo.status,
            "priority": "medium",
            "_meta": {"activeForm": todo.active_form},
        }
        for todo in todos_of(as_object(update.get("rawInput")))
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _artifact(packet: Packet) -> Json:
    artifact = as_object(packet.get("artifact"))
    uri = as_text(artifact.get("path")) or as_text(artifact.get("preview_url"))
    link = {"type": "resource_link", "uri": uri, "name": as_text(artifact.get("name"))}
    return {
        "sessionUpdate": "agent_message_chunk",
        "content": link,
        "_meta": {"artifact": dict(artifact)},
    }

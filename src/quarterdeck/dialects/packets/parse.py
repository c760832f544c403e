"""`parse_packet`: what a page shows for a packet, whoever wrote it and in which spelling.

It reads camelCase and snake_case, live and stored packets, and the types that later versions
added. It never raises: what is not a packet is `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quarterdeck.dialects.packets import outputs, parsed
from quarterdeck.dialects.packets.detect import (
    BY_SESSION_UPDATE,
    UNKNOWN,
    PathMapper,
    packet_type,
)
from quarterdeck.dialects.packets.outputs import as_object, as_text
from quarterdeck.dialects.packets.parse_tools import parse_progress, parse_start
from quarterdeck.dialects.packets.parsed import ParsedPacket
from quarterdeck.dialects.packets.paths import workspace_path
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

_MORE_UPDATES: Final = ("agent_thought_chunk", "agent_message", "agent_thought")
_LATER: Final = {**BY_SESSION_UPDATE, **{name: name for name in _MORE_UPDATES}}
_Packet = Mapping[str, Any]


def parse_packet(packet: object, paths: PathMapper = workspace_path) -> ParsedPacket:
    """Return what a packet shows; `packet` is JSON's object, or its bytes.

    `paths` shortens the path of the file that a tool works on.
    """
    fields = _decoded(packet) if isinstance(packet, bytes | bytearray) else packet
    if not isinstance(fields, Mapping):
        return parsed.Unknown(raw=fields)
    kind = _any_type(fields)
    if kind == "tool_call_start":
        return parse_start(fields, paths)
    if kind == "tool_call_progress":
        return parse_progress(fields, paths)
    reader = _READERS.get(kind)
    return parsed.Unknown(raw=fields) if reader is None else reader(fields)


def _decoded(text: bytes | bytearray) -> object:
    try:
        return decode_json(bytes(text))
    except JsonInvalid:
        return None


def _any_type(packet: _Packet) -> str:
    kind = packet_type(packet)
    for key in ("sessionUpdate", "session_update"):
        update = packet.get(key)
        if kind == UNKNOWN and isinstance(update, str):
            kind = _LATER.get(update, UNKNOWN)
    return kind


def _first(packet: _Packet, *keys: str) -> Any:
    return next((packet[key] for key in keys if packet.get(key) is not None), None)


def _text(packet: _Packet) -> parsed.TextChunk:
    meta = as_object(packet.get("_meta"))
    return parsed.TextChunk(
        text=outputs.text_of(packet.get("content")),
        session_id=as_text(meta.get("sessionId")) or None,
        parent_session_id=as_text(meta.get("parentSessionId")) or None,
    )


def _thinking(packet: _Packet) -> parsed.ThinkingChunk:
    chunk = _text(packet)
    return parsed.ThinkingChunk(
        text=chunk.text, session_id=chunk.session_id, parent_session_id=chunk.parent_session_id
    )


def _plan(packet: _Packet) -> parsed.Plan:
    listed = packet.get("entries")
    return parsed.Plan(entries=tuple(map(_entry, listed if isinstance(listed, list) else ())))


def _entry(item: object) -> parsed.PlanItem:
    fields = as_object(item)
    return parsed.PlanItem(
        content=as_text(fields.get("content")),
        status=outputs.todo_status(fields.get("status")),
        priority=outputs.plan_priority(fields.get("priority")),
    )


def _response(packet: _Packet) -> parsed.PromptResponse:
    return parsed.PromptResponse(stop_reason=as_text(_first(packet, "stopReason", "stop_reason")))


def _failed(packet: _Packet) -> parsed.Failed:
    return parsed.Failed(
        message=as_text(packet.get("message")), code=outputs.as_code(packet.get("code"))
    )


def _artifact(packet: _Packet) -> parsed.ArtifactCreated:
    fields = as_object(packet.get("artifact"))
    return parsed.ArtifactCreated(
        artifact=parsed.ParsedArtifact(
            id=as_text(fields.get("id")),
            type=as_text(fields.get("type")),
            name=as_text(fields.get("name")),
            path=as_text(fields.get("path")),
            preview_url=as_text(fields.get("preview_url")) or None,
        )
    )


def _approval(packet: _Packet) -> parsed.ApprovalRequested:
    return parsed.ApprovalRequested(
        approval_id=as_text(_first(packet, "approval_id", "approvalId")),
        session_id=as_text(_first(packet, "session_id", "sessionId")),
    )


def _subagent(packet: _Packet) -> parsed.SubagentStarted:
    return parsed.SubagentStarted(
        subagent_session_id=as_text(_first(packet, "subagent_session_id", "subagentSessionId")),
        parent_session_id=as_text(_first(packet, "parent_session_id", "parentSessionId")),
    )


def _connect_app(packet: _Packet) -> parsed.ConnectAppRequest | parsed.Unknown:
    app = _first(packet, "external_app_id", "externalAppId")
    if not isinstance(app, int) or isinstance(app, bool) or app <= 0:
        return parsed.Unknown(raw=packet)
    return parsed.ConnectAppRequest(
        request_id=as_text(_first(packet, "request_id", "requestId")),
        external_app_id=app,
        reason=as_text(packet.get("reason")) or None,
    )


def _usage(packet: _Packet) -> parsed.ContextUsage:
    used = _first(packet, "used_tokens", "usedTokens")
    is_number = isinstance(used, int) and not isinstance(used, bool)
    return parsed.ContextUsage(used_tokens=used if is_number else 0)


def _compaction(packet: _Packet) -> parsed.Compaction:
    return parsed.Compaction(summary=as_text(packet.get("summary")) or None)


_READERS: Final[Mapping[str, Callable[[_Packet], ParsedPacket]]] = {
    "agent_message_chunk": _text,
    "agent_message": _text,
    "agent_thought_chunk": _thinking,
    "agent_thought": _thinking,
    "agent_plan_update": _plan,
    "prompt_response": _response,
    "error": _failed,
    "artifact_created": _artifact,
    "approval_requested": _approval,
    "subagent_started": _subagent,
    "connect_app_request": _connect_app,
    "context_usage": _usage,
    "compaction": _compaction,
}

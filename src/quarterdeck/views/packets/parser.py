"""`parse_packet`: what a page shows for a packet, in any spelling that writers use.

It reads camelCase and snake_case, live and stored packets, and the types that later versions added.
It never raises: what is not a packet is `Unknown`. Tool calls are most of the work: their name,
kind, file and texts are found in whichever field a writer has put them (`_Tool`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from msgspec import Struct

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.views.packets import parsed_packets, tools
from quarterdeck.views.packets.detection import (
    BY_SESSION_UPDATE,
    UNKNOWN,
    PathMapper,
    packet_type,
    path_of_diffs,
    path_of_input,
    without_workspaces,
    workspace_path,
)
from quarterdeck.views.packets.parsed_packets import ParsedPacket, ToolProgress, ToolStart
from quarterdeck.views.packets.tools import (
    as_count,
    as_object,
    as_text,
    display_title,
    resolve_kind,
    resolve_name,
    skill_name,
)
from quarterdeck.views.packets.types import ProgressStatus

_STATUSES: Final = frozenset(get_args(ProgressStatus))
_Packet = Mapping[str, Any]


class _Tool(Struct, frozen=True):
    """The tool call of a packet, read from any spelling."""

    name: str
    kind: str
    raw_name: str
    meta: Mapping[str, Any]
    raw_input: Mapping[str, Any]
    raw_output: Any
    content: Any

    @classmethod
    def read(cls, packet: _Packet) -> _Tool:
        raw_input = as_object(_either(packet, "raw_input", "rawInput"))
        raw_name = _raw_name(packet)
        name = resolve_name(raw_name, raw_input, packet.get("kind"))
        return cls(
            name=name,
            kind=resolve_kind(name, packet.get("kind")),
            raw_name=raw_name,
            meta=as_object(packet.get("_meta")),
            raw_input=raw_input,
            raw_output=_either(packet, "raw_output", "rawOutput"),
            content=packet.get("content"),
        )

    def text(self, key: str) -> str:
        return as_text(self.raw_input.get(key))

    def routed(self, key: str) -> str | None:
        return as_text(self.meta.get(key)) or None


def parse_start(packet: _Packet, paths: PathMapper) -> ToolStart:
    """Read a `tool_call_start`; its file counts as new until a diff shows otherwise."""
    tool = _Tool.read(packet)
    return ToolStart(
        tool_call_id=_tool_call_id(packet),
        tool_name=tool.name,
        kind=tool.kind,
        is_todo=tool.name == "todowrite",
        title=display_title(tool.name, tool.kind, is_new_file=True),
        description=_description(tool, _path(tool, "", paths)),
        command=_command(tool),
        skill_name=skill_name(tool.raw_name, tool.name, tool.kind, tool.raw_input),
        subagent_type=_subagent_type(tool),
        session_id=tool.routed("sessionId"),
        parent_session_id=tool.routed("parentSessionId"),
        subagent_session_id=tool.routed("subagentSessionId"),
    )


def parse_progress(packet: _Packet, paths: PathMapper) -> ToolProgress:
    """Read a `tool_call_progress`."""
    tool = _Tool.read(packet)
    path = _path(tool, as_text(packet.get("title")), paths)
    old, new = tools.diff_texts(tool.content)
    if tool.name == "write" and not old and not new:
        new = tool.text("content")
    is_new = not old
    action = tools.patch_header(tool.raw_input)[0]
    status = packet.get("status")
    is_done_task = tool.name == "task" and status == "completed"
    return ToolProgress(
        tool_call_id=_tool_call_id(packet),
        tool_name=tool.name,
        kind=tool.kind,
        status=status if isinstance(status, str) and status in _STATUSES else "pending",
        is_todo=tool.name == "todowrite",
        title=display_title(tool.name, tool.kind, is_new_file=is_new),
        description=_description(tool, path),
        command=_command(tool),
        raw_output=without_workspaces(_shown_output(tool)),
        file_path=path,
        subagent_type=_subagent_type(tool),
        skill_name=skill_name(tool.raw_name, tool.name, tool.kind, tool.raw_input),
        is_new_file=is_new if old or new else action in ("", "Add"),
        old_content=old,
        new_content=new,
        todos=tools.todos_of(tool.raw_input),
        task_output=tools.task_output(tool.raw_output) if is_done_task else None,
        session_id=tool.routed("sessionId"),
        parent_session_id=tool.routed("parentSessionId"),
        subagent_session_id=_subagent_session(tool),
    )


def _either(packet: _Packet, first: str, second: str) -> Any:
    found = packet.get(first)
    return packet.get(second) if found is None else found


def _tool_call_id(packet: _Packet) -> str:
    return as_text(_either(packet, "tool_call_id", "toolCallId"))


def _raw_name(packet: _Packet) -> str:
    meta = as_object(packet.get("_meta"))
    named = (
        as_text(packet.get("tool_name"))
        or as_text(packet.get("toolName"))
        or as_text(meta.get("toolName"))
        or as_text(meta.get("tool_name"))
    )
    title = as_text(packet.get("title"))
    return (named or ("" if " " in title or "\n" in title else title)).lower()


def _path(tool: _Tool, title: str, paths: PathMapper) -> str:
    found = path_of_input(tool.raw_input) or path_of_diffs(tool.content)
    # The title of an edit is its path; that of another call may only look like one.
    if not found and "/" in title and (tool.kind == "edit" or isinstance(tool.content, list)):
        found = title
    found = found or tools.patch_header(tool.raw_input)[1]
    return paths(found) if found else ""


def _description(tool: _Tool, path: str) -> str:
    if tool.name == "task":
        task = tool.text("description") or tool.text("prompt")
        return without_workspaces(f"Spawning subagent: {task}" if task else "Spawning subagent")
    if tool.kind in ("read", "edit") and path:
        written = tool.text("content") if tool.name == "write" else ""
        return f"{path} ({written.count(chr(10)) + 1} lines)" if written else path
    by_name = {"webfetch": "url", "websearch": "query"}.get(tool.name)
    if by_name is not None:
        return tool.text(by_name)
    if tool.kind == "execute":
        return without_workspaces(tool.text("description"))
    return tool.text("pattern") if tool.kind == "search" else ""


def _command(tool: _Tool) -> str:
    command = tool.text("command")
    if not command and tool.name == "task":
        command = tool.text("prompt")
    return without_workspaces(command)


def _shown_output(tool: _Tool) -> str:
    match tool.kind:
        case "task":
            return tool.text("prompt")
        case "execute":
            return tools.execute_output(tool.raw_output)
        case "read":
            return tools.read_output(tool.raw_output, tool.content)
        case "edit":
            return tools.edit_output(tool.raw_input, tool.raw_output, tool.content)
        case "search":
            return tools.search_output(tool.raw_output)
        case _:
            return tools.pretty(tool.raw_output)


def _subagent_type(tool: _Tool) -> str | None:
    return tool.text("subagent_type") or tool.text("subagentType") or None


def _subagent_session(tool: _Tool) -> str | None:
    named = tool.routed("subagentSessionId")
    if named is None and tool.name == "task":
        return tools.subagent_session(tool.raw_output)
    return named


# ---- all packets -----------------------------------------------------------------------------

_MORE_UPDATES: Final = ("agent_thought_chunk", "agent_message", "agent_thought")
_LATER: Final = {**BY_SESSION_UPDATE, **{name: name for name in _MORE_UPDATES}}


def parse_packet(packet: object, paths: PathMapper = workspace_path) -> ParsedPacket:
    """Return what a page shows for a packet; `packet` is a JSON object, or its bytes.

    `paths` shortens the path of the file that a tool works on.
    """
    fields = _decoded(packet) if isinstance(packet, bytes | bytearray) else packet
    if not isinstance(fields, Mapping):
        return parsed_packets.UnknownPacket(raw=fields)
    kind = _any_type(fields)
    if kind == "tool_call_start":
        return parse_start(fields, paths)
    if kind == "tool_call_progress":
        return parse_progress(fields, paths)
    reader = _READERS.get(kind)
    return parsed_packets.UnknownPacket(raw=fields) if reader is None else reader(fields)


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


def _text(packet: _Packet) -> parsed_packets.TextChunk:
    meta = as_object(packet.get("_meta"))
    return parsed_packets.TextChunk(
        text=tools.text_of(packet.get("content")),
        session_id=as_text(meta.get("sessionId")) or None,
        parent_session_id=as_text(meta.get("parentSessionId")) or None,
    )


def _thinking(packet: _Packet) -> parsed_packets.ThinkingChunk:
    chunk = _text(packet)
    return parsed_packets.ThinkingChunk(
        text=chunk.text, session_id=chunk.session_id, parent_session_id=chunk.parent_session_id
    )


def _plan(packet: _Packet) -> parsed_packets.Plan:
    listed = packet.get("entries")
    return parsed_packets.Plan(
        entries=tuple(map(_entry, listed if isinstance(listed, list) else ()))
    )


def _entry(item: object) -> parsed_packets.PlanItem:
    fields = as_object(item)
    return parsed_packets.PlanItem(
        content=as_text(fields.get("content")),
        status=tools.todo_status(fields.get("status")),
        priority=tools.plan_priority(fields.get("priority")),
    )


def _response(packet: _Packet) -> parsed_packets.PromptResponse:
    return parsed_packets.PromptResponse(
        stop_reason=as_text(_first(packet, "stopReason", "stop_reason"))
    )


def _failed(packet: _Packet) -> parsed_packets.Failed:
    return parsed_packets.Failed(
        message=as_text(packet.get("message")), code=tools.as_code(packet.get("code"))
    )


def _artifact(packet: _Packet) -> parsed_packets.ArtifactCreated:
    fields = as_object(packet.get("artifact"))
    return parsed_packets.ArtifactCreated(
        artifact=parsed_packets.ParsedArtifact(
            id=as_text(fields.get("id")),
            type=as_text(fields.get("type")),
            name=as_text(fields.get("name")),
            path=as_text(fields.get("path")),
            preview_url=as_text(fields.get("preview_url")) or None,
        )
    )


def _approval(packet: _Packet) -> parsed_packets.ApprovalRequested:
    return parsed_packets.ApprovalRequested(
        approval_id=as_text(_first(packet, "approval_id", "approvalId")),
        session_id=as_text(_first(packet, "session_id", "sessionId")),
    )


def _subagent(packet: _Packet) -> parsed_packets.SubagentStarted:
    return parsed_packets.SubagentStarted(
        subagent_session_id=as_text(_first(packet, "subagent_session_id", "subagentSessionId")),
        parent_session_id=as_text(_first(packet, "parent_session_id", "parentSessionId")),
    )


def _connect_app(
    packet: _Packet,
) -> parsed_packets.ConnectAppRequest | parsed_packets.UnknownPacket:
    app = _first(packet, "external_app_id", "externalAppId")
    if not isinstance(app, int) or isinstance(app, bool) or app <= 0:
        return parsed_packets.UnknownPacket(raw=packet)
    return parsed_packets.ConnectAppRequest(
        request_id=as_text(_first(packet, "request_id", "requestId")),
        external_app_id=app,
        reason=as_text(packet.get("reason")) or None,
    )


def _usage(packet: _Packet) -> parsed_packets.ContextUsage:
    used = as_count(_first(packet, "used_tokens", "usedTokens"))
    return parsed_packets.ContextUsage(used_tokens=used or 0)


def _compaction(packet: _Packet) -> parsed_packets.Compaction:
    return parsed_packets.Compaction(summary=as_text(packet.get("summary")) or None)


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

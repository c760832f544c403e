"""The part of `parse_packet` that reads tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from msgspec import Struct

from quarterdeck.dialects.packets import outputs
from quarterdeck.dialects.packets.detect import PathMapper, path_of_diffs, path_of_input
from quarterdeck.dialects.packets.outputs import as_object, as_text
from quarterdeck.dialects.packets.parsed import ToolProgress, ToolStart
from quarterdeck.dialects.packets.paths import without_workspaces
from quarterdeck.dialects.packets.tools import (
    display_title,
    resolve_kind,
    resolve_name,
    skill_name,
)
from quarterdeck.dialects.packets.types import ProgressStatus

_STATUSES: Final = frozenset(get_args(ProgressStatus))
_Packet = Mapping[str, Any]


class _Tool(Struct, frozen=True):
    """What a packet says of a call, found in whichever spelling it has."""

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
    """Read a `tool_call_start`; a file that is worked on is taken for new until a diff is seen."""
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
    old, new = outputs.diff_texts(tool.content)
    if tool.name == "write" and not old and not new:
        new = tool.text("content")
    is_new = not old
    action = outputs.patch_header(tool.raw_input)[0]
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
        todos=outputs.todos_of(tool.raw_input),
        task_output=outputs.task_output(tool.raw_output) if is_done_task else None,
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
    found = found or outputs.patch_header(tool.raw_input)[1]
    return paths(found) if found else ""


def _description(tool: _Tool, path: str) -> str:
    if tool.name == "task":
        said = tool.text("description") or tool.text("prompt")
        return without_workspaces(f"Spawning subagent: {said}" if said else "Spawning subagent")
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
            return outputs.execute_output(tool.raw_output)
        case "read":
            return outputs.read_output(tool.raw_output, tool.content)
        case "edit":
            return outputs.edit_output(tool.raw_input, tool.raw_output, tool.content)
        case "search":
            return outputs.search_output(tool.raw_output)
        case _:
            return outputs.pretty(tool.raw_output)


def _subagent_type(tool: _Tool) -> str | None:
    return tool.text("subagent_type") or tool.text("subagentType") or None


def _subagent_session(tool: _Tool) -> str | None:
    named = tool.routed("subagentSessionId")
    if named is None and tool.name == "task":
        return outputs.subagent_session(tool.raw_output)
    return named

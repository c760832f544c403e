"""The results of `parse_packet`: one class per thing that a page shows.

`msgspec.to_builtins` and `msgspec.json.encode` write them as camelCase JSON with a `type`. `route`
decides where a page shows a packet while subagents run: on a subagent's card, or in the transcript.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct


class Parsed(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """Any parsed packet."""

    @property
    def type(self) -> str:
        """What it is, as it is written in JSON."""
        return str(self.__struct_config__.tag)


class TextChunk(Parsed, frozen=True, kw_only=True, tag="text_chunk"):
    text: str
    session_id: str | None = None
    """The subagent that sent it; None for the agent itself."""
    parent_session_id: str | None = None


class ThinkingChunk(Parsed, frozen=True, kw_only=True, tag="thinking_chunk"):
    text: str
    session_id: str | None = None
    parent_session_id: str | None = None


class ToolStart(Parsed, frozen=True, kw_only=True, tag="tool_call_start"):
    tool_call_id: str
    tool_name: str
    kind: str
    is_todo: bool
    title: str
    description: str
    command: str
    skill_name: str | None
    subagent_type: str | None
    session_id: str | None
    parent_session_id: str | None
    subagent_session_id: str | None


class Todo(Struct, frozen=True, kw_only=True, rename="camel"):
    content: str
    status: Literal["pending", "in_progress", "completed"]
    active_form: str


class ToolProgress(Parsed, frozen=True, kw_only=True, tag="tool_call_progress"):
    tool_call_id: str
    tool_name: str
    kind: str
    status: str
    is_todo: bool
    title: str
    description: str
    command: str
    raw_output: str
    """The text to show as the result, from any shape of output."""
    file_path: str
    subagent_type: str | None
    skill_name: str | None
    is_new_file: bool
    old_content: str
    new_content: str
    todos: tuple[Todo, ...]
    task_output: str | None
    session_id: str | None
    parent_session_id: str | None
    subagent_session_id: str | None


class PlanItem(Struct, frozen=True, kw_only=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]
    priority: Literal["high", "medium", "low"]


class Plan(Parsed, frozen=True, kw_only=True, tag="agent_plan_update"):
    entries: tuple[PlanItem, ...]


class PromptResponse(Parsed, frozen=True, kw_only=True, omit_defaults=True, tag="prompt_response"):
    stop_reason: str = ""


class Failed(Parsed, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    message: str
    code: str = ""


class ParsedArtifact(Struct, frozen=True, kw_only=True):
    id: str
    type: str
    name: str
    path: str
    preview_url: str | None


class ArtifactCreated(Parsed, frozen=True, kw_only=True, tag="artifact_created"):
    artifact: ParsedArtifact


class ApprovalRequested(Parsed, frozen=True, kw_only=True, tag="approval_requested"):
    approval_id: str
    session_id: str


class SubagentStarted(Parsed, frozen=True, kw_only=True, tag="subagent_started"):
    subagent_session_id: str
    parent_session_id: str


class ConnectAppRequest(Parsed, frozen=True, kw_only=True, tag="connect_app_request"):
    request_id: str
    external_app_id: int
    reason: str | None


class ContextUsage(Parsed, frozen=True, kw_only=True, tag="context_usage"):
    used_tokens: int


class Compaction(Parsed, frozen=True, kw_only=True, tag="compaction"):
    summary: str | None


class UnknownPacket(Parsed, frozen=True, kw_only=True, omit_defaults=True, tag="unknown"):
    """A packet that we do not know, or no packet at all; `raw` is all of it."""

    raw: Any = None


ParsedPacket: TypeAlias = (
    TextChunk
    | ThinkingChunk
    | ToolStart
    | ToolProgress
    | Plan
    | PromptResponse
    | Failed
    | ArtifactCreated
    | ApprovalRequested
    | SubagentStarted
    | ConnectAppRequest
    | ContextUsage
    | Compaction
    | UnknownPacket
)


_NAME_LENGTH: Final = 40
_PREFIX: Final = "Spawning subagent: "


class ChildRoute(Struct, frozen=True):
    """Something that a subagent did."""

    session_id: str
    parent_session_id: str


class TaskRoute(Struct, frozen=True):
    """The call that runs a subagent."""

    subagent_session_id: str


class NormalRoute(Struct, frozen=True):
    """Everything else."""


Route: TypeAlias = ChildRoute | TaskRoute | NormalRoute


def route(packet: ParsedPacket) -> Route:
    """Return where a packet is shown; a subagent's own packets are checked first."""
    if not isinstance(packet, TextChunk | ThinkingChunk | ToolStart | ToolProgress):
        return NormalRoute()
    if packet.session_id and packet.parent_session_id:
        return ChildRoute(packet.session_id, packet.parent_session_id)
    if isinstance(packet, ToolStart | ToolProgress) and packet.subagent_session_id:
        return TaskRoute(packet.subagent_session_id)
    return NormalRoute()


def subagent_name(packet: ToolStart | ToolProgress) -> str:
    """Return a short name for the subagent that a call runs."""
    described = packet.description.removeprefix(_PREFIX) or packet.command
    name = described.strip().partition("\n")[0].strip() or packet.subagent_type or "subagent"
    return name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}…"

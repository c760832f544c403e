"""The types of all packets, for type checkers and for `msgspec.convert`.

A packet is a plain JSON object. Null and empty values are part of its shape: what is not known is
there, as null, `{}` or `[]`.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

Json: TypeAlias = dict[str, Any]
Packet: TypeAlias = dict[str, Any]

ToolCallKind: TypeAlias = Literal["search", "read", "execute", "edit", "other"]
ProgressStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
"""`cancelled` is written by the style "tagged" only; see `PacketProjector`."""
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
Priority: TypeAlias = Literal["high", "medium", "low"]
StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "max_turn_requests", "refusal", "cancelled"
]
"""`stop_sequence` is read, but never written: ACP has no such stop reason."""
ArtifactType: TypeAlias = Literal["file", "image", "nextjs_app", "web_app"]


class GlobInput(TypedDict):
    pattern: str


class GrepInput(TypedDict):
    pattern: str
    path: NotRequired[str]


class ReadInput(TypedDict):
    filePath: str


class WriteInput(TypedDict):
    filePath: str
    content: str


class EditInput(TypedDict):
    filePath: str
    old_string: str
    new_string: str


class BashInput(TypedDict):
    command: str
    description: str


class TaskInput(TypedDict):
    prompt: str
    description: str
    subagent_type: str


class TodoItem(TypedDict):
    content: str
    status: TodoStatus
    activeForm: str


class TodoWriteInput(TypedDict):
    todos: list[TodoItem]


class SearchMetadata(TypedDict):
    count: int
    truncated: bool


class SearchOutput(TypedDict):
    output: str
    metadata: SearchMetadata


class ReadMetadata(TypedDict):
    preview: str
    truncated: bool


class ReadOutput(TypedDict):
    output: str
    metadata: ReadMetadata


class BashMetadata(TypedDict):
    output: str
    exit: int
    description: str
    truncated: bool


class BashOutput(TypedDict):
    output: str
    metadata: BashMetadata


class WriteMetadata(TypedDict):
    diagnostics: dict[str, list[Any]]
    filepath: str
    exists: bool
    truncated: bool


class WriteOutput(TypedDict):
    output: str
    metadata: WriteMetadata


class TodoWriteMetadata(TypedDict):
    todos: list[TodoItem]
    truncated: bool


class TodoWriteOutput(TypedDict):
    output: str
    metadata: TodoWriteMetadata


ToolRawInput: TypeAlias = (
    GlobInput
    | GrepInput
    | ReadInput
    | WriteInput
    | EditInput
    | BashInput
    | TaskInput
    | TodoWriteInput
)
ToolRawOutput: TypeAlias = SearchOutput | ReadOutput | BashOutput | WriteOutput | TodoWriteOutput
TOOL_INPUTS: dict[str, Any] = {
    "glob": GlobInput,
    "grep": GrepInput,
    "read": ReadInput,
    "write": WriteInput,
    "edit": EditInput,
    "bash": BashInput,
    "task": TaskInput,
    "todowrite": TodoWriteInput,
}
"""The `rawInput` of tools with the documented names; other agents have shapes of their own."""
TOOL_OUTPUTS: dict[str, Any] = {
    "glob": SearchOutput,
    "grep": SearchOutput,
    "read": ReadOutput,
    "bash": BashOutput,
    "write": WriteOutput,
    "todowrite": TodoWriteOutput,
}


class TextBlock(TypedDict):
    _meta: Json | None
    type: Literal["text"]
    text: str
    annotations: Json | None


class Block(TypedDict):
    """Any content block: a text, or an image, a sound, a link, a resource as the agent sent it."""

    _meta: Json | None
    type: str
    annotations: Json | None


class ContentItem(TypedDict):
    _meta: Json | None
    type: Literal["content"]
    content: Block
    """Nearly always a `TextBlock`."""


class DiffItem(TypedDict):
    _meta: Json | None
    type: Literal["diff"]
    newText: str
    oldText: str
    path: str


ToolContentArray: TypeAlias = list[ContentItem | DiffItem]


class LocationInfo(TypedDict):
    _meta: Json | None
    path: str
    line: int | None


class AgentMessageChunkPacket(TypedDict):
    _meta: Json | None
    type: Literal["agent_message_chunk"]
    sessionUpdate: Literal["agent_message_chunk"]
    content: Json
    timestamp: NotRequired[str]


class AgentThoughtChunkPacket(TypedDict):
    _meta: Json | None
    type: Literal["agent_thought_chunk"]
    sessionUpdate: Literal["agent_thought_chunk"]
    content: Json
    timestamp: NotRequired[str]


class ToolCallStartPacket(TypedDict):
    _meta: Json | None
    type: NotRequired[Literal["tool_call_start"]]
    sessionUpdate: Literal["tool_call"]
    toolCallId: str
    title: str
    kind: str
    status: Literal["pending"]
    content: list[Json] | None
    rawInput: Any
    rawOutput: None
    locations: list[LocationInfo]
    timestamp: NotRequired[str]


class ToolCallProgressPacket(TypedDict):
    _meta: Json | None
    type: Literal["tool_call_progress"]
    sessionUpdate: Literal["tool_call_update"]
    timestamp: str
    toolCallId: str
    title: str
    kind: str
    status: ProgressStatus
    rawInput: Any
    rawOutput: Any
    content: list[Json] | None
    locations: list[LocationInfo] | None


class PlanEntry(TypedDict):
    _meta: Json | None
    content: str
    status: TodoStatus
    priority: Priority


class AgentPlanUpdatePacket(TypedDict):
    _meta: Json | None
    type: Literal["agent_plan_update"]
    sessionUpdate: Literal["plan"]
    timestamp: str
    entries: list[PlanEntry]


class CurrentModeUpdatePacket(TypedDict):
    _meta: Json | None
    type: Literal["current_mode_update"]
    sessionUpdate: Literal["current_mode_update"]
    currentModeId: str
    timestamp: NotRequired[str]


class PromptResponsePacket(TypedDict):
    _meta: Json
    type: Literal["prompt_response"]
    stopReason: str
    """A `StopReason`, or one that only a newer agent knows."""
    timestamp: NotRequired[str]


class ErrorPacket(TypedDict):
    type: Literal["error"]
    message: str
    code: NotRequired[str]
    timestamp: NotRequired[str]


class Artifact(TypedDict):
    id: str
    type: str
    name: str
    path: str
    preview_url: NotRequired[str | None]


class ArtifactCreatedPacket(TypedDict):
    type: Literal["artifact_created"]
    artifact: Artifact
    timestamp: NotRequired[str]


class ApprovalRequestedPacket(TypedDict):
    type: Literal["approval_requested"]
    timestamp: str
    approval_id: str
    session_id: str


class SubagentStartedPacket(TypedDict):
    type: Literal["subagent_started"]
    timestamp: str
    subagent_session_id: str
    parent_session_id: str


class ContextUsagePacket(TypedDict):
    type: Literal["context_usage"]
    timestamp: str
    used_tokens: int
    cost: float | None


class CompactionPacket(TypedDict):
    type: Literal["compaction"]
    timestamp: str
    summary: str | None


class StoredText(TypedDict):
    type: Literal["text"]
    text: str


class UserMessagePacket(TypedDict):
    """A prompt: stored, in the history of a loaded session, and in a stream with prompts."""

    type: Literal["user_message"]
    content: StoredText
    attachments: NotRequired[list[Json]]
    timestamp: NotRequired[str]
    _meta: NotRequired[Json]


class AgentMessagePacket(TypedDict):
    """Stored only: a run of chunks, or what a subagent answered (`source` is "task_output")."""

    type: Literal["agent_message"]
    content: StoredText
    sessionUpdate: NotRequired[Literal["agent_message"]]
    source: NotRequired[Literal["task_output"]]
    timestamp: NotRequired[str]
    _meta: NotRequired[Json]


class AgentThoughtPacket(TypedDict):
    """Stored only: a run of thoughts."""

    type: Literal["agent_thought"]
    content: StoredText
    sessionUpdate: Literal["agent_thought"]
    _meta: NotRequired[Json]


PACKET_TYPES: dict[str, Any] = {
    "agent_message_chunk": AgentMessageChunkPacket,
    "agent_thought_chunk": AgentThoughtChunkPacket,
    "tool_call_start": ToolCallStartPacket,
    "tool_call_progress": ToolCallProgressPacket,
    "agent_plan_update": AgentPlanUpdatePacket,
    "current_mode_update": CurrentModeUpdatePacket,
    "prompt_response": PromptResponsePacket,
    "error": ErrorPacket,
    "artifact_created": ArtifactCreatedPacket,
    "approval_requested": ApprovalRequestedPacket,
    "subagent_started": SubagentStartedPacket,
    "context_usage": ContextUsagePacket,
    "compaction": CompactionPacket,
    "user_message": UserMessagePacket,
    "agent_message": AgentMessagePacket,
    "agent_thought": AgentThoughtPacket,
}
"""The class of every packet that we write, by its `packet_type`."""

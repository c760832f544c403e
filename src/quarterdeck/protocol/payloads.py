"""The payload of every event, for type checkers; at run time payloads are verbatim JSON objects.

Payloads that are an agent's update have no `_meta` of their own: the host moves it into the
event's `extensions`. Nested objects keep theirs.
"""

from __future__ import annotations

from typing import (
    Any,
    Final,
    Literal,
    NotRequired,
    TypeAlias,
    TypedDict,
    TypeGuard,
    assert_never,
    get_args,
)

from quarterdeck.protocol.acp_types import (
    AuthMethod,
    AvailableCommand,
    ContentBlock,
    Cost,
    JsonObject,
    McpServer,
    PermissionOption,
    PlanEntry,
    RequestPermissionOutcome,
    SessionConfigOption,
    SessionModeState,
    StopReason,
    ToolCallContent,
    ToolCallLocation,
    ToolCallStatus,
    ToolKind,
    Usage,
)

AcpEventExtensions: TypeAlias = JsonObject
"""`_meta` and every field we do not model, by their own names."""

SessionStatus: TypeAlias = Literal[
    "creating", "active", "prompting", "disconnected", "resuming", "closed", "deleted"
]
AgentStatus: TypeAlias = Literal["spawning", "initializing", "ready", "exited", "restarting"]
AgentExitReason: TypeAlias = Literal[
    "spawn-failed", "initialize-failed", "crashed", "disposed", "restart-exhausted"
]
InstallStage: TypeAlias = Literal[
    "resolving", "cache-hit", "downloading", "verifying", "extracting", "installed", "failed"
]
DiagnosticLevel: TypeAlias = Literal["info", "warn", "error"]
MessageKind: TypeAlias = Literal["user", "agent", "thought"]
PermissionResolution: TypeAlias = Literal["answered", "superseded"]

_SESSION_STATUSES: Final = frozenset(get_args(SessionStatus))


def is_session_status(value: object) -> TypeGuard[SessionStatus]:
    """Return whether this version knows a status.

    A log may come from a newer version: ask before a `match` that ends in `assert_never`.
    """
    return isinstance(value, str) and value in _SESSION_STATUSES


def has_agent(status: SessionStatus) -> bool:
    """Return whether an agent has a session of this status open, or is opening it."""
    match status:
        case "creating" | "active" | "prompting" | "resuming":
            return True
        case "disconnected" | "closed" | "deleted":
            return False
        case _:
            assert_never(status)


def has_ended(status: SessionStatus) -> bool:
    """Return whether a session of this status was ended: it takes no prompts until it is loaded."""
    match status:
        case "closed" | "deleted":
            return True
        case "creating" | "active" | "prompting" | "resuming" | "disconnected":
            return False
        case _:
            assert_never(status)


class MessageChunkPayload(TypedDict):
    content: ContentBlock
    messageId: NotRequired[str]


class ToolCallPayload(TypedDict):
    toolCallId: str
    title: str
    kind: NotRequired[ToolKind]
    status: NotRequired[ToolCallStatus]
    content: NotRequired[list[ToolCallContent]]
    locations: NotRequired[list[ToolCallLocation]]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]


class ToolCallUpdatePayload(TypedDict):
    toolCallId: str
    title: NotRequired[str]
    kind: NotRequired[ToolKind]
    status: NotRequired[ToolCallStatus]
    content: NotRequired[list[ToolCallContent]]
    locations: NotRequired[list[ToolCallLocation]]
    rawInput: NotRequired[Any]
    rawOutput: NotRequired[Any]


class PlanPayload(TypedDict):
    entries: list[PlanEntry]


class AvailableCommandsUpdatePayload(TypedDict):
    availableCommands: list[AvailableCommand]


class CurrentModeUpdatePayload(TypedDict):
    currentModeId: str


class SessionConfigInitPayload(TypedDict):
    modes: NotRequired[SessionModeState]
    configOptions: NotRequired[list[SessionConfigOption]]


class ConfigOptionsUpdatePayload(TypedDict):
    configOptions: list[SessionConfigOption]


class SessionInfoUpdatePayload(TypedDict):
    title: NotRequired[str | None]
    updatedAt: NotRequired[str | None]


class UsageUpdatePayload(TypedDict):
    used: int
    size: int
    cost: NotRequired[Cost]


class PromptErrorState(TypedDict):
    """An agent's JSON-RPC error that ended a prompt."""

    code: int
    message: str
    data: NotRequired[Any]


class PromptFinishedPayload(TypedDict):
    stopReason: StopReason
    usage: NotRequired[Usage]
    error: NotRequired[PromptErrorState]


class SessionStatusChangePayload(TypedDict):
    status: SessionStatus
    resumed: NotRequired[bool]


class SessionResetPayload(TypedDict):
    reason: Literal["load"]


class PermissionRequestCreatedPayload(TypedDict):
    requestId: str
    toolCall: ToolCallUpdatePayload
    options: list[PermissionOption]


class PermissionRequestResolvedPayload(TypedDict):
    requestId: str
    status: PermissionResolution
    outcome: NotRequired[RequestPermissionOutcome]


class ApprovalDifference(TypedDict):
    field: str
    """Where it was seen: `kind`, `rawInput`, `locations`, `content`, `terminal` or `file`."""
    shown: list[str]
    """What was shown when the call was allowed, such as commands or paths."""
    done: list[str]
    """What the agent did or reported instead."""


class ApprovalMismatchPayload(TypedDict):
    code: Literal["approval-mismatch"]
    requestId: str
    toolCallId: str
    differences: list[ApprovalDifference]


class TerminalExit(TypedDict):
    exitCode: NotRequired[int]
    signal: NotRequired[str]


class TerminalOutputPayload(TypedDict):
    terminalId: str
    delta: NotRequired[str]
    truncated: NotRequired[bool]
    exit: NotRequired[TerminalExit]


class MessageUpdatePayload(TypedDict):
    """Without `content`, only the extensions of the event say something new."""

    kind: MessageKind
    messageId: str
    content: NotRequired[list[ContentBlock]]


class ToolCallContentChunkPayload(TypedDict):
    toolCallId: str
    content: ToolCallContent


class TerminalText(TypedDict):
    text: str
    truncated: NotRequired[bool]
    """Whether the beginning is missing."""


class TerminalSize(TypedDict):
    cols: int
    rows: int


class TerminalUpdatePayload(TypedDict):
    """What is absent stays as it is; null removes it."""

    terminalId: str
    output: NotRequired[TerminalText | None]
    """The whole output, in place of what was received."""
    exit: NotRequired[TerminalExit | None]
    command: NotRequired[str | None]
    cwd: NotRequired[str | None]
    size: NotRequired[TerminalSize | None]
    cancellable: NotRequired[bool | None]


class ForegroundPayload(TypedDict):
    state: str
    """`running`, `requires_action`, `idle` or `unknown`, or what a newer agent says."""
    background: NotRequired[list[JsonObject]]
    """Everything that runs in the background now: terminals, tool calls, sub-agents."""
    promptKey: NotRequired[str]
    """The prompt that is worked on; absent in a turn that the agent began by itself."""


class PlanUpdatePayload(TypedDict):
    planId: str
    type: str
    """`items`, `markdown` or `file`, or what a newer agent says."""
    entries: NotRequired[list[PlanEntry]]
    content: NotRequired[str]
    uri: NotRequired[str]


class PlanRemovedPayload(TypedDict):
    planId: str


UnrecognizedUpdatePayload: TypeAlias = JsonObject
"""A whole update that we do not model, its `sessionUpdate` and `_meta` included."""


class AgentExit(TypedDict):
    code: NotRequired[int]
    signal: NotRequired[str]


class AgentUpdatedPayload(TypedDict):
    """`AgentSnapshotWire` as JSON."""

    agentId: str
    status: AgentStatus
    restartCount: int
    reason: NotRequired[AgentExitReason]
    exit: NotRequired[AgentExit]
    capabilities: NotRequired[JsonObject]
    authMethods: NotRequired[list[AuthMethod]]


class AgentRemovedPayload(TypedDict):
    agentId: str


class SessionUpdatedPayload(TypedDict):
    """`SessionSnapshotWire` as JSON."""

    sessionId: str
    status: SessionStatus
    agentId: NotRequired[str]
    cwd: str
    mcpServers: NotRequired[list[McpServer]]
    additionalDirectories: list[str]
    agentDefinitionId: NotRequired[str]
    title: NotRequired[str | None]
    updatedAt: NotRequired[str | None]
    parentSessionId: NotRequired[str]


class PermissionUpdatedPayload(TypedDict):
    """`HostPermissionSnapshot` as JSON."""

    requestId: str
    sessionId: str
    agentId: NotRequired[str]
    status: Literal["pending", "answered", "superseded"]
    toolCall: ToolCallUpdatePayload
    options: list[PermissionOption]
    outcome: NotRequired[RequestPermissionOutcome]


class InstallProgressPayload(TypedDict):
    stage: InstallStage
    version: NotRequired[str]
    platform: NotRequired[str]
    downloadedBytes: NotRequired[int]
    totalBytes: NotRequired[int]
    reason: NotRequired[str]


class DiagnosticPayload(TypedDict):
    level: DiagnosticLevel
    code: str
    message: str
    sessionId: NotRequired[str]
    data: NotRequired[Any]

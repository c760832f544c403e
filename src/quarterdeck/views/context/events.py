"""The 37 events: one class per type, flat JSON objects distinguished by `type`.

Beyond the seed are `replay`, `option_kind` of an approval, and the fields that `types` marks.
Absent values are left out, so a client of the seed sees nothing new unless it looks for it.

`events_by_prefix` returns a family of events, whose types begin alike, such as `tool:`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeGuard, TypeVar, get_args, overload

from msgspec import Struct, field

from quarterdeck.policy import RiskLevel, ToolCategory
from quarterdeck.views.context.types import (
    ACPError,
    ApprovalPreview,
    ChangeType,
    CostBreakdown,
    EnvironmentContext,
    FileChange,
    GitOperation,
    MessageContent,
    MessageRole,
    NotificationLevel,
    ResolvedBy,
    SessionStatus,
    SessionSummary,
    TodoItem,
    TokenUsage,
    ToolStructuredOutput,
    WebOperation,
)


class ACPEventBase(
    Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    gc=False,
):
    """The fields of every event; `timestamp` is ISO 8601 in UTC, with milliseconds."""

    type: ClassVar[str]
    seq: int
    session_id: str
    timestamp: str
    replay: bool = False
    """The agent sent this when the session was loaded: history, no reason to notify."""


class SessionStartedEvent(ACPEventBase, frozen=True, kw_only=True, tag="session:started"):
    type: ClassVar[Literal["session:started"]] = "session:started"
    agent: str
    project_path: str
    project_name: str
    working_directory: str
    model: str | None = None
    environment: EnvironmentContext | None = None


class SessionResumedEvent(ACPEventBase, frozen=True, kw_only=True, tag="session:resumed"):
    """With `replay`, the whole history follows: a view discards what it has and starts again."""

    type: ClassVar[Literal["session:resumed"]] = "session:resumed"
    previous_session_id: str | None = None


class SessionPausedEvent(ACPEventBase, frozen=True, kw_only=True, tag="session:paused"):
    type: ClassVar[Literal["session:paused"]] = "session:paused"
    reason: str | None = None


class SessionCompletedEvent(ACPEventBase, frozen=True, kw_only=True, tag="session:completed"):
    type: ClassVar[Literal["session:completed"]] = "session:completed"
    summary: SessionSummary


class SessionErrorEvent(ACPEventBase, frozen=True, kw_only=True, tag="session:error"):
    type: ClassVar[Literal["session:error"]] = "session:error"
    error: ACPError


class SessionStatusChangedEvent(
    ACPEventBase, frozen=True, kw_only=True, tag="session:status_changed"
):
    type: ClassVar[Literal["session:status_changed"]] = "session:status_changed"
    from_: SessionStatus = field(name="from")
    to: SessionStatus
    reason: str | None = None


class MessageStartEvent(ACPEventBase, frozen=True, kw_only=True, tag="message:start"):
    type: ClassVar[Literal["message:start"]] = "message:start"
    message_id: str
    role: MessageRole


class MessageDeltaEvent(ACPEventBase, frozen=True, kw_only=True, tag="message:delta"):
    type: ClassVar[Literal["message:delta"]] = "message:delta"
    message_id: str
    role: MessageRole
    delta: str


class MessageCompleteEvent(ACPEventBase, frozen=True, kw_only=True, tag="message:complete"):
    type: ClassVar[Literal["message:complete"]] = "message:complete"
    message_id: str
    role: MessageRole
    content: tuple[MessageContent, ...]
    model: str | None = None
    stop_reason: str | None = None


class ThinkingStartEvent(ACPEventBase, frozen=True, kw_only=True, tag="thinking:start"):
    type: ClassVar[Literal["thinking:start"]] = "thinking:start"
    message_id: str


class ThinkingDeltaEvent(ACPEventBase, frozen=True, kw_only=True, tag="thinking:delta"):
    type: ClassVar[Literal["thinking:delta"]] = "thinking:delta"
    message_id: str
    delta: str


class ThinkingCompleteEvent(ACPEventBase, frozen=True, kw_only=True, tag="thinking:complete"):
    type: ClassVar[Literal["thinking:complete"]] = "thinking:complete"
    message_id: str
    content: str
    redacted: bool | None = None


class ToolCallStartEvent(ACPEventBase, frozen=True, kw_only=True, tag="tool:start"):
    type: ClassVar[Literal["tool:start"]] = "tool:start"
    tool_call_id: str
    name: str
    category: ToolCategory
    description: str | None = None


class ToolCallArgsDeltaEvent(ACPEventBase, frozen=True, kw_only=True, tag="tool:args_delta"):
    type: ClassVar[Literal["tool:args_delta"]] = "tool:args_delta"
    tool_call_id: str
    delta: str


class ToolCallExecutingEvent(ACPEventBase, frozen=True, kw_only=True, tag="tool:executing"):
    """Sent again, with `requires_approval`, if the agent requests permission after the start."""

    type: ClassVar[Literal["tool:executing"]] = "tool:executing"
    tool_call_id: str
    name: str
    input: dict[str, Any]
    risk_level: RiskLevel
    requires_approval: bool


class ToolCallResultEvent(ACPEventBase, frozen=True, kw_only=True, tag="tool:result"):
    type: ClassVar[Literal["tool:result"]] = "tool:result"
    tool_call_id: str
    name: str
    output: str
    duration: float
    structured: ToolStructuredOutput | None = None


class ToolCallErrorEvent(ACPEventBase, frozen=True, kw_only=True, tag="tool:error"):
    type: ClassVar[Literal["tool:error"]] = "tool:error"
    tool_call_id: str
    name: str
    error: ACPError
    duration: float | None = None


class ApprovalRequestedEvent(ACPEventBase, frozen=True, kw_only=True, tag="approval:requested"):
    type: ClassVar[Literal["approval:requested"]] = "approval:requested"
    request_id: str
    tool_call_id: str
    tool_name: str
    tool_input: dict[str, Any]
    description: str
    risk_level: RiskLevel
    expires_at: str | None = None
    preview: ApprovalPreview | None = None


class ApprovalResolvedEvent(ACPEventBase, frozen=True, kw_only=True, tag="approval:resolved"):
    """`option_kind` is the kind of the chosen option, such as `allow_always`."""

    type: ClassVar[Literal["approval:resolved"]] = "approval:resolved"
    request_id: str
    tool_call_id: str
    approved: bool
    resolved_by: ResolvedBy
    reason: str | None = None
    option_kind: str | None = None


class FileChangeEvent(ACPEventBase, frozen=True, kw_only=True, tag="file:change"):
    type: ClassVar[Literal["file:change"]] = "file:change"
    path: str
    change_type: ChangeType
    diff: str | None = None
    language: str | None = None
    lines_added: int | None = None
    lines_removed: int | None = None
    tool_call_id: str | None = None


class FileChangeBatchEvent(ACPEventBase, frozen=True, kw_only=True, tag="file:batch"):
    type: ClassVar[Literal["file:batch"]] = "file:batch"
    changes: tuple[FileChange, ...]
    description: str | None = None
    tool_call_id: str | None = None


class SubAgentSpawnedEvent(ACPEventBase, frozen=True, kw_only=True, tag="subagent:spawned"):
    type: ClassVar[Literal["subagent:spawned"]] = "subagent:spawned"
    sub_agent_id: str
    parent_tool_call_id: str
    task: str
    model: str | None = None


class SubAgentProgressEvent(ACPEventBase, frozen=True, kw_only=True, tag="subagent:progress"):
    type: ClassVar[Literal["subagent:progress"]] = "subagent:progress"
    sub_agent_id: str
    message: str
    progress: float | None = None


class SubAgentCompletedEvent(ACPEventBase, frozen=True, kw_only=True, tag="subagent:completed"):
    type: ClassVar[Literal["subagent:completed"]] = "subagent:completed"
    sub_agent_id: str
    parent_tool_call_id: str
    result: str
    token_usage: TokenUsage | None = None


class TodoUpdateEvent(ACPEventBase, frozen=True, kw_only=True, tag="progress:todo_update"):
    type: ClassVar[Literal["progress:todo_update"]] = "progress:todo_update"
    todos: tuple[TodoItem, ...]


class PlanModeEvent(ACPEventBase, frozen=True, kw_only=True, tag="progress:plan_mode"):
    type: ClassVar[Literal["progress:plan_mode"]] = "progress:plan_mode"
    active: bool
    plan: str | None = None


class ProgressEvent(ACPEventBase, frozen=True, kw_only=True, tag="progress:update"):
    type: ClassVar[Literal["progress:update"]] = "progress:update"
    label: str
    current: float | None = None
    total: float | None = None
    percentage: float | None = None


class TokenUsageEvent(ACPEventBase, frozen=True, kw_only=True, tag="resource:token_usage"):
    type: ClassVar[Literal["resource:token_usage"]] = "resource:token_usage"
    delta: TokenUsage
    cumulative: TokenUsage
    message_id: str | None = None


class CostUpdateEvent(ACPEventBase, frozen=True, kw_only=True, tag="resource:cost"):
    type: ClassVar[Literal["resource:cost"]] = "resource:cost"
    delta: CostBreakdown
    cumulative: CostBreakdown


class ContextWindowEvent(ACPEventBase, frozen=True, kw_only=True, tag="resource:context_window"):
    type: ClassVar[Literal["resource:context_window"]] = "resource:context_window"
    used: int
    limit: int
    percentage: float


class RateLimitEvent(ACPEventBase, frozen=True, kw_only=True, tag="resource:rate_limit"):
    type: ClassVar[Literal["resource:rate_limit"]] = "resource:rate_limit"
    limit: str
    retry_after: float | None = None
    message: str | None = None


class EnvironmentInfoEvent(ACPEventBase, frozen=True, kw_only=True, tag="environment:info"):
    type: ClassVar[Literal["environment:info"]] = "environment:info"
    context: EnvironmentContext


class UserQuestionEvent(ACPEventBase, frozen=True, kw_only=True, tag="interaction:question"):
    type: ClassVar[Literal["interaction:question"]] = "interaction:question"
    question_id: str
    question: str
    options: tuple[str, ...] | None = None
    default_value: str | None = None
    expires_at: str | None = None


class NotificationEvent(ACPEventBase, frozen=True, kw_only=True, tag="interaction:notification"):
    type: ClassVar[Literal["interaction:notification"]] = "interaction:notification"
    level: NotificationLevel
    title: str
    message: str
    action_url: str | None = None


class GitOperationEvent(ACPEventBase, frozen=True, kw_only=True, tag="git:operation"):
    type: ClassVar[Literal["git:operation"]] = "git:operation"
    operation: GitOperation
    tool_call_id: str | None = None


class WebOperationEvent(ACPEventBase, frozen=True, kw_only=True, tag="web:operation"):
    type: ClassVar[Literal["web:operation"]] = "web:operation"
    operation: WebOperation
    tool_call_id: str | None = None


class CustomEvent(ACPEventBase, frozen=True, kw_only=True, tag="custom"):
    type: ClassVar[Literal["custom"]] = "custom"
    namespace: str
    event_name: str
    data: dict[str, Any]


SessionEvents: TypeAlias = (
    SessionStartedEvent
    | SessionResumedEvent
    | SessionPausedEvent
    | SessionCompletedEvent
    | SessionErrorEvent
    | SessionStatusChangedEvent
)
MessageEvents: TypeAlias = MessageStartEvent | MessageDeltaEvent | MessageCompleteEvent
ThinkingEvents: TypeAlias = ThinkingStartEvent | ThinkingDeltaEvent | ThinkingCompleteEvent
ToolEvents: TypeAlias = (
    ToolCallStartEvent
    | ToolCallArgsDeltaEvent
    | ToolCallExecutingEvent
    | ToolCallResultEvent
    | ToolCallErrorEvent
)
ApprovalEvents: TypeAlias = ApprovalRequestedEvent | ApprovalResolvedEvent
FileEvents: TypeAlias = FileChangeEvent | FileChangeBatchEvent
SubAgentEvents: TypeAlias = SubAgentSpawnedEvent | SubAgentProgressEvent | SubAgentCompletedEvent
ProgressEvents: TypeAlias = TodoUpdateEvent | PlanModeEvent | ProgressEvent
ResourceEvents: TypeAlias = TokenUsageEvent | CostUpdateEvent | ContextWindowEvent | RateLimitEvent
EnvironmentEvents: TypeAlias = EnvironmentInfoEvent
InteractionEvents: TypeAlias = UserQuestionEvent | NotificationEvent
GitEvents: TypeAlias = GitOperationEvent
WebEvents: TypeAlias = WebOperationEvent
ContextEvent: TypeAlias = (
    SessionEvents
    | MessageEvents
    | ThinkingEvents
    | ToolEvents
    | ApprovalEvents
    | FileEvents
    | SubAgentEvents
    | ProgressEvents
    | ResourceEvents
    | EnvironmentEvents
    | InteractionEvents
    | GitEvents
    | WebEvents
    | CustomEvent
)
"""The closed union of every event."""

ACPEvent: TypeAlias = ContextEvent

EVENT_CLASSES: Final[Mapping[str, type[ContextEvent]]] = {
    event_class.type: event_class for event_class in get_args(ContextEvent)
}
"""Every event class by its type, in the order of the seed."""


E_co = TypeVar("E_co", bound=ContextEvent, covariant=True)


class EventFilter(tuple[type[E_co], ...]):
    """The classes of one family of events: for `isinstance`, or as a predicate."""

    def __call__(self, event: object) -> TypeGuard[E_co]:
        """Return whether an event is one of the family; usable with `filter`."""
        return isinstance(event, self)

    @property
    def types(self) -> tuple[str, ...]:
        """The `type` of each class."""
        return tuple(event_class.type for event_class in self)


ACPEventByPrefix = EventFilter


@overload
def events_by_prefix(prefix: Literal["session:"]) -> EventFilter[SessionEvents]: ...
@overload
def events_by_prefix(prefix: Literal["message:"]) -> EventFilter[MessageEvents]: ...
@overload
def events_by_prefix(prefix: Literal["thinking:"]) -> EventFilter[ThinkingEvents]: ...
@overload
def events_by_prefix(prefix: Literal["tool:"]) -> EventFilter[ToolEvents]: ...
@overload
def events_by_prefix(prefix: Literal["approval:"]) -> EventFilter[ApprovalEvents]: ...
@overload
def events_by_prefix(prefix: Literal["file:"]) -> EventFilter[FileEvents]: ...
@overload
def events_by_prefix(prefix: Literal["subagent:"]) -> EventFilter[SubAgentEvents]: ...
@overload
def events_by_prefix(prefix: Literal["progress:"]) -> EventFilter[ProgressEvents]: ...
@overload
def events_by_prefix(prefix: Literal["resource:"]) -> EventFilter[ResourceEvents]: ...
@overload
def events_by_prefix(prefix: Literal["environment:"]) -> EventFilter[EnvironmentEvents]: ...
@overload
def events_by_prefix(prefix: Literal["interaction:"]) -> EventFilter[InteractionEvents]: ...
@overload
def events_by_prefix(prefix: Literal["git:"]) -> EventFilter[GitEvents]: ...
@overload
def events_by_prefix(prefix: Literal["web:"]) -> EventFilter[WebEvents]: ...
@overload
def events_by_prefix(prefix: Literal["custom"]) -> EventFilter[CustomEvent]: ...
@overload
def events_by_prefix(prefix: str) -> EventFilter[ContextEvent]: ...
def events_by_prefix(prefix: str) -> EventFilter[Any]:
    """Return the events whose type starts with `prefix`; none for an unknown prefix."""
    return EventFilter(
        event_class for name, event_class in EVENT_CLASSES.items() if name.startswith(prefix)
    )

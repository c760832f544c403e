"""All events of the log: one class per type, an envelope around a verbatim JSON payload.

A payload is not parsed into a class of its own: keys that an agent adds must survive decoding and
encoding. Only type checkers know its type (`payloads`).

`Event` is sealed: its subclasses are the members of `AnyEvent`. A view dispatches with a `match`
that ends in `assert_never`, so mypy reports every view that does not handle a new event type. A
type that a view ignores is named in a case of its own; `case _` would hide the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import Struct


class UnknownKeys(dict[str, Any]):
    """Keys of an event's envelope that this version does not know; never decoded into."""


if TYPE_CHECKING:
    from quarterdeck.protocol.payloads import (
        AcpEventExtensions,
        AgentRemovedPayload,
        AgentUpdatedPayload,
        ApprovalMismatchPayload,
        AvailableCommandsUpdatePayload,
        ConfigOptionsUpdatePayload,
        CurrentModeUpdatePayload,
        DiagnosticPayload,
        ForegroundPayload,
        InstallProgressPayload,
        MessageChunkPayload,
        MessageUpdatePayload,
        PermissionRequestCreatedPayload,
        PermissionRequestResolvedPayload,
        PermissionUpdatedPayload,
        PlanPayload,
        PlanRemovedPayload,
        PlanUpdatePayload,
        PromptFinishedPayload,
        SessionConfigInitPayload,
        SessionInfoUpdatePayload,
        SessionResetPayload,
        SessionStatusChangePayload,
        SessionUpdatedPayload,
        TerminalOutputPayload,
        TerminalUpdatePayload,
        ToolCallContentChunkPayload,
        ToolCallPayload,
        ToolCallUpdatePayload,
        UnrecognizedUpdatePayload,
        UsageUpdatePayload,
    )

    _AgentId: TypeAlias = str | None
    _Extensions: TypeAlias = AcpEventExtensions | None
    _UnknownKeys: TypeAlias = "UnknownKeys | None"
else:
    # What msgspec sees. Payloads are `dict`, because it would drop the unknown keys of a typed one.
    # None is not accepted although it is the default, and no JSON value is accepted for unknown
    # keys: an event that is rejected here takes the slow path of `codec`, which loses nothing.
    _AgentId = str
    _Extensions = dict
    _UnknownKeys = UnknownKeys
    AgentRemovedPayload = dict
    AgentUpdatedPayload = dict
    ApprovalMismatchPayload = dict
    AvailableCommandsUpdatePayload = dict
    ConfigOptionsUpdatePayload = dict
    CurrentModeUpdatePayload = dict
    DiagnosticPayload = dict
    ForegroundPayload = dict
    InstallProgressPayload = dict
    MessageChunkPayload = dict
    MessageUpdatePayload = dict
    PermissionRequestCreatedPayload = dict
    PermissionRequestResolvedPayload = dict
    PermissionUpdatedPayload = dict
    PlanPayload = dict
    PlanRemovedPayload = dict
    PlanUpdatePayload = dict
    PromptFinishedPayload = dict
    SessionConfigInitPayload = dict
    SessionInfoUpdatePayload = dict
    SessionResetPayload = dict
    SessionStatusChangePayload = dict
    SessionUpdatedPayload = dict
    TerminalOutputPayload = dict
    TerminalUpdatePayload = dict
    ToolCallContentChunkPayload = dict
    ToolCallPayload = dict
    ToolCallUpdatePayload = dict
    UnrecognizedUpdatePayload = dict
    UsageUpdatePayload = dict


class Event(
    Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    rename="camel",
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Any event. `ts` is in milliseconds; `seq` counts within the session, or within the host."""

    seq: int
    ts: int | float
    payload: Any
    extensions: _Extensions = None
    unknown: _UnknownKeys = None
    """Top-level keys that the class does not have, and explicit nulls: for `encode_event`."""

    if TYPE_CHECKING:
        # Every subclass has these three: as a field, or as a constant.
        @property
        def type(self) -> str: ...
        @property
        def session_id(self) -> str | None: ...
        @property
        def agent_id(self) -> str | None: ...


class SessionEvent(Event, frozen=True, kw_only=True, tag_field="type"):
    """An event of one session."""

    session_id: str
    agent_id: ClassVar[None] = None


class HostEvent(Event, frozen=True, kw_only=True, tag_field="type"):
    """An event of the host itself; `agent_id` is None where no agent owns it."""

    agent_id: _AgentId = None
    session_id: ClassVar[None] = None


class UserMessageChunkEvent(SessionEvent, frozen=True, kw_only=True, tag="user-message-chunk"):
    type: ClassVar[Literal["user-message-chunk"]] = "user-message-chunk"
    payload: MessageChunkPayload


class AgentMessageChunkEvent(SessionEvent, frozen=True, kw_only=True, tag="agent-message-chunk"):
    type: ClassVar[Literal["agent-message-chunk"]] = "agent-message-chunk"
    payload: MessageChunkPayload


class AgentThoughtChunkEvent(SessionEvent, frozen=True, kw_only=True, tag="agent-thought-chunk"):
    type: ClassVar[Literal["agent-thought-chunk"]] = "agent-thought-chunk"
    payload: MessageChunkPayload


class ToolCallEvent(SessionEvent, frozen=True, kw_only=True, tag="tool-call"):
    type: ClassVar[Literal["tool-call"]] = "tool-call"
    payload: ToolCallPayload


class ToolCallUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="tool-call-update"):
    type: ClassVar[Literal["tool-call-update"]] = "tool-call-update"
    payload: ToolCallUpdatePayload


class PlanEvent(SessionEvent, frozen=True, kw_only=True, tag="plan"):
    type: ClassVar[Literal["plan"]] = "plan"
    payload: PlanPayload


class AvailableCommandsUpdateEvent(
    SessionEvent, frozen=True, kw_only=True, tag="available-commands-update"
):
    type: ClassVar[Literal["available-commands-update"]] = "available-commands-update"
    payload: AvailableCommandsUpdatePayload


class CurrentModeUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="current-mode-update"):
    type: ClassVar[Literal["current-mode-update"]] = "current-mode-update"
    payload: CurrentModeUpdatePayload


class SessionConfigInitEvent(SessionEvent, frozen=True, kw_only=True, tag="session-config-init"):
    type: ClassVar[Literal["session-config-init"]] = "session-config-init"
    payload: SessionConfigInitPayload


class ConfigOptionsUpdateEvent(
    SessionEvent, frozen=True, kw_only=True, tag="config-options-update"
):
    type: ClassVar[Literal["config-options-update"]] = "config-options-update"
    payload: ConfigOptionsUpdatePayload


class SessionInfoUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="session-info-update"):
    type: ClassVar[Literal["session-info-update"]] = "session-info-update"
    payload: SessionInfoUpdatePayload


class UsageUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="usage-update"):
    type: ClassVar[Literal["usage-update"]] = "usage-update"
    payload: UsageUpdatePayload


class PromptFinishedEvent(SessionEvent, frozen=True, kw_only=True, tag="prompt-finished"):
    type: ClassVar[Literal["prompt-finished"]] = "prompt-finished"
    payload: PromptFinishedPayload


class SessionStatusChangeEvent(
    SessionEvent, frozen=True, kw_only=True, tag="session-status-change"
):
    type: ClassVar[Literal["session-status-change"]] = "session-status-change"
    payload: SessionStatusChangePayload


class SessionResetEvent(SessionEvent, frozen=True, kw_only=True, tag="session-reset"):
    type: ClassVar[Literal["session-reset"]] = "session-reset"
    payload: SessionResetPayload


class PermissionRequestCreatedEvent(
    SessionEvent, frozen=True, kw_only=True, tag="permission-request-created"
):
    type: ClassVar[Literal["permission-request-created"]] = "permission-request-created"
    payload: PermissionRequestCreatedPayload


class PermissionRequestResolvedEvent(
    SessionEvent, frozen=True, kw_only=True, tag="permission-request-resolved"
):
    type: ClassVar[Literal["permission-request-resolved"]] = "permission-request-resolved"
    payload: PermissionRequestResolvedPayload


class ApprovalMismatchEvent(SessionEvent, frozen=True, kw_only=True, tag="approval-mismatch"):
    """What an agent did after an approval differs from what was shown; added by the host."""

    type: ClassVar[Literal["approval-mismatch"]] = "approval-mismatch"
    payload: ApprovalMismatchPayload


class TerminalOutputEvent(SessionEvent, frozen=True, kw_only=True, tag="terminal-output"):
    type: ClassVar[Literal["terminal-output"]] = "terminal-output"
    payload: TerminalOutputPayload


class MessageUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="message-update"):
    """The whole content of a message, in place of what it had; of agents that speak ACP 2."""

    type: ClassVar[Literal["message-update"]] = "message-update"
    payload: MessageUpdatePayload


class ToolCallContentChunkEvent(
    SessionEvent, frozen=True, kw_only=True, tag="tool-call-content-chunk"
):
    """One more element of a tool call's content; of agents that speak ACP 2."""

    type: ClassVar[Literal["tool-call-content-chunk"]] = "tool-call-content-chunk"
    payload: ToolCallContentChunkPayload


class TerminalUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="terminal-update"):
    """Facts of a terminal that the agent owns, or its whole output; of agents that speak ACP 2."""

    type: ClassVar[Literal["terminal-update"]] = "terminal-update"
    payload: TerminalUpdatePayload


class ForegroundEvent(SessionEvent, frozen=True, kw_only=True, tag="foreground"):
    """What the agent is doing now, and what runs in its background; of agents that speak ACP 2."""

    type: ClassVar[Literal["foreground"]] = "foreground"
    payload: ForegroundPayload


class PlanUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="plan-update"):
    """One of several plans, or one that is not a list of entries; of agents that speak ACP 2."""

    type: ClassVar[Literal["plan-update"]] = "plan-update"
    payload: PlanUpdatePayload


class PlanRemovedEvent(SessionEvent, frozen=True, kw_only=True, tag="plan-removed"):
    type: ClassVar[Literal["plan-removed"]] = "plan-removed"
    payload: PlanRemovedPayload


class UnrecognizedUpdateEvent(SessionEvent, frozen=True, kw_only=True, tag="unrecognized-update"):
    type: ClassVar[Literal["unrecognized-update"]] = "unrecognized-update"
    payload: UnrecognizedUpdatePayload


class AgentUpdatedEvent(HostEvent, frozen=True, kw_only=True, tag="agent-updated"):
    type: ClassVar[Literal["agent-updated"]] = "agent-updated"
    payload: AgentUpdatedPayload


class AgentRemovedEvent(HostEvent, frozen=True, kw_only=True, tag="agent-removed"):
    type: ClassVar[Literal["agent-removed"]] = "agent-removed"
    payload: AgentRemovedPayload


class SessionUpdatedEvent(HostEvent, frozen=True, kw_only=True, tag="session-updated"):
    type: ClassVar[Literal["session-updated"]] = "session-updated"
    payload: SessionUpdatedPayload


class PermissionUpdatedEvent(HostEvent, frozen=True, kw_only=True, tag="permission-updated"):
    type: ClassVar[Literal["permission-updated"]] = "permission-updated"
    payload: PermissionUpdatedPayload


class InstallProgressEvent(HostEvent, frozen=True, kw_only=True, tag="install-progress"):
    type: ClassVar[Literal["install-progress"]] = "install-progress"
    payload: InstallProgressPayload


class DiagnosticEvent(HostEvent, frozen=True, kw_only=True, tag="diagnostic"):
    type: ClassVar[Literal["diagnostic"]] = "diagnostic"
    payload: DiagnosticPayload


class UnknownEvent(Event, frozen=True, kw_only=True):
    """An event of an unknown type, from a newer version; `raw` is the whole event."""

    type: str
    session_id: str | None
    agent_id: str | None
    raw: dict[str, Any]


AcpSessionEvent: TypeAlias = (
    UserMessageChunkEvent
    | AgentMessageChunkEvent
    | AgentThoughtChunkEvent
    | ToolCallEvent
    | ToolCallUpdateEvent
    | PlanEvent
    | AvailableCommandsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | ConfigOptionsUpdateEvent
    | SessionInfoUpdateEvent
    | UsageUpdateEvent
    | PromptFinishedEvent
    | SessionStatusChangeEvent
    | SessionResetEvent
    | PermissionRequestCreatedEvent
    | PermissionRequestResolvedEvent
    | ApprovalMismatchEvent
    | TerminalOutputEvent
    | UnrecognizedUpdateEvent
    | MessageUpdateEvent
    | ToolCallContentChunkEvent
    | TerminalUpdateEvent
    | ForegroundEvent
    | PlanUpdateEvent
    | PlanRemovedEvent
)
AcpHostProjectionEvent: TypeAlias = (
    AgentUpdatedEvent | AgentRemovedEvent | SessionUpdatedEvent | PermissionUpdatedEvent
)
AcpHostTelemetryEvent: TypeAlias = InstallProgressEvent | DiagnosticEvent
AcpHostEvent: TypeAlias = AcpHostProjectionEvent | AcpHostTelemetryEvent
AcpEvent: TypeAlias = AcpSessionEvent | AcpHostEvent
"""The closed union of every event we know."""
AnyEvent: TypeAlias = AcpEvent | UnknownEvent


def any_event(event: Event) -> AnyEvent:
    """Return the same object, typed as a member of the closed union: the subject of a `match`."""
    return event  # type: ignore[return-value]  # `Event` is sealed; a test checks its subclasses


SESSION_EVENT_CLASSES: Final[Mapping[str, type[SessionEvent]]] = {
    event_class.type: event_class for event_class in get_args(AcpSessionEvent)
}
HOST_EVENT_CLASSES: Final[Mapping[str, type[HostEvent]]] = {
    event_class.type: event_class for event_class in get_args(AcpHostEvent)
}
SESSION_EVENT_TYPES: Final = frozenset(SESSION_EVENT_CLASSES)
HOST_EVENT_TYPES: Final = frozenset(HOST_EVENT_CLASSES)

"""What a session looks like after its events so far: derived by `reduce`, never stored.

Absent values are None, and `null` in JSON, so that states are comparable field by field. The
exceptions stay absent (`UNSET`): a tool call's raw input, raw output and extensions, a terminal's
exit and a permission's outcome, where null is a value that an agent or a person can give; and what
only agents with ACP 2 report: the facts of their terminals, `foreground` and `plans`.

States are immutable and share what did not change, and the JSON of the events they come from;
`persistent` and `terminal_output` explain how. They can be compared, but have no hash, because they
hold JSON objects. `to_json` writes them; msgspec alone would write their inner structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from quarterdeck.protocol.acp_types import (
    AvailableCommand,
    ContentBlock,
    Cost,
    PermissionOption,
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
from quarterdeck.protocol.payloads import (
    AcpEventExtensions,
    ForegroundPayload,
    MessageKind,
    PermissionResolution,
    PlanPayload,
    PlanUpdatePayload,
    PromptErrorState,
    SessionStatus,
    TerminalExit,
    TerminalSize,
    ToolCallUpdatePayload,
)
from quarterdeck.protocol.persistent import Blocks, KeyedSequence, OrderedMap
from quarterdeck.protocol.terminal_output import TailBuffer


class SessionMessage(Struct, frozen=True, gc=False, rename="camel"):
    """Chunks of one kind that belong together, one content block each; `seq` is the first's."""

    kind: MessageKind
    message_id: str | None
    content: Blocks[ContentBlock]
    seq: int


class ToolCallState(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    tool_call_id: str
    title: str
    kind: ToolKind | None
    status: ToolCallStatus | None
    content: Sequence[ToolCallContent]
    """A tuple; once an element was appended, `Blocks`."""
    locations: tuple[ToolCallLocation, ...]
    raw_input: Any = UNSET
    raw_output: Any = UNSET
    extensions: AcpEventExtensions | UnsetType = UNSET
    seq: int


class TerminalOutputState(Struct, frozen=True, gc=False, rename="camel"):
    buffer: TailBuffer = field(name="output")
    truncated: bool = False
    exit: TerminalExit | UnsetType = UNSET
    command: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    size: TerminalSize | UnsetType = UNSET
    cancellable: bool | UnsetType = UNSET

    @property
    def output(self) -> str:
        """The end of what the terminal wrote, at most 1 MiB; put together at each call."""
        return self.buffer.text


class SessionInfoState(Struct, frozen=True, gc=False, rename="camel"):
    title: str | None = None
    updated_at: str | None = None


class SessionUsageState(Struct, frozen=True, gc=False, rename="camel"):
    used: int
    size: int
    cost: Cost | None = None


class SessionConnectionState(Struct, frozen=True, gc=False, rename="camel"):
    status: SessionStatus = "creating"
    resumed: bool = False


class PendingPermissionRequest(Struct, frozen=True, gc=False, rename="camel"):
    request_id: str
    tool_call: ToolCallUpdatePayload
    options: tuple[PermissionOption, ...]


class ResolvedPermissionRequest(Struct, frozen=True, gc=False, rename="camel"):
    request_id: str
    tool_call: ToolCallUpdatePayload
    status: PermissionResolution
    outcome: RequestPermissionOutcome | UnsetType | None = UNSET


class SessionState(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    session_id: str
    messages: KeyedSequence[SessionMessage]
    tool_calls: OrderedMap[ToolCallState]
    plan: PlanPayload | None = None
    available_commands: tuple[AvailableCommand, ...] = ()
    modes: SessionModeState | None = None
    config_options: tuple[SessionConfigOption, ...] = ()
    info: SessionInfoState = SessionInfoState()
    usage: SessionUsageState | None = None
    last_turn_usage: Usage | None = None
    last_stop_reason: StopReason | None = None
    last_prompt_error: PromptErrorState | None = None
    connection: SessionConnectionState = SessionConnectionState()
    pending_permission_requests: tuple[PendingPermissionRequest, ...] = ()
    terminals: OrderedMap[TerminalOutputState]
    resolved_permission_requests: tuple[ResolvedPermissionRequest, ...] = ()
    foreground: ForegroundPayload | UnsetType = UNSET
    """What the agent reported last about its work; absent for agents that do not report it."""
    plans: Mapping[str, PlanUpdatePayload] | UnsetType = UNSET
    """Plans by their ids; absent for agents that have one plan."""


def initial_state(session_id: str) -> SessionState:
    """Return the state of a session without events."""
    return SessionState(
        session_id=session_id,
        messages=KeyedSequence.empty(),
        tool_calls=OrderedMap.empty(),
        terminals=OrderedMap.empty(),
    )

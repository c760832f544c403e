"""Objects that hosts and clients exchange besides events: definitions, parameters, snapshots.

Keys that are absent (`UNSET`) are left out of their JSON. Null is always a value that an agent
sent: a title or a time that it cleared, a capability that it named without having it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from quarterdeck.protocol.acp_types import (
        AuthMethod,
        JsonObject,
        McpServer,
        PermissionOption,
        RequestPermissionOutcome,
    )
    from quarterdeck.protocol.payloads import (
        AgentExit,
        AgentExitReason,
        AgentStatus,
        SessionStatus,
        ToolCallUpdatePayload,
    )
else:
    # What msgspec sees when it reads them: objects whose unknown keys it must not drop, and names
    # that a newer host may add to.
    AgentExitReason = AgentStatus = SessionStatus = str
    AgentExit = AuthMethod = JsonObject = McpServer = dict
    PermissionOption = RequestPermissionOutcome = ToolCallUpdatePayload = dict


class _Shape(Struct, frozen=True, rename="camel"):
    """Camel case on the wire."""


class AgentDefinition(_Shape, frozen=True, omit_defaults=True):
    """How to start an agent: by a command, or at the `url` where it runs."""

    id: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    meta: Mapping[str, Any] | None = None
    url: str | None = None
    """http and https: Streamable HTTP; ws and wss: a WebSocket."""
    headers: Mapping[str, str] | None = None
    """Sent to the `url`; never published, as `env` is not."""
    protocol: Literal["auto", 1, 2] | None = None
    """The version of ACP to speak with it; None is 1."""


class SessionConfigValue(_Shape, frozen=True, kw_only=True):
    """A new value for a config option; `type` is there for a boolean only."""

    type: Literal["boolean"] | UnsetType = UNSET
    value: str | bool

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) != (self.type == "boolean"):
            raise ValueError("a boolean value has type 'boolean', a string has no type")


class CreateOrLoadSessionParams(_Shape, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: tuple[McpServer, ...]
    additional_directories: tuple[str, ...]


class ResumeSessionParams(_Shape, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: tuple[McpServer, ...] | UnsetType = UNSET
    additional_directories: tuple[str, ...]


class AgentCapabilitiesWire(_Shape, frozen=True, kw_only=True):
    """The stable capabilities of an agent that this product uses; each only if the agent sent it.

    Experimental, authentication and provider fields stay out on purpose.
    """

    load_session: bool | UnsetType | None = UNSET
    mcp_capabilities: JsonObject | UnsetType | None = UNSET
    nes: JsonObject | UnsetType | None = UNSET
    position_encoding: str | UnsetType | None = UNSET
    prompt_capabilities: JsonObject | UnsetType | None = UNSET
    session_capabilities: JsonObject | UnsetType | None = UNSET


class AgentSnapshotWire(_Shape, frozen=True, kw_only=True):
    """An agent as the host knows it; `auth_methods` are verbatim from its `initialize` answer."""

    agent_id: str
    status: AgentStatus
    restart_count: int
    reason: AgentExitReason | UnsetType = UNSET
    exit: AgentExit | UnsetType = UNSET
    capabilities: AgentCapabilitiesWire | UnsetType = UNSET
    auth_methods: tuple[AuthMethod, ...] | UnsetType = UNSET


class SessionSnapshotWire(_Shape, frozen=True, kw_only=True):
    """A session as the host knows it."""

    session_id: str
    status: SessionStatus
    agent_id: str | UnsetType = UNSET
    cwd: str
    mcp_servers: tuple[McpServer, ...] | UnsetType = UNSET
    additional_directories: tuple[str, ...]
    agent_definition_id: str | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    parent_session_id: str | UnsetType = UNSET
    """The session whose sub-agent this is."""


CreateSessionResult = SessionSnapshotWire
"""What creating a session answers with."""


class HostPermissionSnapshot(_Shape, frozen=True, kw_only=True):
    """A permission request as the host knows it."""

    request_id: str
    session_id: str
    parent_session_id: str | UnsetType = UNSET
    """The session whose sub-agent asks."""
    agent_id: str | UnsetType = UNSET
    status: Literal["pending", "answered", "superseded"]
    tool_call: ToolCallUpdatePayload
    options: tuple[PermissionOption, ...]
    outcome: RequestPermissionOutcome | UnsetType = UNSET


ELICITATION_UPDATED: Final = "quarterdeck/elicitation-updated"
"""The type of a host's event with a `HostElicitationSnapshot`; outside the closed set of events,
so a client that knows only that set treats it as an event of a newer version."""


class HostElicitationSnapshot(_Shape, frozen=True, kw_only=True):
    """An elicitation as the host knows it; ours, acpjs has none."""

    request_id: str
    session_id: str | UnsetType = UNSET
    """Absent if it belongs to a request of ours, such as signing in, and not to a session."""
    agent_id: str | UnsetType = UNSET
    status: Literal["pending", "answered", "superseded"]
    request: JsonObject
    """The params of `elicitation/create` as the agent sent them."""
    requested_at: str | UnsetType = UNSET
    """Absent in logs of earlier versions."""
    action: str | UnsetType = UNSET
    """How it was answered; what was answered is the agent's alone."""
    completed: bool | UnsetType = UNSET
    """Set when the agent reports that the person has finished on the linked page."""

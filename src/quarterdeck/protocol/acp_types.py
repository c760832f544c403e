"""The Agent Client Protocol's own shapes, as far as events and snapshots carry them.

For type checkers only: at run time they are the agent's JSON objects, verbatim, so that what a
newer agent adds survives. The complete vocabulary is `quarterdeck.acp`.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

JsonObject: TypeAlias = dict[str, Any]

ContentBlock: TypeAlias = JsonObject
"""text, image, audio, resource_link or resource; `type` says which."""

ToolCallContent: TypeAlias = JsonObject
"""content, diff or terminal; `type` says which."""

McpServer: TypeAlias = JsonObject
"""stdio, http or sse; `type` says which, which stdio lacks."""

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]
ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolCallStatus: TypeAlias = Literal[
    "pending", "in_progress", "paused", "completed", "failed", "cancelled"
]


class ToolCallLocation(TypedDict):
    path: str
    line: NotRequired[int | None]


class PlanEntry(TypedDict):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class AvailableCommand(TypedDict):
    name: str
    description: str
    input: NotRequired[JsonObject | None]


class SessionMode(TypedDict):
    id: str
    name: str
    description: NotRequired[str | None]


class SessionModeState(TypedDict):
    currentModeId: str
    availableModes: list[SessionMode]


class SessionConfigOption(TypedDict):
    id: str
    name: str
    type: Literal["select", "boolean"]
    currentValue: str | bool
    description: NotRequired[str | None]
    category: NotRequired[str | None]
    options: NotRequired[list[JsonObject]]


class Cost(TypedDict):
    amount: float
    currency: str


class Usage(TypedDict):
    inputTokens: int
    outputTokens: int
    totalTokens: int
    cachedReadTokens: NotRequired[int | None]
    cachedWriteTokens: NotRequired[int | None]
    thoughtTokens: NotRequired[int | None]


class PermissionOption(TypedDict):
    optionId: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class RequestPermissionOutcome(TypedDict):
    outcome: Literal["selected", "cancelled"]
    optionId: NotRequired[str]


class AuthMethod(TypedDict):
    id: str
    name: str
    description: NotRequired[str | None]


class AgentCapabilities(TypedDict):
    loadSession: NotRequired[bool]
    mcpCapabilities: NotRequired[JsonObject]
    promptCapabilities: NotRequired[JsonObject]
    sessionCapabilities: NotRequired[JsonObject]


class ListedSession(TypedDict):
    sessionId: str
    cwd: str
    title: NotRequired[str | None]
    updatedAt: NotRequired[str | None]


class ListSessionsResponse(TypedDict):
    sessions: list[ListedSession]
    nextCursor: NotRequired[str | None]

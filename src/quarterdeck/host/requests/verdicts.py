"""A permission request, and the verdict of the hook that looks at it before anyone else.

`HostOptions.on_permission` is a pure, fast function of a request and of what is known of its tool
call. `permissions` says when it runs and what its verdict leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import UNSET

from quarterdeck.host.requests.table import AgentRequest
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import HostPermissionSnapshot, ToolCallFacts

_REJECTING: Final = frozenset({"reject_once", "reject_always"})


class PermissionRequest(AgentRequest):
    """One permission request."""

    superseded_answer: ClassVar = {"outcome": {"outcome": "cancelled"}}

    def __init__(self, request_id: str, session: HostSession, params: dict[str, Any]) -> None:
        super().__init__(request_id, session.agent_id, session)
        self.in_session = session
        self.tool_call = params.get("toolCall")
        self.options = params.get("options")
        self.outcome: dict[str, Any] | None = None
        self.facts: ToolCallFacts | None = None
        """What is known of the call; None without a hook."""
        self.card: Any = None
        """What the hook wants to find again with the request."""
        self.derived: Mapping[str, Any] | None = None
        """What the hook derived: `extensions.quarterdeck.request` of its events."""

    def projection(self) -> dict[str, Any]:
        """Return the payload of `permission-updated`; what the agent sent is in it as it came."""
        payload: dict[str, Any] = {"requestId": self.id, "sessionId": self.in_session.id}
        if self.agent_id is not None:
            payload["agentId"] = self.agent_id
        payload |= {"status": self.status, "toolCall": self.tool_call, "options": self.options}
        if self.outcome is not None:
            payload["outcome"] = self.outcome
        return payload

    def snapshot(self) -> HostPermissionSnapshot:
        tool_call: Any = self.tool_call
        options = self.options if isinstance(self.options, list) else []
        outcome: Any = UNSET if self.outcome is None else self.outcome
        return HostPermissionSnapshot(
            request_id=self.id,
            session_id=self.in_session.id,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            status=self.status,
            tool_call=tool_call,
            options=tuple(options),
            outcome=outcome,
        )

    def is_refused_by(self, outcome: Mapping[str, Any]) -> bool:
        """Return whether an outcome can only mean no: cancelled, or an option that rejects."""
        if outcome.get("outcome") == "cancelled":
            return True
        options = self.options if isinstance(self.options, list) else []
        chosen = [
            option.get("kind")
            for option in options
            if isinstance(option, Mapping) and option.get("optionId") == outcome.get("optionId")
        ]
        return bool(chosen) and all(isinstance(kind, str) and kind in _REJECTING for kind in chosen)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The verdict that leaves a request to people."""

    card: Any = None
    """Kept with the request (`PermissionRequest.card`); the host does not look at it."""
    derived: Mapping[str, Any] | None = None
    """Travels with the request's events as `extensions.quarterdeck.request`."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The verdict that answers a request."""

    outcome: Mapping[str, Any]
    by: Mapping[str, Any]
    """What decided, for `extensions.quarterdeck.decidedBy`; agents do not get it."""
    derived: Mapping[str, Any] | None = None


Verdict: TypeAlias = Ask | Decided
OnPermission: TypeAlias = Callable[[PermissionRequest, ToolCallFacts], Verdict]

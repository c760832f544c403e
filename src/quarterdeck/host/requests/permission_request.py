"""One permission request, and what a hook returns for it.

`PermissionRequests` (`permissions`) opens and answers requests. A hook (`OnPermission`) sees each
one first and returns a `Verdict`: `Ask` leaves it to people, `Decided` answers it.
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

_KNOWN_PARAMS: Final = frozenset({"sessionId", "toolCall", "options"})


class PermissionRequest(AgentRequest):
    """One permission request."""

    superseded_answer: ClassVar = {"outcome": {"outcome": "cancelled"}}
    session: HostSession  # always of a session; an elicitation may have none

    def __init__(self, request_id: str, session: HostSession, params: dict[str, Any]) -> None:
        super().__init__(request_id, session.agent_id, session)
        self.tool_call = params.get("toolCall")
        self.options = params.get("options")
        self.more = {name: params[name] for name in params if name not in _KNOWN_PARAMS}
        """What else the agent sent with it, such as `_meta`: extensions of its first event."""
        self.outcome: dict[str, Any] | None = None
        self.facts: ToolCallFacts | None = None
        """What is known of the call; None without a hook."""
        self.earlier: ToolCallFacts | None = None
        """What was known of the call before the request, if it is open in this turn."""
        self.open_calls: tuple[ToolCallFacts, ...] = ()
        """Other open calls of the turn that no request was for, if this one has no input: some
        agents ask under an id of their own."""
        self.hook_data: object = None
        """What the hook keeps with the request; opaque to the host. In a runner it is an
        `InspectedRequest`, which `runner/permissions/card.inspection_of` returns."""
        self.derived: Mapping[str, Any] | None = None
        """What the hook derived: `extensions.quarterdeck.request` of its events."""

    def event_payload(self) -> dict[str, Any]:
        """Return the payload of `permission-updated`, with the agent's JSON as it was received."""
        payload: dict[str, Any] = {"requestId": self.id, "sessionId": self.session.id}
        if self.session.parent_id is not None:
            payload["parentSessionId"] = self.session.parent_id
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
            session_id=self.session.id,
            parent_session_id=UNSET if self.session.parent_id is None else self.session.parent_id,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            status=self.status,
            tool_call=tool_call,
            options=tuple(options),
            outcome=outcome,
        )

    def is_refused_by(self, outcome: Mapping[str, Any]) -> bool:
        """Return whether an outcome can only refuse: cancelled, or an option that rejects."""
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

    hook_data: object = None
    """Kept with the request, as `PermissionRequest.hook_data`."""
    derived: Mapping[str, Any] | None = None
    """Added to the request's events as `extensions.quarterdeck.request`."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The verdict that answers a request."""

    outcome: Mapping[str, Any]
    by: Mapping[str, Any]
    """What decided, for `extensions.quarterdeck.decidedBy`; agents do not get it."""
    hook_data: object = None
    """Kept with the request if it is left to people after all."""
    derived: Mapping[str, Any] | None = None


Verdict: TypeAlias = Ask | Decided
OnPermission: TypeAlias = Callable[[PermissionRequest, ToolCallFacts], Verdict]
FindDecision: TypeAlias = Callable[[str, str], tuple[Mapping[str, Any], Mapping[str, Any]] | None]
"""Of the ids of a session and a request; returns the outcome, and who or what decided."""

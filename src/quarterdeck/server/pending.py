"""A pending permission request with all that a decision needs, and how answers are worded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from quarterdeck.dialects.context import InspectedCall, inspect_call, resolution
from quarterdeck.errors import RequestRejected
from quarterdeck.host import PermissionRequest
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.server.approval_views import (
    OptionView,
    PermissionCard,
    call_view,
    digest_of,
    is_ambiguous,
    option_views,
)
from quarterdeck.server.decision_rows import (
    MOST_REASON,
    DecidedBy,
    IndexEntry,
    RecordedDecision,
    facts_of,
)

_CANCELLED: Final = {"outcome": "cancelled"}


@dataclass(frozen=True)
class PendingPermission:
    """A permission request that waits, with all that a decision needs."""

    card: PermissionCard
    call: InspectedCall

    def outcome(self, option_id: str | None) -> dict[str, Any]:
        """Return what is sent to the agent for a choice.

        Raises:
            RequestRejected: if there is no such option, or two.
        """
        if option_id is None:
            return dict(_CANCELLED)
        if self.card.is_ambiguous:
            message = (
                "two options of this request have the same id, so an answer does not say which is "
                "meant; answer it with cancelled"
            )
            raise RequestRejected("ambiguous", message)
        if any(option.option_id == option_id for option in self.card.options):
            return {"outcome": "selected", "optionId": option_id}
        choices = ", ".join(option.option_id for option in self.card.options) or "none"
        raise RequestRejected(
            "invalid", f"{option_id!r} is no option of this request; there are: {choices}"
        )


def make_pending(
    request: PermissionRequest,
    facts: ToolCallFacts,
    *,
    asked_at: str,
    expires_at: str | None,
) -> PendingPermission:
    """Inspect a request; `facts` is all that is known of its call."""
    session = request.in_session
    tool_call: Any = request.tool_call
    call = inspect_call(facts, tool_call if isinstance(tool_call, Mapping) else {})
    options = option_views(request.options if isinstance(request.options, list) else ())
    card = PermissionCard(
        request_id=request.id,
        session_id=session.id,
        agent_id=UNSET if request.agent_id is None else request.agent_id,
        agent=UNSET if session.definition_id is None else session.definition_id,
        cwd=session.place.cwd,
        title=session.title,
        tool_call=request.tool_call,
        call=call_view(call),
        options=options,
        is_ambiguous=is_ambiguous(options),
        digest=digest_of(session.id, request.id, request.tool_call, request.options),
        asked_at=asked_at,
        expires_at=UNSET if expires_at is None else expires_at,
    )
    return PendingPermission(card, call)


def sent_outcome(outcome: Mapping[str, Any], by: DecidedBy) -> dict[str, Any]:
    """Return what goes to the agent; what decided it, if it was no person, or why is with it."""
    sent = dict(outcome)
    if by.kind == "policy":
        rule = "" if by.rule is UNSET else f": {by.rule}"
        sent["_meta"] = resolution("policy", f"the hub's policy{rule}")
    elif by.kind == "expiry":
        sent["_meta"] = resolution("timeout", "nobody answered in time")
    elif by.reason is not UNSET:
        sent["_meta"] = resolution("user", by.reason)
    return sent


def said_reason(outcome: Mapping[str, Any]) -> str:
    """Return the reason that a client put into the `_meta` of an outcome, "" if there is none.

    Raises:
        RequestRejected: if it is too long.
    """
    meta = outcome.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, Mapping) else None
    reason = ours.get("reason") if isinstance(ours, Mapping) else None
    if not isinstance(reason, str):
        return ""
    if len(reason) > MOST_REASON:
        raise RequestRejected(
            "invalid", f"a reason has at most {MOST_REASON} characters; say it in fewer"
        )
    return reason


def rejecting(options: Sequence[OptionView]) -> str | None:
    """Return the option that refuses once; without one, or if it is not clear, it is cancelled."""
    if is_ambiguous(options):
        return None
    return next((each.option_id for each in options if each.kind == "reject_once"), None)


def is_retry(entry: IndexEntry, by: DecidedBy, key: str | None) -> bool:
    """Return whether an answer is the one that was recorded, sent again: same device, same key."""
    decided = entry.decision.by
    if key is None or key != entry.key or decided is UNSET:
        return False
    return decided.device_id == by.device_id


def winner(decision: RecordedDecision) -> dict[str, Any]:
    return {
        "requestId": decision.request_id,
        "outcome": decision.outcome,
        "by": {} if decision.by is UNSET else facts_of(decision.by),
        "decidedAt": None if decision.decided_at is UNSET else decision.decided_at,
    }


def gone(request_id: str) -> RequestRejected:
    message = f"request {request_id} was withdrawn: its turn was cancelled, or its agent ended"
    return RequestRejected("gone", message)

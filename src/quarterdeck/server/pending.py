"""A request of the inbox with all that a decision needs, and the words for how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from msgspec import UNSET

from quarterdeck.dialects.context import InspectedCall, inspect_call, resolution
from quarterdeck.errors import RequestRefused
from quarterdeck.protocol import HostPermissionSnapshot, SessionSnapshotWire, ToolCallFacts
from quarterdeck.server.approval_views import (
    ApprovalView,
    OptionView,
    call_view,
    digest_of,
    is_ambiguous,
    option_views,
)
from quarterdeck.server.decision_rows import MOST_REASON, Decider, Decision, Question
from quarterdeck.server.refusals import invalid

_CANCELLED: Final = {"outcome": "cancelled"}
WITHDRAWN: Final = Decider(kind="withdrawn")


@dataclass
class Pending:
    """A request that waits, with all that a decision needs."""

    view: ApprovalView
    facts: ToolCallFacts
    call: InspectedCall
    question: Question
    over: anyio.Event = field(default_factory=anyio.Event)

    def outcome(self, option_id: str | None) -> tuple[dict[str, Any], str | None]:
        """Return what is sent to the agent for a choice, and its kind.

        Raises:
            RequestRefused: if there is no such option, or two.
        """
        if option_id is None:
            return dict(_CANCELLED), None
        if self.view.is_ambiguous:
            message = (
                "two options of this request have the same id, so an answer does not say which is "
                "meant; answer it with cancelled"
            )
            raise RequestRefused(409, "ambiguous", message)
        for option in self.view.options:
            if option.option_id == option_id:
                return {"outcome": "selected", "optionId": option_id}, option.kind
        choices = ", ".join(option.option_id for option in self.view.options) or "none"
        raise invalid(f"{option_id!r} is no option of this request; there are: {choices}")


def make_pending(
    request: HostPermissionSnapshot,
    session: SessionSnapshotWire | None,
    facts: ToolCallFacts,
    *,
    asked_at: str,
    expires_at: str | None,
) -> Pending:
    """Examine a new request; `facts` is what is known of its call."""
    asked: Any = request.tool_call
    call = inspect_call(facts, asked if isinstance(asked, dict) else {})
    digest, options = digest_of(request), option_views(request.options)
    agent = UNSET if session is None else session.agent_definition_id
    view = ApprovalView(
        request_id=request.request_id,
        session_id=request.session_id,
        agent_id=request.agent_id,
        agent=agent,
        cwd="" if session is None else session.cwd,
        title=UNSET if session is None else session.title,
        tool_call=request.tool_call,
        call=call_view(call),
        options=options,
        is_ambiguous=is_ambiguous(options),
        digest=digest,
        asked_at=asked_at,
        expires_at=UNSET if expires_at is None else expires_at,
    )
    question = Question(
        request_id=view.request_id,
        session_id=view.session_id,
        agent=None if agent is UNSET else agent,
        digest=digest,
        asked=request.tool_call,
        asked_at=asked_at,
    )
    return Pending(view, facts, call, question)


def sent_outcome(outcome: Mapping[str, Any], by: Decider) -> dict[str, Any]:
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
        RequestRefused: if it is too long.
    """
    meta = outcome.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, Mapping) else None
    reason = ours.get("reason") if isinstance(ours, Mapping) else None
    if not isinstance(reason, str):
        return ""
    if len(reason) > MOST_REASON:
        raise invalid(f"a reason has at most {MOST_REASON} characters; say it in fewer")
    return reason


def rejecting(options: Sequence[OptionView]) -> str | None:
    """Return the option that refuses once; without one, or if it is not clear, it is cancelled."""
    if is_ambiguous(options):
        return None
    return next((each.option_id for each in options if each.kind == "reject_once"), None)


def is_same(decision: Decision, winning_key: str | None, by: Decider, key: str | None) -> bool:
    if key is None or key != winning_key or decision.by is UNSET:
        return False
    return decision.by.device_id == by.device_id


def winner(decision: Decision) -> dict[str, Any]:
    return {
        "requestId": decision.request_id,
        "outcome": decision.outcome,
        "by": {} if decision.by is UNSET else facts_of(decision.by),
        "decidedAt": None if decision.decided_at is UNSET else decision.decided_at,
    }


def facts_of(by: Decider) -> dict[str, Any]:
    named = {
        "deviceId": by.device_id,
        "deviceName": by.device_name,
        "rule": by.rule,
        "reason": by.reason,
    }
    return {"kind": by.kind, **{name: each for name, each in named.items() if each is not UNSET}}


def gone(request_id: str) -> RequestRefused:
    message = f"request {request_id} was withdrawn: its turn was cancelled, or its agent ended"
    return RequestRefused(410, "gone", message)

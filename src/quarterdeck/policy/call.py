"""What a call would do, for the decision about it: from all that is known of it.

The agent's own words (`title`) are kept apart from what follows from its input: words can lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.policy.risk import explain_risk
from quarterdeck.policy.rules import ParsedCall, parse_call
from quarterdeck.policy.tool_call import NamedToolCall
from quarterdeck.policy.tools import describe_tool_call
from quarterdeck.policy.types import RiskLevel
from quarterdeck.protocol import ToolCallFacts

_UNREADABLE: Final = "its input does not say what it does, so it cannot be inspected"


@dataclass(frozen=True, kw_only=True)
class InspectedCall:
    """A call, as far as it can be known before it is made."""

    tool_call_id: str
    name: str
    kind: str | None
    title: str
    """What the agent says it is."""
    description: str
    """What its input says it is."""
    parsed: ParsedCall
    command: str | None
    risk: RiskLevel
    risk_reason: str


def inspect_call(facts: ToolCallFacts, tool_call: Mapping[str, Any]) -> InspectedCall:
    """Inspect the call of a permission request.

    `facts` is what is known of it, `tool_call` what the request has: it may name the tool in fields
    of its own.
    """
    call = NamedToolCall(facts.id, 0)
    call.take(facts, tool_call, 0)
    parsed = parsed_call(call)
    risk, reason = explain_risk(call.name, call.decisive_input, call.kind)
    return InspectedCall(
        tool_call_id=call.id,
        name=call.name,
        kind=call.kind,
        title=call.title,
        description=describe_tool_call(call.name, call.decisive_input),
        parsed=parsed,
        command=call.command,
        risk=risk,
        risk_reason=_UNREADABLE if parsed == ParsedCall() else reason,
    )


def parsed_call(call: NamedToolCall) -> ParsedCall:
    """Return a call as policies see it, from all that is known of it."""
    diffs = [{"type": "diff", "path": path} for path in call.diffs]
    return parse_call(
        call.name, call.kind, call.decisive_input, [*call.content, *diffs], call.locations
    )

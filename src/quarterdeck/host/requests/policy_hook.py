"""Rules as a permission hook, for programs that hold a `Host`, and the policy of one session.

`decide_by_rules(policy)` is a hook for `HostOptions.on_permission`: what a rule decides is never
pending, so no subscriber can see it so or answer it first (see `permissions`). A runner does not
use it: its hook is `PermissionInbox.examine`, which decides by the same function (`policy.decide`)
and also makes cards and an audit.

A session may have a policy, too (`Host.set_session_policy`): `agents/adapters` sets it for a client
of the Agent Context Protocol. Without a hook it decides alone. With one it can only deny: what the
hook leaves to a person may be what a rule of the owner denies but could not read. In a runner no
session has one: `runner/permissions/context_policies` stores such policies, and `examine` decides
by them together with the owner's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.host.requests.permission_request import (
    Ask,
    Decided,
    OnPermission,
    PermissionRequest,
    Verdict,
)
from quarterdeck.host.requests.requested_call import call_of
from quarterdeck.policy import Policy, decide
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.results import resolution_meta


def decide_by_rules(policy: Policy) -> OnPermission:
    """Return a hook that decides by rules, and leaves everything else to people."""

    def hook(request: PermissionRequest, facts: ToolCallFacts) -> Verdict:
        return verdict_of(policy, request, facts)

    return hook


def verdict_of(policy: Policy, request: PermissionRequest, facts: ToolCallFacts) -> Verdict:
    """Decide a request by rules. A rule allows once, never always."""
    session = request.session
    decision = decide(
        policy,
        call_of(request, facts),
        workspace=session.folders.cwd,
        agent=session.definition_id,
    )
    if decision.decision == "ask":
        return Ask()
    wanted = "allow_once" if decision.decision == "allow" else "reject_once"
    option_id = _option(request.options, wanted)
    by = {"kind": "policy", "rule": decision.rule or ""}
    if option_id is not None:
        outcome: dict[str, Any] = {"outcome": "selected", "optionId": option_id}
    elif wanted == "allow_once":
        return Ask()  # a person has to choose for how long
    else:
        outcome = {"outcome": "cancelled"}
    outcome["_meta"] = resolution_meta("policy", decision.reason)
    return Decided(outcome=outcome, by=by)


def _option(options: Any, kind: str) -> str | None:
    """Return the option of a kind; None if there is none, or if its id is used twice."""
    offered = [each for each in options or () if isinstance(each, Mapping)]
    ids = [each.get("optionId") for each in offered]
    for each in offered:
        option_id = each.get("optionId")
        if each.get("kind") == kind and isinstance(option_id, str) and ids.count(option_id) == 1:
            return option_id
    return None

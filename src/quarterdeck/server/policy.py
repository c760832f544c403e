"""What the owner's rules say about a call, and which of them says it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from quarterdeck.dialects.context import (
    Decision,
    ParsedCall,
    PermissionPolicy,
    PolicyRules,
    decide,
)
from quarterdeck.server.policy_rules import Policy, PolicyRule

_ALL = PolicyRules(reads=True, writes=True, commands=True, searches=True)


def decide_by_rules(
    policy: Policy, call: ParsedCall, *, agent: str | None, project: str
) -> tuple[Decision, str]:
    """Return the decision and the name of the rule that makes it ("" if none does)."""
    applying = [
        (rule, rule.name or f"rule {number}")
        for number, rule in enumerate(policy.rule, 1)
        if _applies(rule, agent, project)
    ]
    denying = [(rule, name) for rule, name in applying if rule.decision == "deny"]
    allowing = [(rule, name) for rule, name in applying if rule.decision == "allow"]
    decision = decide(
        PermissionPolicy(
            auto_approve=_together([rule for rule, _ in allowing]),
            auto_deny=_together([rule for rule, _ in denying]),
        ),
        call,
        project,
    )
    if decision == "deny":
        return decision, _first(denying, call, project, "deny")
    if decision == "allow":
        return decision, _first(allowing, call, project, "allow")
    return decision, ""


def _first(
    rules: Sequence[tuple[PolicyRule, str]], call: ParsedCall, project: str, wanted: Decision
) -> str:
    """Name the rule that decides alone, or all of them: a line may have commands of several."""
    for rule, name in rules:
        alone = (
            PermissionPolicy(auto_approve=_ALL, auto_deny=rule.rules)
            if wanted == "deny"
            else PermissionPolicy(auto_approve=rule.rules)
        )
        if decide(alone, call, project) == wanted:
            return name
    return ", ".join(name for _, name in rules)


def _applies(rule: PolicyRule, agent: str | None, project: str) -> bool:
    if rule.agent is not None and rule.agent != agent:
        return False
    if rule.project is None:
        return True
    folder = PurePosixPath(rule.project)
    return PurePosixPath(project).is_relative_to(folder) and ".." not in project.split("/")


def _together(rules: Sequence[PolicyRule]) -> PolicyRules:
    return PolicyRules(
        reads=_either([rule.reads for rule in rules]),
        writes=_either([rule.writes for rule in rules]),
        commands=_either([rule.commands for rule in rules]),
        searches=_either([rule.searches for rule in rules]),
    )


def _either(rules: Sequence[bool | tuple[str, ...]]) -> bool | tuple[str, ...]:
    if any(rule is True for rule in rules):
        return True
    globs = tuple(glob for rule in rules if not isinstance(rule, bool) for glob in rule)
    return globs or False

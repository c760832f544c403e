"""Types of policy and risk that other vocabularies share: tool categories, risk levels, patterns.

`PermissionPolicy` and `PolicyRules` are the policy of the Agent Context Protocol. `policy_of`
converts one into rules, which is what `decide` takes.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

ToolCategory: TypeAlias = Literal[
    "file_read",
    "file_write",
    "file_edit",
    "terminal",
    "search",
    "web",
    "git",
    "mcp",
    "agent",
    "other",
]
RiskLevel: TypeAlias = Literal["low", "medium", "high", "critical"]

Patterns: TypeAlias = bool | tuple[str, ...]
"""True matches everything, False nothing, globs match what one of them matches."""


class PolicyRules(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Patterns for each kind of call; `quarterdeck.policy.rules` documents how they match."""

    reads: Patterns = False
    writes: Patterns = False
    commands: Patterns = False
    searches: Patterns = False


class PermissionPolicy(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """The permission policy of the Agent Context Protocol.

    `auto_deny` is an extension; it wins over `auto_approve`. A call that neither matches needs a
    decision by a person.
    """

    auto_approve: PolicyRules = PolicyRules()
    auto_deny: PolicyRules = PolicyRules()

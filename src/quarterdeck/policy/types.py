"""The vocabulary of rules and risk: categories, risk levels, the permission policy of seed 000."""

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

Rule: TypeAlias = bool | tuple[str, ...]
"""All of it, nothing of it, or what one of these globs matches."""


class PolicyRules(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What a policy says about each class of calls; see `policy` for how they are matched."""

    reads: Rule = False
    writes: Rule = False
    commands: Rule = False
    searches: Rule = False


class PermissionPolicy(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """What is decided without asking; what matches neither is asked.

    `auto_deny` is beyond the original, and wins.
    """

    auto_approve: PolicyRules = PolicyRules()
    auto_deny: PolicyRules = PolicyRules()

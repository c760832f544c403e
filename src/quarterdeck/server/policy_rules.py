"""The owner's rules as they are configured; `policy` applies them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from quarterdeck.dialects.context.policy_types import PolicyRules


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is decided without asking: true, false or globs for each class of calls."""

    decision: Literal["allow", "deny"]
    name: str | None = None
    """Told in the audit; else the rule's number."""
    agent: str | None = None
    """Only for this agent, by the name under which it is set up."""
    project: str | None = None
    """Only for sessions in this folder."""
    reads: bool | tuple[str, ...] = False
    writes: bool | tuple[str, ...] = False
    commands: bool | tuple[str, ...] = False
    searches: bool | tuple[str, ...] = False

    @property
    def rules(self) -> PolicyRules:
        return PolicyRules(
            reads=self.reads, writes=self.writes, commands=self.commands, searches=self.searches
        )


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules; "deny" wins over "allow", what nothing matches is asked."""

    rule: tuple[PolicyRule, ...] = ()
    expiry_seconds: float | None = None
    """After which a request that nobody answered is rejected; by default it waits."""

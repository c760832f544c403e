"""What follows from the name and the kind of a call alone: looked up once, not for every update."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from quarterdeck.dialects.context.policy_types import RiskLevel, ToolCategory
from quarterdeck.dialects.context.risk import risk_of_call
from quarterdeck.dialects.context.tools import canonical_name, categorize_call

_TELLING: Final = frozenset({"Task", "AskUserQuestion", "TodoWrite", "ExitPlanMode"})
_CHANGING: Final = frozenset({"Write", "Edit", "NotebookEdit", "Patch", "Delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a tool is."""

    canonical: str | None
    category: ToolCategory
    risk: RiskLevel
    """Without an input; one may raise it."""
    is_command: bool
    is_search: bool
    is_web: bool
    changes_files: bool
    tells_more: bool
    """Whether its calls are told as something else, too: a sub-agent, a question, todos, a plan."""


@lru_cache(maxsize=1024)
def traits_of(name: str, kind: str | None) -> Traits:
    canonical = canonical_name(name)
    return Traits(
        canonical=canonical,
        category=categorize_call(name, kind),
        risk=risk_of_call(name, None, kind),
        is_command=canonical == "Bash" or kind == "execute",
        is_search=canonical == "Grep" or kind == "search",
        is_web=canonical in ("WebSearch", "WebFetch") or kind == "fetch",
        changes_files=canonical in _CHANGING or kind in ("edit", "delete"),
        tells_more=canonical in _TELLING or kind == "switch_mode",
    )

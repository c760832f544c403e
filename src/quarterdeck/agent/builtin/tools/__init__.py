"""The tools of the built-in agent. `TOOLS` is all of them; a mode selects among them.

Each local tool also exists as `sandbox_*`, which works in the session's sandbox folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    SessionGrant,
    Tool,
    ToolScope,
    shortened,
)
from quarterdeck.agent.builtin.tools.fetch import FETCH
from quarterdeck.agent.builtin.tools.files import EDIT, LIST, READ, WRITE
from quarterdeck.agent.builtin.tools.plan import PLAN
from quarterdeck.agent.builtin.tools.search import GLOB, GREP
from quarterdeck.agent.builtin.tools.shell import SHELL

__all__ = ["TOOLS", "Action", "Outcome", "SessionGrant", "Tool", "ToolScope", "shortened"]


_LOCAL = (READ, LIST, GLOB, GREP, WRITE, EDIT, SHELL)


def _in_sandbox(tool: Tool) -> Tool:
    """Return the tool for the sandbox folder, where it needs no permission."""

    async def prepare(arguments: Mapping[str, Any], scope: ToolScope) -> Action:
        return await tool.prepare(arguments, scope.sandbox())

    return replace(
        tool, name=f"sandbox_{tool.name}", prepare=prepare, location="sandbox", asks=False
    )


TOOLS: tuple[Tool, ...] = (*_LOCAL, FETCH, PLAN, *map(_in_sandbox, _LOCAL))

"""Every tool there is, before a mode chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quarterdeck.agent.builtin.tools.base import Action, Tool
from quarterdeck.agent.builtin.tools.edit import EDIT, WRITE
from quarterdeck.agent.builtin.tools.fetch import FETCH
from quarterdeck.agent.builtin.tools.plan import PLAN
from quarterdeck.agent.builtin.tools.read import LIST, READ
from quarterdeck.agent.builtin.tools.search import GLOB, GREP
from quarterdeck.agent.builtin.tools.shell import SHELL
from quarterdeck.agent.builtin.workplace import Workplace

_LOCAL = (READ, LIST, GLOB, GREP, WRITE, EDIT, SHELL)


def _in_sandbox(tool: Tool) -> Tool:
    """The same tool in the scratch folder, where nobody has to be asked."""

    async def prepare(arguments: Mapping[str, Any], workplace: Workplace) -> Action:
        return await tool.prepare(arguments, workplace.sandbox())

    return replace(tool, name=f"sandbox_{tool.name}", prepare=prepare, place="sandbox", asks=False)


TOOLS: tuple[Tool, ...] = (*_LOCAL, FETCH, PLAN, *map(_in_sandbox, _LOCAL))

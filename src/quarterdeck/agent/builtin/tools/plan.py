"""The tool `plan`: shows the user the model's plan."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from quarterdeck.agent.builtin.tools.base import Action, Outcome, Progress, ToolScope, define_tool

_Steps = Annotated[tuple["PlanStep", ...], Meta(description="all steps, each time", max_length=100)]


class PlanStep(Struct, forbid_unknown_fields=True):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanArguments(Struct, forbid_unknown_fields=True):
    """Show the user the plan, whole each time: steps, and which are done."""

    entries: _Steps


async def _prepare_plan(given: PlanArguments, scope: ToolScope) -> Action:
    async def run(_progress: Progress) -> Outcome:
        scope.show_plan([msgspec.to_builtins(entry) for entry in given.entries])
        done = sum(entry.status == "completed" for entry in given.entries)
        return Outcome(f"the plan has {len(given.entries)} steps; {done} are done")

    return Action("Update the plan", run)


PLAN = define_tool("plan", "think", PlanArguments, _prepare_plan, location="elsewhere")

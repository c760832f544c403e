"""The settings of a session: its agent, model and mode, whether that is a mode for planning, its
todos.

Settings are learned from the log without an event. `emit_environment` emits all of them when the
session starts; later changes are emitted one by one.
"""

from __future__ import annotations

import re
from typing import Any, Final

from quarterdeck.views.context.call_state import objects
from quarterdeck.views.context.contract import UNKNOWN, SessionFacts
from quarterdeck.views.context.events import EnvironmentInfoEvent, PlanModeEvent, TodoUpdateEvent
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.types import (
    EnvironmentAgent,
    EnvironmentContext,
    EnvironmentModel,
    EnvironmentProject,
    TodoItem,
)

_PLANNING: Final = re.compile(r"\bplan(ning)?\b|\barchitect\b|read-only-plan", re.IGNORECASE)


class SettingsProjector:
    """Holds modes, config options and plans, and emits their changes."""

    def __init__(self, numbering: EventNumbering, facts: SessionFacts) -> None:
        self._numbering = numbering
        self._facts = facts
        self.agent = facts.agent
        self._mode_names: dict[str, str] = {}
        self._mode: str | None = None
        self.model: EnvironmentModel | None = None
        self._emitted_model: EnvironmentModel | None = None
        self._is_planning = False
        self._todos: tuple[TodoItem, ...] = ()

    def learn(self, payload: dict[str, Any]) -> None:
        """Store modes and config options; emits nothing."""
        modes = payload.get("modes")
        if isinstance(modes, dict):
            for mode in objects(modes.get("availableModes")):
                self._mode_names[str(mode.get("id"))] = str(mode.get("name") or "")
            self._mode = _text(modes.get("currentModeId")) or self._mode
        for option in objects(payload.get("configOptions")):
            self._learn_option(option)

    def learn_agent(self, info: Any) -> None:
        """Store the agent's own name and version; the name in its definition takes precedence."""
        if not isinstance(info, dict):
            return
        known = self._facts.agent
        name, title, version = (_text(info.get(key)) for key in ("name", "title", "version"))
        is_unknown = known.name == UNKNOWN
        is_titled = known.display_name not in (known.name, UNKNOWN)
        shown = title or (name if is_unknown else None)
        self.agent = EnvironmentAgent(
            name=(name if is_unknown else None) or known.name,
            version=version or known.version,
            display_name=(None if is_titled else shown) or known.display_name,
        )

    def _learn_option(self, option: dict[str, Any]) -> None:
        value, category = _text(option.get("currentValue")), option.get("category")
        if value is None:
            return
        names = {
            str(choice.get("value")): str(choice.get("name") or "")
            for group in objects(option.get("options"))
            for choice in (objects(group.get("options")) or [group])
        }
        if category == "model" or (category is None and option.get("id") == "model"):
            self.model = EnvironmentModel(id=value, display_name=names.get(value) or None)
        elif category == "mode":
            self._mode_names.update(names)
            self._mode = value

    # ---- events --------------------------------------------------------------------------------

    def environment(self) -> EnvironmentContext:
        facts = self._facts
        return EnvironmentContext(
            agent=self.agent,
            model=self.model or EnvironmentModel(id="unknown"),
            project=EnvironmentProject(path=facts.cwd, name=facts.project_name),
            runtime=facts.runtime,
        )

    def emit_environment(self) -> None:
        """Emit agent, model, project and machine, and the planning mode."""
        self._emitted_model = self.model
        self._numbering.emit(EnvironmentInfoEvent, context=self.environment())
        self._emit_plan_mode()

    def changed(self, payload: dict[str, Any], name: str) -> None:
        """Store changed settings and emit the difference."""
        self.learn(payload)
        if self.model != self._emitted_model:
            self.emit_environment()
        elif not self._emit_plan_mode():
            self._numbering.custom(name, payload)

    def mode_changed(self, mode: str | None) -> None:
        if mode is None:
            return
        self._mode = mode
        if not self._emit_plan_mode():
            data = {"modeId": mode, "name": self._mode_names.get(mode) or mode}
            self._numbering.custom("mode", data)

    def _emit_plan_mode(self) -> bool:
        is_planning = self.is_plan_mode
        if is_planning == self._is_planning:
            return False
        self._is_planning = is_planning
        self._numbering.emit(PlanModeEvent, active=is_planning)
        return True

    @property
    def is_plan_mode(self) -> bool:
        mode = self._mode or ""
        return any(_PLANNING.search(text) for text in (mode, self._mode_names.get(mode, "")))

    def plan_proposed(self, plan: str) -> None:
        """Emit a plan that waits for consent."""
        self._is_planning = True
        self._numbering.emit(PlanModeEvent, active=True, plan=plan)

    def plan_accepted(self) -> None:
        if not self.is_plan_mode:
            self._emit_plan_mode()

    def todos(self, entries: Any) -> None:
        """Emit the whole list of todos, if it has changed."""
        todos = tuple(
            TodoItem(content=str(entry.get("content") or ""), status=_status(entry.get("status")))
            for entry in objects(entries)
        )
        if todos != self._todos:
            self._todos = todos
            self._numbering.emit(TodoUpdateEvent, todos=todos)


def _status(value: Any) -> Any:
    return value if value in ("pending", "in_progress", "completed") else "pending"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

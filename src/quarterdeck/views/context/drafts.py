"""Updates that are drafts of the Agent Client Protocol, or unknown: each becomes an event, none is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quarterdeck.policy import text_of
from quarterdeck.views.context.call_state import objects
from quarterdeck.views.context.events import (
    NotificationEvent,
    ProgressEvent,
    SubAgentCompletedEvent,
    SubAgentProgressEvent,
    SubAgentSpawnedEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.session_settings import SettingsProjector
from quarterdeck.views.context.tool_results import block_text
from quarterdeck.views.context.usage import token_usage

_MOST_ENDED = 1000  # compactions that are remembered
_LEVELS = ("info", "warning", "error")
_ENDED = frozenset({"idle", "completed", "failed", "cancelled", "done", "ended"})


class ContextDrafts:
    """Reads the updates that the log stores as `unrecognized-update`."""

    def __init__(self, numbering: EventNumbering, settings: SettingsProjector) -> None:
        self._numbering = numbering
        self._settings = settings
        self._sub_agents: dict[str, str] = {}
        self._plans: dict[str, list[dict[str, Any]]] = {}
        self._summaries: dict[str, str] = {}
        self._ended: dict[str, None] = {}
        """Compactions that have ended: some agents report the end twice."""
        self._readers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "notice": self._notice,
            "compaction_update": self._compaction,
            "compaction_summary_chunk": self._compaction_summary,
            "plan_update": self._plan_update,
            "plan_removed": self._plan_removed,
            "subagent_spawned": self._sub_agent,
            "subagent_update": self._sub_agent,
            "subagent_state_update": self._sub_agent,
        }

    def read(self, update: dict[str, Any]) -> None:
        name = update.get("sessionUpdate")
        reader = self._readers.get(name) if isinstance(name, str) else None
        if reader is not None:
            reader(update)
        else:
            self._numbering.custom(name if isinstance(name, str) else "update", update)

    def _notify(self, level: str, title: str, message: str) -> None:
        if not self._numbering.is_replay:
            self._numbering.emit(NotificationEvent, level=level, title=title, message=message)

    def _notice(self, update: dict[str, Any]) -> None:
        severity = update.get("severity")
        level = severity if severity in _LEVELS else "info"
        title = text_of(update, ("title",)) or "Notice"
        self._notify(level, title, text_of(update, ("description", "message")) or "")

    def _compaction(self, update: dict[str, Any]) -> None:
        status, key = update.get("status"), str(update.get("compactionId"))
        if status == "in_progress":
            self._numbering.emit(
                ProgressEvent,
                label="Compacting context",
                current=_number(update.get("current")),
                total=_number(update.get("total")),
                percentage=_percentage(update),
            )
            return
        if key in self._ended:
            return
        if len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[key] = None
        summary = self._summaries.pop(key, "")
        blocks = objects(update.get("summary"))
        summary = "".join(block_text(block) for block in blocks) or summary
        if status == "completed":
            self._numbering.emit(ProgressEvent, label="Compacting context", percentage=100.0)
            self._notify("info", "Context compacted", summary)
        else:
            reason = text_of(update, ("error",)) or str(status)
            self._notify("warning", "Context not compacted", reason)

    def _compaction_summary(self, update: dict[str, Any]) -> None:
        key = str(update.get("compactionId"))
        self._summaries[key] = self._summaries.get(key, "") + block_text(update.get("content"))

    def _plan_update(self, update: dict[str, Any]) -> None:
        plan = update.get("plan")
        given = plan if isinstance(plan, dict) else {}
        plan_id = str(given.get("planId") or given.get("id"))
        if isinstance(given.get("entries"), list):
            self._plans[plan_id] = objects(given["entries"])
            self._emit_plans()
            return
        text = text_of(given, ("content", "text", "markdown", "uri"))
        if text is not None:
            self._settings.plan_proposed(text)

    def _plan_removed(self, update: dict[str, Any]) -> None:
        self._plans.pop(str(update.get("planId")), None)
        self._emit_plans()

    def _emit_plans(self) -> None:
        self._settings.todos([entry for plan in self._plans.values() for entry in plan])

    def _sub_agent(self, update: dict[str, Any]) -> None:
        child = text_of(update, ("subAgentId", "subagentId", "childSessionId", "sessionId"))
        if child is None:
            self._numbering.custom(str(update.get("sessionUpdate")), update)
            return
        parent = text_of(update, ("parentToolCallId", "toolCallId")) or ""
        task = text_of(update, ("description", "task", "prompt", "title")) or ""
        if child not in self._sub_agents:
            self._sub_agents[child] = parent
            self._numbering.emit(
                SubAgentSpawnedEvent, sub_agent_id=child, parent_tool_call_id=parent, task=task
            )
        state = _state(update)
        if state in _ENDED:
            parent = self._sub_agents.pop(child)
            result = text_of(update, ("result", "message", "summary")) or ""
            self._numbering.emit(
                SubAgentCompletedEvent,
                sub_agent_id=child,
                parent_tool_call_id=parent,
                result=result,
                token_usage=token_usage(update.get("usage")),
            )
        elif state is not None:
            self._numbering.emit(
                SubAgentProgressEvent,
                sub_agent_id=child,
                message=text_of(update, ("message",)) or state,
                progress=_percentage(update),
            )


def _percentage(update: dict[str, Any]) -> float | None:
    """Return a percentage from 0 to 100; a part of a total is converted."""
    for key in ("percentage", "progress"):
        given = _number(update.get(key))
        if given is not None:
            return min(given, 100.0)
    current, total = _number(update.get("current")), _number(update.get("total"))
    if current is None or not total:
        return None
    return round(min(100 * current / total, 100.0), 1)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 2**53 else None


def _state(update: dict[str, Any]) -> str | None:
    state = update.get("state", update.get("status"))
    if isinstance(state, dict):
        state = state.get("state") or state.get("type") or state.get("status")
    return state if isinstance(state, str) else None

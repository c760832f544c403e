"""Updates that ACP has as drafts, as far as packets have a word for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.dialects.packets import build
from quarterdeck.dialects.packets.outputs import as_object, as_text, text_of
from quarterdeck.dialects.packets.types import Packet

_CHILD_KEYS: Final = ("subagentSessionId", "childSessionId", "sessionId", "subagentId")

_UNDER_WAY: Final = 16  # compactions at a time; an agent has one


class Drafts:
    """Reads drafts; remembers the summaries of compactions that are under way."""

    def __init__(self) -> None:
        self._summaries: dict[str, list[str]] = {}

    def packets(self, update: Mapping[str, Any], session_id: str, time: str) -> list[Packet]:
        match update.get("sessionUpdate"):
            case "plan_update":
                plan = as_object(update.get("plan"))
                is_list = isinstance(plan.get("entries"), list)
                return [build.agent_plan_update(plan["entries"], time)] if is_list else []
            case "plan_removed":
                return [build.agent_plan_update([], time)]
            case "compaction_summary_chunk":
                self._summary(update).append(text_of(update.get("content")))
                return []
            case "compaction_update":
                return self._compaction(update, time)
            case "subagent_spawned":
                named = (as_text(update.get(key)) for key in _CHILD_KEYS)
                child = next((name for name in named if name), "")
                return [build.subagent_started(child, session_id, time)] if child else []
            case _:
                return []

    def _compaction(self, update: Mapping[str, Any], time: str) -> list[Packet]:
        summary = self._summary(update)
        if "summary" in update:
            summary[:] = [text_of(update["summary"])]
        if update.get("status") == "in_progress":
            return []
        del self._summaries[as_text(update.get("compactionId"))]
        is_done = update.get("status") == "completed"
        return [build.compaction("".join(summary) or None, time)] if is_done else []

    def _summary(self, update: Mapping[str, Any]) -> list[str]:
        key = as_text(update.get("compactionId"))
        if key not in self._summaries and len(self._summaries) >= _UNDER_WAY:
            del self._summaries[next(iter(self._summaries))]
        return self._summaries.setdefault(key, [])

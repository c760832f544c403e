"""Plans of ACP 2 as events. Pure.

A session has one plan in ACP 1 and any number in ACP 2. The only plan of a session is a `plan`, as
in ACP 1. From the second on, and for plans that are no list of entries, each is a `plan-update`
with its id, and a `plan` shows the list that changed last to everything that knows only one.
"""

from __future__ import annotations

from typing import Any

from quarterdeck.protocol.acp2_fields import ACP2, InvalidUpdate, JsonObject, take_id
from quarterdeck.protocol.normalization import Normalized


class PlanFold:
    """The plans of one session."""

    def __init__(self) -> None:
        self._plan: tuple[str, list[Any]] | None = None
        """The only plan so far: its id and its entries."""
        self._has_plans = False
        self._shown_plan: str | None = None

    def update(self, fields: JsonObject) -> list[Normalized]:
        """Return the events of a plan that was set."""
        plan = fields.pop("plan", None)
        if not isinstance(plan, dict):
            raise InvalidUpdate("an update of a plan needs `plan`")
        rest = dict(plan)
        plan_id, kind = take_id(rest, "planId"), rest.pop("type", None)
        if not isinstance(kind, str):
            raise InvalidUpdate("a plan needs `type`, a text")
        entries = rest.get("entries") if kind == "items" else None
        if kind == "items" and not isinstance(entries, list):
            raise InvalidUpdate("a plan of items needs `entries`, a list")
        is_only = entries is not None and not self._has_plans
        if is_only and (self._plan is None or self._plan[0] == plan_id):
            self._plan = (plan_id, rest.pop("entries"))
            self._shown_plan = plan_id
            own = {"planId": plan_id, **({"plan": rest} if rest else {})}
            return [Normalized("plan", {"entries": self._plan[1]}, {**fields, ACP2: own})]
        events = self._list_first_plan(plan_id)
        payload = {"planId": plan_id, "type": kind, **rest}
        events.append(Normalized("plan-update", payload, fields or None))
        if entries is not None:
            self._shown_plan = plan_id
            events.append(Normalized("plan", {"entries": entries}, {ACP2: {"derived": True}}))
        return events

    def _list_first_plan(self, but: str) -> list[Normalized]:
        """Return the update that puts the only plan so far among the plans."""
        first, self._plan, self._has_plans = self._plan, None, True
        if first is None or first[0] == but:
            return []
        payload = {"planId": first[0], "type": "items", "entries": first[1]}
        return [Normalized("plan-update", payload, {ACP2: {"derived": True}})]

    def removed(self, fields: JsonObject) -> list[Normalized]:
        """Return the events of a plan that was removed."""
        plan_id = take_id(fields, "planId")
        events = [Normalized("plan-removed", {"planId": plan_id}, fields or None)]
        if self._plan is not None and self._plan[0] == plan_id:
            self._plan = None
        if self._shown_plan == plan_id:
            self._shown_plan = None
            events.append(Normalized("plan", {"entries": []}, {ACP2: {"derived": True}}))
        return events

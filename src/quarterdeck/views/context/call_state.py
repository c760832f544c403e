"""A tool call of this view: what is known of it, and which events were emitted for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.policy import NamedCall
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.views.context.types import TokenUsage
from quarterdeck.views.context.usage import usage_of_call


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; an empty list for any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class NamedToolCall(NamedCall):
    """A call between its first event and its last."""

    __slots__ = (
        "arguments",
        "has_asked",
        "has_executed",
        "is_done",
        "is_sub_agent",
        "last_progress",
        "questions",
        "raw_output",
        "reported_usage",
        "started_at",
        "status",
        "terminal_ids",
    )

    def __init__(self, call_id: str, ts: float) -> None:
        super().__init__(call_id)
        self.status = "pending"
        self.is_done = False
        self.terminal_ids: list[str] = []
        self.raw_output: Any = None
        self.reported_usage: TokenUsage | None = None
        self.started_at = ts
        self.arguments = ""
        self.has_executed = False
        self.has_asked = False
        self.is_sub_agent = False
        self.last_progress = ""
        self.questions: dict[str, Any] = {}

    @property
    def has_output(self) -> bool:
        return bool(self.content) or self.raw_output is not None or bool(self.terminal_ids)

    def take(self, facts: ToolCallFacts, more: Mapping[str, Any], ts: float) -> None:
        """Store the facts after a message; `more` is what it has beyond the fields of a call."""
        if self.learn(facts, more):
            self._store_terminals()
        self.raw_output = facts.raw_output
        if self.is_sub_agent:
            usage = usage_of_call(facts.raw_output, more.get("_meta"))
            self.reported_usage = usage or self.reported_usage
        status = facts.status
        if status is not None and not self.is_done:
            if status == "in_progress" and self.status != status:
                self.started_at = ts
            self.status = status
            self.is_done = facts.is_final

    def _store_terminals(self) -> None:
        for each in self.content:
            if each.get("type") == "terminal":
                terminal = each.get("terminalId")
                if isinstance(terminal, str):
                    self.add_terminal(terminal)

    def add_terminal(self, terminal_id: str) -> None:
        """Record that the call shows a terminal."""
        if terminal_id not in self.terminal_ids:
            self.terminal_ids.append(terminal_id)

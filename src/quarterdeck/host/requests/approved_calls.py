"""Compares what an agent reports of an allowed call with what was shown. Pure.

A host cannot stop a program that does something else than what was allowed, but it can report it.
Another kind, another input, or a path that was not shown contradicts the permission; more detail
does not. Each contradiction is reported once, and a call that has ended is not compared any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.tool_calls import FINAL_STATUSES

MOST_CALLS: Final = 200  # per session; then the oldest is dropped
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [], "")


class ApprovedCall(NamedTuple):
    """A call as it was allowed."""

    request_id: str
    facts: ToolCallFacts


class Mismatch(NamedTuple):
    """A call that contradicts what was allowed."""

    request_id: str
    tool_call_id: str
    different: list[str]
    """Names of the fields that contradict what was shown."""


class ApprovedCalls:
    """The calls of one session that were allowed and have not ended."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, ApprovedCall] = OrderedDict()

    def add(self, request_id: str, facts: ToolCallFacts) -> None:
        self._calls[facts.id] = ApprovedCall(request_id, facts)
        if len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)

    def has(self, call_id: str) -> bool:
        """Return whether a call was allowed and has not ended."""
        return call_id in self._calls

    def forget(self) -> None:
        """Start over: the session was reset."""
        self._calls.clear()

    def mismatch(self, payload: Mapping[str, Any]) -> Mismatch | None:
        """Compare an announcement or update with what was allowed."""
        if not self._calls:
            return None
        call_id = payload.get("toolCallId")
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        if call is None:
            return None
        different = _differences(call.facts, payload)
        status = payload.get("status")
        if different or (isinstance(status, str) and status in FINAL_STATUSES):
            del self._calls[call.facts.id]
        return Mismatch(call.request_id, call.facts.id, different) if different else None


def _differences(shown: ToolCallFacts, payload: Mapping[str, Any]) -> list[str]:
    different = []
    for name, before in (("kind", shown.kind), ("rawInput", shown.raw_input)):
        now = payload.get(name)
        if before not in _EMPTY and now not in _EMPTY and now != before:
            different.append(name)
    locations = payload.get("locations")
    paths = _paths(locations if isinstance(locations, list) else ())
    before_paths = _paths(shown.locations)
    if before_paths and not paths <= before_paths:
        different.append("locations")
    return different


def _paths(locations: Iterable[Any]) -> frozenset[str]:
    found = [each.get("path") for each in locations if isinstance(each, Mapping)]
    return frozenset(path for path in found if isinstance(path, str))

"""What real agents leave out, added before `reduce` sees it; pure.

Nothing an agent sent is changed or dropped. What it should have sent is added as an event of our
own, marked in `extensions.quarterdeck`, so that without the marked events the log is exactly what
the agent said:

    the agent sends                                   added
    an update, or a permission request, for a call    a `tool-call` before it, with what is known
    it never announced
    a call it has announced already                   a `tool-call-update` after it, with what the
                                                      second announcement would have erased
    an update that resets `rawInput` to `{}`          a `tool-call-update` after it, with the input
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from quarterdeck.protocol import Normalized

REMEMBERED: Final = (
    1000  # calls whose fields are kept to restore them; an older one is only known by id
)
TOOL_CALL_TYPES: Final = frozenset({"tool-call", "tool-call-update"})
_ERASED: Final = ("kind", "status", "content", "locations", "rawInput", "rawOutput")
_FIELDS: Final = frozenset({"title", *_ERASED})


def mark(reason: str) -> dict[str, Any]:
    """Return the extensions of an event that we added."""
    return {"quarterdeck": {"added": reason}}


class ToolCalls:
    """The tool calls of one session, as far as repairs need them."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._fields: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def forget(self) -> None:
        """Start over: the session was reset."""
        self._known.clear()
        self._fields.clear()

    def learn(self, normalized: Normalized) -> None:
        """Take in what the log already has."""
        if normalized.type in TOOL_CALL_TYPES:
            call_id = normalized.payload.get("toolCallId")
            if isinstance(call_id, str):
                self._remember(call_id, normalized)

    def repaired(self, normalized: Normalized) -> list[Normalized]:
        """Return the events for what an agent sent, with what has to be added."""
        if normalized.type not in TOOL_CALL_TYPES:
            return [normalized]
        call_id = normalized.payload.get("toolCallId")
        if not isinstance(call_id, str):
            return [normalized]
        if call_id not in self._known:
            self._remember(call_id, normalized)
            is_announced = normalized.type == "tool-call"
            return [normalized] if is_announced else [announcement(normalized.payload), normalized]
        lost = _lost(self._fields.get(call_id, {}), normalized)
        self._remember(call_id, normalized)
        if not lost:
            return [normalized]
        restored = _update(call_id, lost)
        self._remember(call_id, restored)
        return [normalized, restored]

    def announced_for(self, tool_call: dict[str, Any]) -> list[Normalized]:
        """Return what has to come before a permission request for `tool_call`."""
        call_id = tool_call.get("toolCallId")
        if not isinstance(call_id, str) or call_id in self._known:
            return []
        added = announcement(tool_call)
        self._remember(call_id, added)
        return [added]

    def _remember(self, call_id: str, normalized: Normalized) -> None:
        self._known.add(call_id)
        fields = self._fields.pop(call_id, None)
        if fields is None:
            fields = {}
            if len(self._fields) >= REMEMBERED:
                self._fields.popitem(last=False)
        self._fields[call_id] = fields  # the newest from now on
        for name, value in normalized.payload.items():
            if name in _FIELDS and value is not None:
                fields[name] = value


def announcement(tool_call: dict[str, Any]) -> Normalized:
    """Make the `tool-call` that an agent forgot, from the first thing it said about the call."""
    payload = {name: tool_call[name] for name in ("kind",) if tool_call.get(name) is not None}
    title = tool_call.get("title")
    payload["toolCallId"] = tool_call["toolCallId"]
    payload["title"] = title if isinstance(title, str) else tool_call["toolCallId"]
    payload["status"] = "pending"
    return Normalized("tool-call", payload, mark("the agent did not announce this call"))


def _lost(before: dict[str, Any], normalized: Normalized) -> dict[str, Any]:
    """Return what was known of a call and is not true any more after what an agent sent."""
    if normalized.type == "tool-call":
        return _erased(before, normalized.payload)
    is_reset = normalized.payload.get("rawInput") == {} and before.get("rawInput")
    return {"rawInput": before["rawInput"]} if is_reset else {}


def _erased(before: dict[str, Any], repeated: dict[str, Any]) -> dict[str, Any]:
    """Return what a second announcement would erase."""
    return {
        name: before[name]
        for name in _ERASED
        if before.get(name) not in (None, [], {}) and repeated.get(name) in (None, [], {})
    }


def _update(call_id: str, fields: dict[str, Any]) -> Normalized:
    payload = {"toolCallId": call_id, **fields}
    return Normalized("tool-call-update", payload, mark("the agent had sent this before"))

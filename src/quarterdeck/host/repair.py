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
from collections.abc import Iterable, Sequence
from typing import Any, Final

from quarterdeck.protocol import Normalized

REMEMBERED: Final = 100  # calls whose fields are kept to restore them
KNOWN: Final = 10_000  # calls that are known by id; with more, a missing call is no longer added
UNMERGED: Final = 8  # payloads of a call that are kept before they are merged into one
TOOL_CALL_TYPES: Final = frozenset({"tool-call", "tool-call-update"})
_ERASED: Final = ("kind", "status", "content", "locations", "rawInput", "rawOutput")
_FIELDS: Final = frozenset({"title", *_ERASED})


def mark(reason: str) -> dict[str, Any]:
    """Return the extensions of an event that we added."""
    return {"quarterdeck": {"added": reason}}


class ToolCalls:
    """The tool calls of one session, as far as repairs need them; its memory is bounded."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._knows_all = True
        self._said: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def forget(self) -> None:
        """Start over: the session was reset."""
        self._known.clear()
        self._knows_all = True
        self._said.clear()

    def learn(self, normalized: Normalized) -> None:
        """Take in what the log already has."""
        if normalized.type in TOOL_CALL_TYPES:
            call_id = normalized.payload.get("toolCallId")
            if isinstance(call_id, str):
                self._remember(call_id, normalized.payload)

    def repaired(self, normalized: Normalized) -> Sequence[Normalized]:
        """Return the events for what an agent sent, with what has to be added."""
        payload = normalized.payload
        call_id = payload.get("toolCallId") if normalized.type in TOOL_CALL_TYPES else None
        if not isinstance(call_id, str):
            return (normalized,)
        is_announced = normalized.type == "tool-call"
        if call_id not in self._known:
            is_missing = not is_announced and self._knows_all
            self._remember(call_id, payload)
            return (announcement(payload), normalized) if is_missing else (normalized,)
        lost = {}
        if is_announced:
            lost = _erased(_merged(self._said.get(call_id, ())), payload)
        elif payload.get("rawInput") == {}:
            raw_input = _merged(self._said.get(call_id, ())).get("rawInput")
            lost = {"rawInput": raw_input} if raw_input else {}
        self._remember(call_id, payload)
        if not lost:
            return (normalized,)
        restored = _update(call_id, lost)
        self._remember(call_id, restored.payload)
        return normalized, restored

    def announced_for(self, tool_call: dict[str, Any]) -> Sequence[Normalized]:
        """Return what has to come before a permission request for `tool_call`."""
        call_id = tool_call.get("toolCallId")
        if not isinstance(call_id, str) or call_id in self._known or not self._knows_all:
            return ()
        added = announcement(tool_call)
        self._remember(call_id, added.payload)
        return (added,)

    def _remember(self, call_id: str, payload: dict[str, Any]) -> None:
        said = self._said.get(call_id)
        if said is None:
            self._said[call_id] = [payload]
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
            if len(self._known) < KNOWN:
                self._known.add(call_id)
            else:
                self._knows_all = False
            return
        said.append(payload)
        if len(said) > UNMERGED:
            said[:] = [_merged(said)]
        self._said.move_to_end(call_id)


def announcement(tool_call: dict[str, Any]) -> Normalized:
    """Make the `tool-call` that an agent forgot, from the first thing it said about the call."""
    payload = {name: tool_call[name] for name in ("kind",) if tool_call.get(name) is not None}
    title = tool_call.get("title")
    payload["toolCallId"] = tool_call["toolCallId"]
    payload["title"] = title if isinstance(title, str) else tool_call["toolCallId"]
    payload["status"] = "pending"
    return Normalized("tool-call", payload, mark("the agent did not announce this call"))


def _merged(said: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what is true of a call after all that was said of it."""
    return {
        name: value
        for payload in said
        for name, value in payload.items()
        if name in _FIELDS and value is not None
    }


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

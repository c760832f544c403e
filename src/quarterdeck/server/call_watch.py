"""The tool calls of running sessions: known for a decision, compared with it afterwards.

One small callback for each session that works; its memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.protocol import (
    FINAL_STATUSES,
    Event,
    ToolCallFacts,
    announced,
    is_turn_boundary,
    requested,
    tool_call_key,
    updated,
)

REMEMBERED: Final = 200  # calls of a session whose facts are kept
_CALLS: Final = frozenset({"tool-call", "tool-call-update"})
_WORKING: Final = frozenset({"active", "prompting", "resuming"})
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [], "")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What was shown of a call when it was allowed."""

    request_id: str
    kind: Any
    raw_input: Any
    paths: frozenset[str]


OnMismatch = Callable[[str, str, Shown, list[str]], None]
"""Called with session, call, what was shown, and what is different now."""


class CallWatch:
    """Follows the calls of every session that works."""

    def __init__(self, host: Host, on_mismatch: OnMismatch) -> None:
        self._host = host
        self._on_mismatch = on_mismatch
        self._sessions: dict[str, _SessionCalls] = {}

    def on_host_event(self, event: Event) -> None:
        """Begin with a session that works, leave one that has ended."""
        if event.type != "session-updated":
            return
        session_id, status = event.payload.get("sessionId"), event.payload.get("status")
        if not isinstance(session_id, str):
            return
        if status not in _WORKING:
            self.leave(session_id)
        elif session_id not in self._sessions:
            calls = _SessionCalls(session_id, self._on_mismatch)
            self._sessions[session_id] = calls
            try:
                after = self._host.last_seq(session_id)
                calls.leave = self._host.subscribe(session_id, after, calls.on_event)
            except AcpError:  # it has ended by now
                del self._sessions[session_id]

    def leave(self, session_id: str) -> None:
        calls = self._sessions.pop(session_id, None)
        if calls is not None and calls.leave is not None:
            calls.leave()

    def facts(self, session_id: str, tool_call: Mapping[str, Any]) -> ToolCallFacts:
        """Return what is known of the call of a permission request."""
        calls = self._sessions.get(session_id)
        if calls is None:
            return requested(None, tool_call, 0)
        return requested(calls.facts.get(tool_call_key(tool_call)), tool_call, calls.turn)

    def allowed(self, session_id: str, call_id: str, request_id: str, facts: ToolCallFacts) -> None:
        """From now on compare what an agent sends about a call with what was shown of it."""
        calls = self._sessions.get(session_id)
        if calls is not None:
            calls.shown[call_id] = Shown(
                request_id=request_id,
                kind=facts.kind,
                raw_input=facts.raw_input,
                paths=_paths(facts.locations),
            )


class _SessionCalls:
    def __init__(self, session_id: str, on_mismatch: OnMismatch) -> None:
        self.session_id = session_id
        self.facts: OrderedDict[str, ToolCallFacts] = OrderedDict()
        self.turn = 0
        self.shown: dict[str, Shown] = {}
        self.leave: Callable[[], None] | None = None
        self._on_mismatch = on_mismatch

    def on_event(self, event: Event) -> None:
        payload = event.payload
        if event.type in _CALLS:
            call_id = payload.get("toolCallId")
            if isinstance(call_id, str):
                self._fold(call_id, payload, is_announcement=event.type == "tool-call")
                self._compare(call_id, payload)
        elif event.type == "session-reset":
            self.facts.clear()
            self.shown.clear()
        elif is_turn_boundary(event.type, payload):
            self.turn += 1

    def _compare(self, call_id: str, payload: Mapping[str, Any]) -> None:
        shown = self.shown.get(call_id)
        if shown is None:
            return
        different = _differences(shown, payload)
        if different:
            del self.shown[call_id]  # reported once
            self._on_mismatch(self.session_id, call_id, shown, different)
        elif payload.get("status") in FINAL_STATUSES:
            del self.shown[call_id]

    def _fold(self, call_id: str, payload: Mapping[str, Any], *, is_announcement: bool) -> None:
        old = self.facts.get(call_id)
        if old is None or is_announcement:
            facts = announced(old, payload, self.turn)
        else:
            facts = updated(old, payload)
        if old is not None and facts.generation != old.generation:
            self.shown.pop(call_id, None)  # another call, which was not shown yet
        self.facts[call_id] = facts
        if len(self.facts) > REMEMBERED:
            self.facts.popitem(last=False)


def _differences(shown: Shown, payload: Mapping[str, Any]) -> list[str]:
    """Name what an agent says now that contradicts what was shown; what it adds does not."""
    different = []
    for name, before in (("kind", shown.kind), ("rawInput", shown.raw_input)):
        now = payload.get(name)
        if before not in _EMPTY and now not in _EMPTY and now != before:
            different.append(name)
    paths = _paths(payload.get("locations"))
    if shown.paths and not paths <= shown.paths:
        different.append("locations")
    return different


def _paths(locations: Any) -> frozenset[str]:
    if not isinstance(locations, list | tuple):
        return frozenset()
    found = [each.get("path") for each in locations if isinstance(each, dict)]
    return frozenset(path for path in found if isinstance(path, str))

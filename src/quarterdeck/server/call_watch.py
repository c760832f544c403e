"""What agents say of their calls: kept until a decision needs it, compared after it was made.

One small callback for each session that works; its memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.protocol import Event

REMEMBERED: Final = 200  # calls of a session of which is known what was said
SAID: Final = 16  # payloads of a call; when there are more, those in the middle are left out
_CALLS: Final = frozenset({"tool-call", "tool-call-update"})
_WORKING: Final = frozenset({"active", "prompting", "resuming"})
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [], "")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What somebody saw who allowed a call."""

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

    def said(self, session_id: str, tool_call: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return all that is known of the call of a permission request."""
        calls = self._sessions.get(session_id)
        call_id = tool_call.get("toolCallId")
        has_id = isinstance(call_id, str)  # an agent's word: it may be a list
        known = [] if calls is None or not has_id else calls.said.get(call_id, [])
        return [*known, dict(tool_call)]

    def allowed(self, session_id: str, call_id: str, request_id: str, said: Any) -> None:
        """From now on compare what an agent says of a call with what was shown of it."""
        calls = self._sessions.get(session_id)
        if calls is not None:
            merged: dict[str, Any] = {}
            for payload in said:
                merged |= {key: value for key, value in payload.items() if value not in _EMPTY}
            calls.shown[call_id] = Shown(
                request_id=request_id,
                kind=merged.get("kind"),
                raw_input=merged.get("rawInput"),
                paths=_paths(merged.get("locations")),
            )


class _SessionCalls:
    def __init__(self, session_id: str, on_mismatch: OnMismatch) -> None:
        self.session_id = session_id
        self.said: OrderedDict[Any, list[dict[str, Any]]] = OrderedDict()
        self.shown: dict[str, Shown] = {}
        self.leave: Callable[[], None] | None = None
        self._on_mismatch = on_mismatch

    def on_event(self, event: Event) -> None:
        if event.type not in _CALLS:
            return
        payload = event.payload
        call_id = payload.get("toolCallId")
        if not isinstance(call_id, str):
            return
        shown = self.shown.get(call_id)
        if shown is not None:
            different = _differences(shown, payload)
            if different:
                del self.shown[call_id]  # said once
                self._on_mismatch(self.session_id, call_id, shown, different)
            elif payload.get("status") in ("completed", "failed"):
                del self.shown[call_id]
        self._remember(call_id, payload)

    def _remember(self, call_id: str, payload: dict[str, Any]) -> None:
        said = self.said.get(call_id)
        if said is None:
            self.said[call_id] = [payload]
            if len(self.said) > REMEMBERED:
                self.said.popitem(last=False)
            return
        said.append(payload)
        if len(said) > SAID:
            del said[SAID // 2]


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
    if not isinstance(locations, list):
        return frozenset()
    found = [each.get("path") for each in locations if isinstance(each, dict)]
    return frozenset(path for path in found if isinstance(path, str))

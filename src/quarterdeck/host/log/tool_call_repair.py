"""Adds the events that agents leave out, before `reduce` sees them. Pure.

Nothing that an agent sent is changed or dropped here. What it should have sent is added as an event
of our own, marked in `extensions.quarterdeck`: without the marked events the log is what the agent
sent, but for what `protocol/normalization` (nulls) and `host/sessions/updates` (prompt blocks that
it repeats) leave out.

`quarterdeck.protocol.tool_calls` has two columns of rules: DOCUMENTED, which states follow to the
letter, and KNOWN, which does not lose what an agent did not repeat. The repair is one rule: *after
every event, if DOCUMENTED differs from KNOWN, add an update that makes them equal.* So every reader
of our log sees the same call, whichever column it uses.

    the agent sends                                   added
    an update, or a permission request, for a call    a `tool-call` before it, with what is known
    it did not announce
    a permission request for an id whose call has     the same: the request is for a new call
    ended, or is of an earlier turn
    an open call a second time                        a `tool-call-update` after it, with what the
                                                      second announcement would have erased
    an update that empties or reopens what must stay  a `tool-call-update` after it, with that
    a permission request with more than was known     a `tool-call-update` before it, with that
    the end of a turn with open calls                 a `tool-call-update` before it for each, with
                                                      the status `failed`, marked as `closed`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from quarterdeck.protocol import Normalized, ToolCallFacts, ToolCallState
from quarterdeck.protocol.tool_calls import (
    FINAL_STATUSES,
    announced,
    corrections,
    documented_announcement,
    documented_chunk,
    documented_update,
    extended,
    is_final_status,
    is_open,
    is_regular,
    is_turn_boundary,
    requested,
    updated,
)

REMEMBERED: Final = 100  # calls whose fields are kept to restore them
REMEMBERED_BYTES: Final = 1 << 20  # about, that large ones among them take
LARGE_BYTES: Final = 4_096  # from which a call is counted
KNOWN: Final = 10_000  # calls that are known by id; with more, a missing call is no longer added
TOOL_CALL_TYPES: Final = frozenset({"tool-call", "tool-call-update"})
_SENT_BEFORE: Final = "the agent had sent this before"
_LEFT_OPEN: Final = "the turn ended and the agent had left this call open"
_ENDS: Final = frozenset({"disconnected", "closed", "deleted", "restart"})
_CANCELLED: Final = "cancelled"
_SENT_IN_REQUEST: Final = "the agent sent this in its permission request"


def mark(reason: str) -> dict[str, Any]:
    """Return the extensions of an event that we added."""
    return {"quarterdeck": {"added": reason}}


class RequestedCall(NamedTuple):
    """The call of a permission request, and the events that belong before the request."""

    facts: ToolCallFacts
    added: Sequence[Normalized]


class _Call:
    """One call by both columns of rules, folded when it is needed.

    Nearly all updates are regular: both columns read them alike, so nothing has to be corrected
    and the fields can be collected. Folding each by both columns took a fifth of the host's time.
    """

    __slots__ = ("_first", "_folded", "_more", "_turn", "is_final", "size")

    def __init__(self, first: Mapping[str, Any], turn: int) -> None:
        """`first` is the announcement of a call that inherits nothing."""
        self._first, self._turn = first, turn
        self._folded: tuple[ToolCallState, ToolCallFacts] | None = None
        self._more: Mapping[str, Any] | None = None
        self.is_final = is_final_status(first.get("status"))
        self.size = 0
        """The bytes of its largest event, if that is large: later fields replace earlier ones."""

    @classmethod
    def folded(cls, documented: ToolCallState, known: ToolCallFacts) -> _Call:
        """Return a call that both columns have folded already."""
        call = cls({}, known.turn)
        call._folded, call.is_final = (documented, known), known.is_final
        return call

    def add_regular(self, payload: Mapping[str, Any]) -> None:
        """Apply a regular update whose status does not go back from an end."""
        self._more = payload if self._more is None else {**self._more, **payload}
        if payload.get("status") in FINAL_STATUSES:
            self.is_final = True

    @property
    def columns(self) -> tuple[ToolCallState, ToolCallFacts]:
        """The call by DOCUMENTED and by KNOWN."""
        folded, more = self._folded, self._more
        if folded is None:
            known = announced(None, self._first, self._turn)
            folded = documented_announcement(self._first), known
        if more:
            folded = documented_update(folded[0], more), updated(folded[1], more)
            self._more = None
        self._folded = folded
        return folded

    @property
    def known(self) -> ToolCallFacts:
        return self.columns[1]


class ToolCallRepair:
    """The tool calls of one session, as far as repairs need them; its memory is bounded."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._knows_all = True
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._bytes = 0  # of the large ones
        self._turn = 0
        self.in_background: frozenset[str] = frozenset()
        """Calls that the agent reported as running on after its turn."""

    def forget(self) -> None:
        """Start over: the session was reset."""
        self._ids.clear()
        self._knows_all = True
        self.release()

    def release(self) -> None:
        """Keep only the ids of calls: the session was closed. What comes later is not corrected."""
        self._calls.clear()
        self._bytes = 0

    @property
    def remembered(self) -> Sequence[str]:
        """The ids of the calls whose fields are kept, the oldest first."""
        return tuple(self._calls)

    def measure(self, call_id: Any, size: int) -> None:
        """Count the bytes of an event of a call; large calls are forgotten before small ones."""
        if size < LARGE_BYTES or not isinstance(call_id, str):
            return
        call = self._calls.get(call_id)
        if call is None or call.size >= size:
            return
        self._bytes += size - call.size
        call.size = size
        self._drop_old()

    def _drop_old(self) -> None:
        calls = self._calls
        while len(calls) > REMEMBERED or (self._bytes > REMEMBERED_BYTES and len(calls) > 1):
            self._bytes -= calls.popitem(last=False)[1].size

    def next_turn(self) -> None:
        """Begin or end a turn: later calls inherit nothing from earlier ones."""
        self._turn += 1

    def learn(self, normalized: Normalized, size: int = 0) -> None:
        """Learn from a stored event of so many bytes, which needs no repair."""
        payload = normalized.payload
        if normalized.type in TOOL_CALL_TYPES:
            call_id = payload.get("toolCallId")
            if isinstance(call_id, str):
                self._fold(call_id, normalized)
                self.measure(call_id, size)
        elif normalized.type == "tool-call-content-chunk":
            self._extend(payload, size)
        elif is_turn_boundary(normalized.type, payload):
            self.next_turn()

    def _extend(self, payload: Mapping[str, Any], size: int = 0) -> None:
        """Append an element of so many bytes to the content of a call."""
        call_id = payload.get("toolCallId")
        old = self._calls.get(call_id) if isinstance(call_id, str) else None
        if old is not None and isinstance(call_id, str):
            documented, known = old.columns
            grown = documented_chunk(documented, payload), extended(known, payload)
            self._remember(call_id, _Call.folded(*grown))
            self.measure(call_id, old.size + size)

    def repaired(self, normalized: Normalized) -> Sequence[Normalized]:
        """Return the events for an agent's update, including those that have to be added."""
        payload = normalized.payload
        call_id = payload.get("toolCallId") if normalized.type in TOOL_CALL_TYPES else None
        if not isinstance(call_id, str):
            return (normalized,)
        is_announcement = normalized.type == "tool-call"
        if is_announcement:
            if call_id not in self._calls and is_regular(payload):  # almost always
                self._remember(call_id, _Call(payload, self._turn))
                return (normalized,)
        elif self._is_added(call_id, payload):
            return (normalized,)
        is_forgotten = call_id not in self._calls and self.has_been(call_id)
        before: tuple[Normalized, ...] = ()
        if not is_announcement and not is_forgotten and call_id not in self._calls:
            before = (announcement(payload),)
            self._fold(call_id, before[0])
            if self._is_added(call_id, payload):
                return (*before, normalized)
        call = self._fold(call_id, normalized)
        if is_forgotten and not is_announcement:
            return (normalized,)  # what the log shows of it is not known here
        columns = call.columns
        fields = corrections(*columns) if is_announcement else corrections(*columns, payload)
        if not fields:
            return (*before, normalized)
        return (*before, normalized, self._corrected(call_id, fields, _SENT_BEFORE))

    def _is_added(self, call_id: str, payload: Mapping[str, Any]) -> bool:
        """Add a regular update to its call; return False if it has to be folded."""
        call = self._calls.get(call_id)
        if call is None or not is_regular(payload):
            return False
        if call.is_final and payload.get("status", "completed") not in FINAL_STATUSES:
            return False
        call.add_regular(payload)
        self._calls.move_to_end(call_id)
        return True

    def requested(self, tool_call: dict[str, Any]) -> RequestedCall:
        """Return the call of a permission request, and the events to add before the request."""
        call_id = tool_call.get("toolCallId")
        if not isinstance(call_id, str):
            return RequestedCall(requested(None, tool_call, self._turn), ())
        call = self._calls.get(call_id)
        if call is None and self.has_been(call_id):
            facts = requested(None, tool_call, self._turn)
            self._remember(call_id, _Call.folded(documented_announcement(tool_call), facts))
            return RequestedCall(facts, ())
        added: list[Normalized] = []
        facts = requested(None if call is None else call.known, tool_call, self._turn)
        if call is None or facts.generation != call.known.generation:
            added.append(announcement(tool_call))
            call = self._fold(call_id, added[0])
            facts = requested(call.known, tool_call, self._turn)
        documented, _ = call.columns
        self._remember(call_id, _Call.folded(documented, facts))
        fields = corrections(documented, facts, tool_call)
        if fields:
            added.append(self._corrected(call_id, fields, _SENT_IN_REQUEST))
        return RequestedCall(facts, tuple(added))

    def open_call(self, call_id: Any) -> ToolCallFacts | None:
        """Return a call of this turn that has not ended."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        return call.known if call is not None and is_open(call.known, self._turn) else None

    def open_calls(self, but: str | None = None) -> tuple[ToolCallFacts, ...]:
        """Return the calls of this turn that have not ended, all but one."""
        # Calls that have ended are most of them, and are not folded for this.
        known = [
            call.known
            for call_id, call in self._calls.items()
            if not call.is_final and call_id != but
        ]
        return tuple(facts for facts in known if is_open(facts, self._turn))

    def close_open(self, reason: str) -> Sequence[Normalized]:
        """Return the updates that end the calls which this turn leaves open.

        `reason` is why the turn has ended: its stop reason, or what ended it instead. An agent may
        still send how such a call ended: an end replaces an end.
        """
        closed: list[Normalized] = []
        for facts in self.open_calls():
            is_running_on = facts.id in self.in_background and reason not in _ENDS
            if facts.status == _CANCELLED or is_running_on:
                continue  # newer agents end a call so, or let it run on after the turn
            extensions = mark(_LEFT_OPEN)
            extensions["quarterdeck"]["closed"] = reason
            payload = {"toolCallId": facts.id, "status": "failed"}
            closed.append(Normalized("tool-call-update", payload, extensions))
            self._fold(facts.id, closed[-1])
        return closed

    def has_been(self, call_id: str) -> bool:
        """Return whether the log may have a call of this id."""
        return call_id in self._ids or not self._knows_all

    def _corrected(self, call_id: str, fields: dict[str, Any], reason: str) -> Normalized:
        payload = {"toolCallId": call_id, **fields}
        added = Normalized("tool-call-update", payload, mark(reason))
        self._fold(call_id, added)
        return added

    def _fold(self, call_id: str, normalized: Normalized) -> _Call:
        """Fold an event of the log by both columns."""
        payload, old = normalized.payload, self._calls.get(call_id)
        if old is None:
            call = _Call(payload, self._turn)
        elif normalized.type == "tool-call":
            known = announced(old.known, payload, self._turn)
            call = _Call.folded(documented_announcement(payload), known)
        else:
            documented, known = old.columns
            call = _Call.folded(documented_update(documented, payload), updated(known, payload))
        self._remember(call_id, call)
        return call

    def _remember(self, call_id: str, call: _Call) -> None:
        old = self._calls.get(call_id)
        self._calls[call_id] = call
        if old is not None:
            call.size = old.size
            self._calls.move_to_end(call_id)
            return
        if len(self._calls) > REMEMBERED or self._bytes > REMEMBERED_BYTES:
            self._drop_old()
        if len(self._ids) < KNOWN:
            self._ids.add(call_id)
        elif call_id not in self._ids:
            self._knows_all = False


def announcement(tool_call: dict[str, Any]) -> Normalized:
    """Make the `tool-call` that an agent left out, from its first message about the call."""
    payload = {name: tool_call[name] for name in ("kind",) if tool_call.get(name) is not None}
    title = tool_call.get("title")
    payload["toolCallId"] = tool_call["toolCallId"]
    payload["title"] = title if title and isinstance(title, str) else tool_call["toolCallId"]
    payload["status"] = "pending"
    return Normalized("tool-call", payload, mark("the agent did not announce this call"))

"""Decisions as a log has them: requests and how they ended, read from events.

`requested` and `resolved` are pure; the inbox uses them for what happens now, `read_decisions` for
what an index has missed. Both therefore make the same row of the same events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import EventInvalid
from quarterdeck.protocol import ELICITATION_UPDATED, Event, decode_event
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.server.approval_views import digest_of
from quarterdeck.server.decision_rows import DecidedBy, IndexEntry, RecordedDecision, decided_by
from quarterdeck.storage import Storage

PAGE: Final = 1000
WITHDRAWN: Final = DecidedBy(kind="withdrawn")
_CLIENT: Final = DecidedBy(kind="client")
_TELLING: Final = (b'"permission-request-', ELICITATION_UPDATED.encode())
"""What an event about a request has in its bytes; nearly all others are not decoded."""


def ours(event: Event) -> Mapping[str, Any]:
    """Return `extensions.quarterdeck` of an event."""
    extensions: Any = event.extensions or {}
    found = extensions.get("quarterdeck")
    return found if isinstance(found, Mapping) else {}


def requested(
    event: Event, session_id: str | None, row_id: int, agent: str | None = None
) -> RecordedDecision:
    """Return the row of a request that is pending; `event` tells of it."""
    payload: Any = event.payload
    derived = ours(event).get("request") or {}
    request_id = str(payload.get("requestId"))
    is_elicitation = "request" in payload
    digest = derived.get("digest", "")
    if not digest and not is_elicitation:  # a log of an earlier version
        digest = digest_of(
            session_id or "", request_id, payload.get("toolCall"), payload.get("options")
        )
    return RecordedDecision(
        id=row_id,
        request_id=request_id,
        session_id=session_id,
        agent=derived.get("agent", agent),
        digest=digest,
        asked=payload["request"] if is_elicitation else payload.get("toolCall"),
        state="pending",
        asked_at=derived.get("requestedAt") or iso_seconds(event.ts / 1000),
    )


def resolved(request: RecordedDecision, options: Any, event: Event) -> IndexEntry:
    """Return the row of a request after its end; `options` are those that it offered."""
    payload: Any = event.payload
    facts = ours(event).get("decidedBy") or {}
    at = facts.get("at") or iso_seconds(event.ts / 1000)
    is_answered = payload.get("status") == "answered"
    by = decided_by(facts) if facts else _CLIENT if is_answered else WITHDRAWN
    if not is_answered:
        return IndexEntry(replace(request, state="superseded", by=by, decided_at=at))
    if "request" in payload:
        outcome, kind = {"action": payload.get("action")}, None
    else:
        outcome = {
            name: value for name, value in (payload.get("outcome") or {}).items() if name != "_meta"
        }
        kind = _kind(options, outcome.get("optionId"))
    decision = replace(
        request,
        state="answered",
        outcome=outcome,
        option_kind=UNSET if kind is None else kind,
        by=by,
        decided_at=at,
    )
    return IndexEntry(decision, facts.get("key"))


def _kind(options: Any, option_id: Any) -> str | None:
    for option in options if isinstance(options, list | tuple) else ():
        if isinstance(option, Mapping) and str(option.get("optionId")) == option_id:
            kind = option.get("kind")
            return kind if isinstance(kind, str) else None
    return None


class SessionDecisions:
    """The decisions of one session, from the events of its log."""

    def __init__(self, session_id: str, agent: str | None, next_id: Callable[[], int]) -> None:
        self._session_id = session_id
        self._agent = agent
        self._next_id = next_id
        self._open: dict[str, tuple[RecordedDecision, Any]] = {}
        self.entries: dict[str, IndexEntry] = {}

    @property
    def has_pending(self) -> bool:
        return any(each.decision.state == "pending" for each in self.entries.values())

    def take(self, event: Event) -> None:
        """Take the next event of the log."""
        payload: Any = event.payload
        request_id = str(payload.get("requestId"))
        match event.type:
            case "permission-request-created":
                row = requested(event, self._session_id, self._next_id(), self._agent)
                self._open[request_id] = (row, payload.get("options"))
                self.entries[request_id] = IndexEntry(row)
            case "permission-request-resolved":
                self._end(request_id, event)
            case "unrecognized-update" if payload.get("sessionUpdate") == ELICITATION_UPDATED:
                if payload.get("status") == "pending":
                    row = requested(event, self._session_id, 0, self._agent)
                    self._open[request_id] = (row, None)
                elif "decidedBy" in ours(event):
                    self._end(request_id, event)
            case _:
                pass

    def _end(self, request_id: str, event: Event) -> None:
        row, options = self._open.pop(request_id, (None, None))
        if row is not None:
            row = row if row.id else replace(row, id=self._next_id())
            self.entries[request_id] = resolved(row, options, event)


async def request_events(storage: Storage, session_id: str, after: int) -> AsyncIterator[Event]:
    """Iterate over the events of a log that tell of requests, after a number."""
    while page := await storage.read(session_id, after, PAGE):
        after += len(page)
        for number, data in enumerate(page):
            if number < len(page) - 1 and not any(each in data for each in _TELLING):
                continue
            try:
                event = decode_event(data)
            except EventInvalid:
                continue
            after = max(after, event.seq)
            yield event

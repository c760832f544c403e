"""What an earlier hub left open: the log tells whether an answer was given."""

from __future__ import annotations

from functools import partial

from quarterdeck.errors import EventInvalid
from quarterdeck.protocol import decode_event
from quarterdeck.server import decision_rows as rows
from quarterdeck.server.database import HubDatabase
from quarterdeck.server.decision_rows import Decider
from quarterdeck.storage import Storage

PAGE = 1000
_RESTART = Decider(kind="restart")


async def settle_left_decisions(storage: Storage, database: HubDatabase) -> None:
    """Note of each request that was open how it ended: its agent is gone, with its question."""
    for decision in await database.read(rows.undelivered):
        was_given = decision.state == "answered" and await _was_answered(
            storage, decision.session_id or "", decision.request_id
        )

        if was_given:
            await database.write(partial(rows.delivered, request_id=decision.request_id))
        else:
            await database.write(
                partial(rows.supersede, request_id=decision.request_id, by=_RESTART)
            )


async def _was_answered(storage: Storage, session_id: str, request_id: str) -> bool:
    after = 0
    while page := await storage.read(session_id, after, PAGE):
        after += len(page)
        for data in page:
            if request_id.encode() not in data:
                continue
            try:
                event = decode_event(data)
            except EventInvalid:
                continue
            after = max(after, event.seq)
            is_end = event.type == "permission-request-resolved"
            if is_end and event.payload.get("requestId") == request_id:
                return bool(event.payload.get("status") == "answered")
    return False

"""Where to continue to read a foreign session: what its log says.

The last event with a cursor says how far the session was read. If an agent of this host has had the
session open since then, the program's own record has the same updates again: what happened up to
the last event of that time is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from quarterdeck.errors import EventInvalid
from quarterdeck.host import Host
from quarterdeck.protocol import Event, decode_event
from quarterdeck.runner.adoption.store import Position

_PAGE: Final = 500
_SOURCE: Final = b'"source":{"adapter":'
_STATUS: Final = b'{"type":"session-status-change",'
_OPEN: Final = frozenset({"active", "prompting"})


class ReadState(Struct, frozen=True):
    """A position, and until when updates were recorded through an agent of this host."""

    position: Position
    skip_until: int = 0


async def read_state(host: Host, session_id: str, stored: Position | None) -> ReadState:
    """Search the log of a session for how far it was read, from a stored position on.

    Raises:
        StorageFailed: if the log cannot be read.
    """
    position = stored or Position(session_id, {})
    was_open, last_at, skip_until = False, 0, 0
    after = position.seq
    while page := await host.read_events(session_id, after, _PAGE):
        after += len(page)
        for data in page:
            is_foreign = _SOURCE in data
            if not is_foreign and not was_open and not data.startswith(_STATUS):
                continue
            event = _decoded(data)
            if event is None:
                continue
            cursor = _cursor(event) if is_foreign else None
            if event.type == "session-reset" and cursor is not None:
                position, was_open, skip_until = Position(session_id, {}, 0, event.seq), False, 0
            elif cursor:
                position = Position(session_id, cursor, int(event.ts), event.seq)
                was_open, skip_until = False, 0
            elif not is_foreign:
                was_open = was_open or event.payload.get("status") in _OPEN
                last_at = int(event.ts)
            if was_open:
                skip_until = last_at
    return ReadState(Position(session_id, position.cursor, position.at, after), skip_until)


def _decoded(data: bytes) -> Event | None:
    try:
        return decode_event(data)
    except EventInvalid:  # damaged; reported when the session is read
        return None


def _cursor(event: Event) -> Mapping[str, Any] | None:
    """Return the cursor in an event; None if it has none."""
    ours = (event.extensions or {}).get("quarterdeck")
    source = ours.get("source") if isinstance(ours, Mapping) else None
    cursor = source.get("cursor") if isinstance(source, Mapping) else None
    return cursor if isinstance(cursor, Mapping) else None

"""Reads one session of OpenCode's store; a cursor is the number of an event.

A session of an older version has no events at its beginning: its messages are read first, each with
its parts, and the cursor is the time and the id of a message (`created`, `message`). A message that
is still being written is left for later, unless another one follows it.

What has to be remembered between events is found out by reading those just before the cursor, so
cursors stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from quarterdeck.agents.adapters.line_file import CHUNK
from quarterdeck.agents.adapters.line_reader import unreadable
from quarterdeck.agents.adapters.opencode.session_events import REMEMBERED, SessionEvents
from quarterdeck.agents.adapters.opencode.store import (
    Store,
    StoredEvent,
    StoredMessage,
    StoreFailed,
)
from quarterdeck.errors import JsonInvalid, SourceRewritten
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import Normalized
from quarterdeck.views.context import Cursor, ForeignSession, ForeignUpdate

_MOST_EVENTS: Final = 500
_SAME_MOMENT: Final = 60_000 << 12  # ids begin with milliseconds, shifted by a counter
_HEX: Final = 12


class StoreReader:
    """Reads one session from a cursor on."""

    def __init__(self, store: Store, found: ForeignSession, after: Cursor | None, at: int) -> None:
        self._store = store
        self._found = found
        self._parser = SessionEvents(cwd=found.cwd, at=at)
        self._skipped_until = 0
        self._seq: int | None = None
        """The last event that was read; None while messages are read."""
        self._message: tuple[int, str] = (0, "")
        self._first_new: str | None = None
        self._is_begun = False
        after = after or {}
        if isinstance(after.get("seq"), int):
            self._seq = after["seq"]
        elif isinstance(after.get("message"), str):
            self._message = (int(after.get("created", 0)), after["message"])

    @property
    def is_holding(self) -> bool:
        return False

    def read(self) -> Sequence[ForeignUpdate]:
        self._begin()
        while self._seq is None:
            updates = self._read_message()
            if updates:
                return updates
            if updates is None:
                return ()
        while True:
            last = self._seq
            events = self._store.events(self._found.id, last, _MOST_EVENTS, CHUNK)
            read = [update for event in events for update in self._read_event(event)]
            if read or self._seq == last:
                return read

    def _begin(self) -> None:
        """Find out where to begin, or remember what came before the cursor."""
        if self._is_begun:
            return
        session_id = self._found.id
        if self._seq is not None:
            last = self._store.last_number(session_id)
            if last < 0:
                raise StoreFailed(f"session {session_id} is not in {self._store.path} any more")
            if last < self._seq:
                raise SourceRewritten(f"session {session_id} in {self._store.path}")
            at = self._parser.at
            for event in self._store.events_before(session_id, self._seq, REMEMBERED):
                self._parse(event)
            self._parser.at = at
        elif not self._message[1]:
            first = self._store.events(session_id, -1, 1, 0)
            if first and first[0].type.startswith("session.created"):
                self._seq = -1
        if self._seq is None:
            self._first_new = _first_new_message(self._store.new_messages(session_id))
        self._is_begun = True

    # ---- events -------------------------------------------------------------------------------

    def _read_event(self, event: StoredEvent) -> list[ForeignUpdate]:
        updates = self._parse(event)
        self._seq = event.seq
        return self._placed(updates, {"seq": event.seq})

    def _parse(self, event: StoredEvent) -> list[Normalized]:
        if event.data is None:
            return [unreadable(event.seq, 0, "too long")]
        try:
            data = decode_json(event.data)
        except JsonInvalid as error:
            return [unreadable(event.seq, len(event.data), str(error), event.data)]
        kind, _, version = event.type.rpartition(".")
        return self._parser.updates(kind if version.isdecimal() else event.type, data)

    def _placed(self, updates: list[Normalized], cursor: Cursor) -> list[ForeignUpdate]:
        at = self._parser.at or self._found.changed_at
        if self._skipped_until and at <= self._skipped_until:
            return []
        return [ForeignUpdate(update=each, at=at, cursor=cursor) for each in updates]

    # ---- messages of older versions -----------------------------------------------------------

    def _read_message(self) -> list[ForeignUpdate] | None:
        """Return the updates of the next message; None if it is not complete.

        After the last one, events are read.
        """
        message = self._store.next_message(self._found.id, self._message)
        if message is None or message.id == self._first_new:
            if message is None and self._first_new is None:
                if self._store.last_number(self._found.id) < 0:
                    return None
                # It has begun to write events since this reader was opened.
                self._first_new = _first_new_message(self._store.new_messages(self._found.id))
            self._seq = -1
            return []
        info = _decoded(message.data)
        if message.is_last and self._first_new is None and _is_being_written(info):
            return None
        self._message = (message.created_at, message.id)
        updates = self._message_updates(message, info)
        return self._placed(updates, {"created": message.created_at, "message": message.id})

    def _message_updates(self, message: StoredMessage, info: Any) -> list[Normalized]:
        if not isinstance(info, dict):
            return [unreadable(0, len(message.data), f"message {message.id}", message.data)]
        known = {**info, "id": message.id}
        begun = {key: known[key] for key in ("id", "role") if key in known}
        self._parser.updates("message.updated", {"info": begun})
        updates: list[Normalized] = []
        for part_id, changed_at, data in message.parts:
            part = _decoded(data)
            if not isinstance(part, dict):
                updates.append(unreadable(0, len(data), f"part {part_id}", data))
                continue
            whole = {**part, "id": part_id, "messageID": message.id}
            if part.get("type") in ("text", "reasoning"):
                whole["time"] = {"end": changed_at, **(part.get("time") or {})}
            event = {"part": whole, "time": changed_at}
            updates += self._parser.updates("message.part.updated", event)
        return updates + self._parser.updates("message.updated", {"info": known})

    def skip(self, until: int) -> None:
        self._skipped_until = until

    def close(self) -> None:
        """Close nothing: the store is opened for each read."""


def _decoded(data: bytes) -> Any:
    try:
        return decode_json(data)
    except JsonInvalid:
        return None


def _is_being_written(info: Any) -> bool:
    times = info.get("time") if isinstance(info, dict) else None
    is_answer = isinstance(info, dict) and info.get("role") == "assistant"
    return is_answer and isinstance(times, dict) and not times.get("completed")


def _first_new_message(events: Sequence[tuple[str, bytes]]) -> str | None:
    """Return the first message that was made when its event was: others were only changed."""
    for event_id, data in events:
        event = _decoded(data)
        info = event.get("info") if isinstance(event, dict) else None
        message_id = info.get("id") if isinstance(info, dict) else None
        if isinstance(message_id, str) and _moment(event_id) - _moment(message_id) < _SAME_MOMENT:
            return message_id
    return None


def _moment(identifier: str) -> int:
    digits = identifier.partition("_")[2][:_HEX]
    try:
        return int(digits, 16)
    except ValueError:
        return 0

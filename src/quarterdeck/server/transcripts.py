"""The transcript of a session: messages, tool calls and turns in order, with their times. Pure.

`SessionState` has neither times nor order: a message that continues after a tool call is one
message there. In a transcript it is two entries with the call between them, as it happened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import Event, SessionState, decode_event, initial_state, reduce
from quarterdeck.server.transcript_views import (
    Entry,
    Message,
    StatusEntry,
    TurnEntry,
    message_entry,
    tool_entry,
)

_KINDS: Final = {
    "agent-message-chunk": "agent",
    "agent-thought-chunk": "thought",
    "user-message-chunk": "user",
}
_OPENINGS: Final = {kind: f'{{"type":"{name}",'.encode() for name, kind in _KINDS.items()}
_CALLS: Final = frozenset({"tool-call", "tool-call-update"})
_OVER: Final = frozenset({"completed", "failed"})
_NOTABLE: Final = frozenset({"disconnected", "closed"})


class _Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


class _Said(msgspec.Struct, rename="camel"):
    content: _Text
    message_id: Any = None


class _TextChunk(msgspec.Struct, rename="camel"):
    """What most events of a log are; what only the first of a message tells is left out."""

    seq: int
    ts: int | float
    session_id: str
    payload: _Said


_decode_text = msgspec.json.Decoder(_TextChunk).decode


class Transcript:
    """What one session has come to."""

    def __init__(self, session_id: str) -> None:
        self.seq = 0
        self._begin(session_id)

    def _begin(self, session_id: str) -> None:
        self.state: SessionState = initial_state(session_id)
        """All but the messages, which are in the entries."""
        self._seqs: list[int] = []
        self._whats: list[Message | str | Entry] = []
        """A call is here by its key."""
        self._times: list[float] = []
        self._ended: dict[str, float] = {}
        self._open: dict[tuple[str, str], Message] = {}
        """Messages with an id since the last entry that is none: they may go on."""

    def apply(self, event: Event) -> None:
        """Take the next event in."""
        self.seq = event.seq
        kind = _KINDS.get(event.type)
        if kind is not None:
            self._chunk(kind, event)
            return
        before = self.state
        self.state = reduce(before, event)
        if event.type in _CALLS:
            self._call(event, before)
        elif event.type == "session-reset":
            self._begin(str(event.session_id))
        else:
            entry = _shown(event, before)
            if entry is not None:
                self._note(event, entry)

    def apply_stored(self, data: bytes) -> None:
        """Take the next event in as it is stored.

        Raises:
            EventInvalid: if it is damaged.
        """
        newest = self._whats[-1] if self._whats else None
        if not (isinstance(newest, Message) and self._goes_on(newest, data)):
            self.apply(decode_event(data))

    def _goes_on(self, newest: Message, data: bytes) -> bool:
        """Add a text to the newest message if it is a part of that, for a third of the cost."""
        if not data.startswith(_OPENINGS[newest.kind]):
            return False
        try:
            chunk = _decode_text(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        if chunk.payload.message_id != newest.message_id:
            return False
        self.seq = chunk.seq
        newest.append_text(chunk.payload.content.text)
        return True

    def _note(self, event: Event, what: Message | str | Entry) -> None:
        self._seqs.append(event.seq)
        self._whats.append(what)
        self._times.append(event.ts)
        if not isinstance(what, Message):
            self._open.clear()

    def _chunk(self, kind: str, event: Event) -> None:
        payload: Any = event.payload
        message_id, block = payload.get("messageId"), payload.get("content")
        newest = self._whats[-1] if self._whats else None
        found: Message | None = None
        if isinstance(newest, Message) and (newest.kind, newest.message_id) == (kind, message_id):
            found = newest
        elif message_id is not None:
            found = self._open.get((kind, _text(message_id)))
        if found is None:
            found = Message(kind, message_id, event.seq, event.extensions)
            self._note(event, found)
            if message_id is not None:
                self._open[kind, _text(message_id)] = found
        found.append(block)

    def _call(self, event: Event, before: SessionState) -> None:
        if self.state is before:
            return  # an update of a call that is not there
        payload: Any = event.payload
        key = _text(payload.get("toolCallId"))
        if event.type == "tool-call":
            self._note(event, key)
            self._ended.pop(key, None)
        if payload.get("status") in _OVER:
            self._ended.setdefault(key, event.ts)

    # ---- reading -------------------------------------------------------------------------------

    def older(self, before: int | None) -> Iterator[Entry]:
        """Return entries whose number is less than `before`, the newest first."""
        position = len(self._seqs) if before is None else bisect_left(self._seqs, before)
        for each in range(position - 1, -1, -1):
            entry = self._entry(each)
            if entry is not None:
                yield entry

    def entry(self, seq: int) -> Entry | None:
        """Return the entry that begins with the event `seq`."""
        position = bisect_left(self._seqs, seq)
        if position == len(self._seqs) or self._seqs[position] != seq:
            return None
        return self._entry(position)

    def _entry(self, position: int) -> Entry | None:
        what, at = self._whats[position], self._times[position]
        if isinstance(what, Message):
            return message_entry(what, at)
        if not isinstance(what, str):
            return what
        place = self.state.tool_calls.position(what)
        call = None if place < 0 else self.state.tool_calls.at(place)
        if call is None or call.seq != self._seqs[position]:
            return None  # it was begun again later, and is shown there
        return tool_entry(call, self.state.terminals, at, self._ended.get(what))


def _text(value: object) -> str:
    """Return an id as the reducer has it."""
    return value if isinstance(value, str) else encode_json(value).decode()


def _shown(event: Event, before: SessionState) -> Entry | None:
    payload: Any = event.payload
    if event.type == "prompt-finished":
        return TurnEntry(
            seq=event.seq,
            at=event.ts,
            stop_reason=payload.get("stopReason"),
            usage=payload.get("usage"),
            error=payload.get("error"),
        )
    if event.type == "session-status-change":
        status, resumed = payload.get("status"), payload.get("resumed") is True
        was = before.connection.status
        if (status in _NOTABLE and status != was) or (resumed and was != "creating"):
            return StatusEntry(seq=event.seq, at=event.ts, status=status, resumed=resumed)
    return None

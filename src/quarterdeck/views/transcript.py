"""The transcript of a session: messages, tool calls, turns and status changes in order, with times.

`SessionState` has neither times nor order: a message that continues after a tool call is one
message there. In a transcript it is two entries with the call between them, as it happened.

`Transcript` adds one event at a time. It holds messages as lists of text chunks and everything else
as a `SessionState`, so that adding an event costs little; an `Entry` is built when it is read.
Entries are numbered by the `seq` of their first event.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

import msgspec

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import (
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
    AnyEvent,
    ApprovalMismatchEvent,
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    ForegroundEvent,
    HostEvent,
    MessageKind,
    MessageUpdateEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PlanRemovedEvent,
    PlanUpdateEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionState,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    UsageUpdateEvent,
    UserMessageChunkEvent,
    any_event,
    decode_event,
    initial_state,
    is_session_status,
    reduce,
)
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.views.entries import (
    Entry,
    Message,
    MismatchEntry,
    StatusEntry,
    TurnEntry,
    message_entry,
    note_entry,
    tool_entry,
)
from quarterdeck.views.notes import Note, note_key, noted_update

_KINDS: Final[Mapping[type[Event], MessageKind]] = {
    AgentMessageChunkEvent: "agent",
    AgentThoughtChunkEvent: "thought",
    UserMessageChunkEvent: "user",
}
_PREFIXES: Final[Mapping[MessageKind, bytes]] = {
    "agent": b'{"type":"agent-message-chunk",',
    "thought": b'{"type":"agent-thought-chunk",',
    "user": b'{"type":"user-message-chunk",',
}
"""How a stored chunk of each kind begins."""
_OVER: Final = ("completed", "failed", "cancelled")  # no set: a status may be any JSON


class _Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


class _TextPayload(msgspec.Struct, rename="camel"):
    content: _Text
    message_id: Any = None


class _TextChunk(msgspec.Struct, rename="camel"):
    """Most events of a log; extensions are skipped, because only a first chunk needs them."""

    seq: int
    ts: int | float
    session_id: str
    payload: _TextPayload


_decode_text = msgspec.json.Decoder(_TextChunk).decode


class Transcript:
    """The transcript of one session, built event by event."""

    def __init__(
        self, session_id: str, *, after: int = 0, state: SessionState | None = None
    ) -> None:
        """With `after` and the `state` at that event, it is what follows the event."""
        self.seq = after
        self.begins = after
        """The event before its first entry: a reset, or where it was begun."""
        self._begin(initial_state(session_id) if state is None else state)

    def _begin(self, state: SessionState) -> None:
        self.state = state
        """Everything but the messages, which are in `_items`."""
        self._seqs: list[int] = []
        self._items: list[Message | Note | str | Entry] = []
        """What each entry is made from; a tool call is its key in the state."""
        self._times: list[float] = []
        self._ended: dict[str, float] = {}
        self._open: dict[tuple[MessageKind, str], Message] = {}
        """Messages with an id since the last entry that is no message: they may continue."""
        self._notes: dict[str, Note] = {}
        """Notes of this turn that later updates may continue."""
        self._running: set[str] = set()
        """Tool calls that have not ended."""

    @property
    def has_running_calls(self) -> bool:
        return bool(self._running)

    @property
    def is_in_message(self) -> bool:
        """Whether the newest entry is a message, which may continue."""
        return bool(self._items) and isinstance(self._items[-1], Message)

    @property
    def is_at_turn_end(self) -> bool:
        """Whether the newest entry is the end of a turn."""
        return bool(self._items) and isinstance(self._items[-1], TurnEntry)

    def apply(self, event: Event) -> None:
        """Add the next event."""
        self.seq = event.seq
        kind = _KINDS.get(type(event))  # most events are chunks; a `match` costs more
        if kind is not None:
            self._chunk(kind, event)
        else:
            self._apply_other(any_event(event))

    def _apply_other(self, event: AnyEvent) -> None:
        match event:
            case ToolCallUpdateEvent() | ToolCallEvent():
                self._call(event)
            case SessionResetEvent():
                self.begins = event.seq
                self._begin(initial_state(event.session_id))
            case PromptFinishedEvent():
                self.state = reduce(self.state, event)
                self._add(event, _turn_entry(event))
                self._notes.clear()
            case SessionStatusChangeEvent():
                self._status(event)
            case ApprovalMismatchEvent():
                self._add(event, _mismatch_entry(event))
            case UserMessageChunkEvent() | AgentMessageChunkEvent() | AgentThoughtChunkEvent():
                self._chunk(_KINDS[type(event)], event)
            case MessageUpdateEvent():
                self._replace_message(event)
            case UnrecognizedUpdateEvent() | UnknownEvent():
                self._note(event)
            case SessionEvent() | HostEvent():
                self._state_only(event)
            case _:
                assert_never(event)

    def _state_only(
        self,
        event: PlanEvent
        | AvailableCommandsUpdateEvent
        | CurrentModeUpdateEvent
        | SessionConfigInitEvent
        | ConfigOptionsUpdateEvent
        | SessionInfoUpdateEvent
        | UsageUpdateEvent
        | PermissionRequestCreatedEvent
        | PermissionRequestResolvedEvent
        | TerminalOutputEvent
        | TerminalUpdateEvent
        | ToolCallContentChunkEvent
        | ForegroundEvent
        | PlanUpdateEvent
        | PlanRemovedEvent
        | HostEvent,
    ) -> None:
        """Add an event that is no entry of its own."""
        self.state = reduce(self.state, event)

    def apply_stored(self, data: bytes) -> None:
        """Add the next event from its stored JSON.

        Raises:
            EventInvalid: if it is damaged.
        """
        newest = self._items[-1] if self._items else None
        if not (isinstance(newest, Message) and self._append_text(newest, data)):
            self.apply(decode_event(data))

    def _append_text(self, newest: Message, data: bytes) -> bool:
        """Append a text chunk of the newest message, for a third of the cost of `apply`."""
        if not data.startswith(_PREFIXES[newest.kind]):
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

    def _add(self, event: Event, item: Message | Note | str | Entry) -> None:
        self._seqs.append(event.seq)
        self._items.append(item)
        self._times.append(event.ts)
        if not isinstance(item, Message):
            self._open.clear()

    def _chunk(self, kind: MessageKind, event: Event) -> None:
        payload: Any = event.payload
        message_id, block = payload.get("messageId"), payload.get("content")
        newest = self._items[-1] if self._items else None
        found: Message | None = None
        if isinstance(newest, Message) and (newest.kind, newest.message_id) == (kind, message_id):
            found = newest
        elif message_id is not None:
            found = self._open.get((kind, _text(message_id)))
        if found is None:
            found = Message(kind, message_id, event.seq, event.extensions)
            self._add(event, found)
            if message_id is not None:
                self._open[kind, _text(message_id)] = found
        found.append(block)

    def _replace_message(self, event: MessageUpdateEvent) -> None:
        """Put the whole content of a message where it began; its later pieces are left empty."""
        payload: Any = event.payload
        kind, message_id, content = (payload.get(key) for key in ("kind", "messageId", "content"))
        if content is None or message_id is None:
            return
        pieces = [
            item
            for item in self._items
            if isinstance(item, Message) and (item.kind, item.message_id) == (kind, message_id)
        ]
        for piece in pieces:
            piece.clear()
        found = pieces[0] if pieces else Message(kind, message_id, event.seq, event.extensions)
        if not pieces:
            self._add(event, found)
            self._open[kind, _text(message_id)] = found
        for block in content if isinstance(content, list) else [content]:
            found.append(block)

    def _note(self, event: UnrecognizedUpdateEvent | UnknownEvent) -> None:
        """Add a note, or what is new to one of this turn; repetitions of an update are counted."""
        update = noted_update(event)
        if update is None:
            return
        key = note_key(update)
        newest = self._items[-1] if self._items else None
        found: Note | None = None
        if key is not None:
            found = self._notes.get(key)
        elif isinstance(newest, Note) and newest.is_repeated_by(update):
            found = newest
        if found is None:
            found = Note(event)
            self._add(event, found)
            if key is not None:
                self._notes[key] = found
        found.add(update)

    def _call(self, event: ToolCallEvent | ToolCallUpdateEvent) -> None:
        before, self.state = self.state, reduce_shown(self.state, event)
        if self.state is before:
            return  # an update of an unknown call
        payload: Any = event.payload
        key = _text(payload.get("toolCallId"))
        if isinstance(event, ToolCallEvent):
            self._add(event, key)
            self._ended.pop(key, None)
            self._running.add(key)
        if payload.get("status") in _OVER:
            self._ended.setdefault(key, event.ts)
            self._running.discard(key)

    def _status(self, event: SessionStatusChangeEvent) -> None:
        before, self.state = self.state.connection.status, reduce(self.state, event)
        payload: Any = event.payload
        status, is_resumed = payload.get("status"), payload.get("resumed") is True
        # The log of a session that was started elsewhere begins with it: nothing has stopped here.
        is_loss = status != before and _is_loss(status) and event.seq > 1
        if is_loss or (is_resumed and before != "creating"):
            self._add(
                event,
                StatusEntry(seq=event.seq, at=event.ts, status=status, resumed=is_resumed),
            )

    # ---- reading -------------------------------------------------------------------------------

    def older(self, before: int | None) -> Iterator[Entry]:
        """Yield the entries whose `seq` is less than `before`, the newest first."""
        position = len(self._seqs) if before is None else bisect_left(self._seqs, before)
        for each in range(position - 1, -1, -1):
            entry = self._entry(each)
            if entry is not None:
                yield entry

    def entry(self, seq: int) -> Entry | None:
        """Return the entry that starts with the event `seq`."""
        position = bisect_left(self._seqs, seq)
        if position == len(self._seqs) or self._seqs[position] != seq:
            return None
        return self._entry(position)

    def _entry(self, position: int) -> Entry | None:
        item, at = self._items[position], self._times[position]
        if isinstance(item, Message):
            return None if item.is_empty else message_entry(item, at)
        if isinstance(item, Note):
            return note_entry(item, self.state.session_id, at)
        if not isinstance(item, str):
            return item
        index = self.state.tool_calls.position(item)
        call = None if index < 0 else self.state.tool_calls.at(index)
        if call is None or call.seq != self._seqs[position]:
            return None  # announced again later: the later entry shows it
        return tool_entry(call, self.state.terminals, at, self._ended.get(item))


def _text(value: object) -> str:
    """Return an id as `reduce` spells it."""
    return value if isinstance(value, str) else encode_json(value).decode()


def _turn_entry(event: PromptFinishedEvent) -> TurnEntry:
    payload: Any = event.payload
    return TurnEntry(
        seq=event.seq,
        at=event.ts,
        stop_reason=payload.get("stopReason"),
        usage=payload.get("usage"),
        error=payload.get("error"),
    )


def _mismatch_entry(event: ApprovalMismatchEvent) -> MismatchEntry:
    payload: Any = event.payload
    differences = payload.get("differences")
    return MismatchEntry(
        seq=event.seq,
        at=event.ts,
        request_id=_text(payload.get("requestId")),
        tool_call_id=_text(payload.get("toolCallId")),
        differences=differences if isinstance(differences, list) else [],
    )


def _is_loss(status: object) -> bool:
    """Return whether a reader must see that a session has come to this status."""
    if not is_session_status(status):
        return False
    match status:
        case "disconnected" | "closed":
            return True
        case "creating" | "active" | "prompting" | "resuming":
            return False
        case "deleted":
            return False  # its transcript is deleted with it
        case _:
            assert_never(status)

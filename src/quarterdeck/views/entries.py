"""The entries of a transcript: what a reader of a session sees, in order.

`Message` collects the chunks of a message while it grows; the other entries are made at once.
Every entry is numbered by the `seq` of its first event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from quarterdeck.protocol import MessageKind, TerminalOutputState, ToolCallState, to_json
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.line_diff import LineTally
from quarterdeck.views.notes import Note, note_text


class MessageEntry(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="message"
):
    seq: int
    at: float
    kind: str
    message_id: Any
    content: list[Any]
    """Consecutive plain texts are one block."""
    prompt_key: str | UnsetType = UNSET
    """The key of the prompt, if the message is one that came through the prompt queue."""
    is_clipped: bool = False
    cut_characters: int | UnsetType = UNSET
    """How many are missing, if it is clipped."""


class ToolEntry(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool"):
    seq: int
    at: float
    ended_at: float | None
    call: dict[str, Any]
    terminals: dict[str, Any]
    """The terminals that its content names."""
    is_clipped: bool = False
    cut_characters: int | UnsetType = UNSET
    """How many are missing, if it is clipped."""
    tally: LineTally | UnsetType = UNSET
    """Of all its diffs, whole; with a clipped entry that has any."""
    cut_diffs: dict[str, LineTally] | UnsetType = UNSET
    """Of the diffs whose texts were cut, by their position in the content: the tallies as a whole.
    A diff of cut texts shows changes that are none."""


class TurnEntry(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="turn"):
    """A turn has ended."""

    seq: int
    at: float
    stop_reason: Any
    usage: Any
    error: Any


class StatusEntry(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="status"
):
    """A session was closed, lost its agent, or was resumed."""

    seq: int
    at: float
    status: str
    resumed: bool


class MismatchEntry(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="mismatch"
):
    """What an agent did after an approval differs from what was shown."""

    seq: int
    at: float
    request_id: str
    tool_call_id: str
    differences: list[Any]
    """Each has `field`, `shown` and `done`."""


class NoteEntry(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="note"):
    """What an agent reported that is neither a message nor a tool call, such as a notice."""

    seq: int
    at: float
    severity: str
    """`info`, `warning` or `error`."""
    title: str
    text: str
    """What is worth reading beside the title; may be empty."""
    update: dict[str, Any]
    """Everything that was reported, as one update."""
    count: int
    """How many updates it is made of."""
    is_unresponsive: bool = False
    """Whether it says that the agent does not respond: a reader offers to end it."""
    is_clipped: bool = False
    cut_characters: int | UnsetType = UNSET
    """How many are missing, if it is clipped."""


Entry: TypeAlias = MessageEntry | ToolEntry | TurnEntry | StatusEntry | MismatchEntry | NoteEntry


class _Texts(list[str]):
    """Consecutive plain texts; a type of its own, because an agent may send a list as a block."""


class Message:
    """Chunks of a message without another entry between them; more may be appended."""

    __slots__ = ("_blocks", "extensions", "kind", "message_id", "seq")

    def __init__(self, kind: MessageKind, message_id: Any, seq: int, extensions: Any) -> None:
        self.kind = kind
        self.message_id = message_id
        self.seq = seq
        self.extensions = extensions
        self._blocks: list[Any] = []
        """Blocks as they were sent, and `_Texts`."""

    def append(self, block: Any) -> None:
        if _is_plain(block):
            self.append_text(block["text"])
        else:
            self._blocks.append(block)

    def append_text(self, text: str) -> None:
        if self._blocks and isinstance(self._blocks[-1], _Texts):
            self._blocks[-1].append(text)
        else:
            self._blocks.append(_Texts([text]))

    def clear(self) -> None:
        self._blocks.clear()

    @property
    def is_empty(self) -> bool:
        """Whether its content was replaced by none, or by that of an earlier piece."""
        return not self._blocks

    @property
    def content(self) -> list[Any]:
        return [
            {"type": "text", "text": "".join(each)} if isinstance(each, _Texts) else each
            for each in self._blocks
        ]


def note_entry(note: Note, session_id: str, at: float) -> NoteEntry:
    severity, title, text = note_text(note.update, session_id)
    return NoteEntry(
        seq=note.seq,
        at=at,
        severity=severity,
        title=title,
        text=text,
        update=note.update,
        count=note.count,
        is_unresponsive=note.is_unresponsive,
    )


def message_entry(message: Message, at: float) -> MessageEntry:
    ours = (message.extensions or {}).get("quarterdeck")
    key = ours.get("promptKey") if isinstance(ours, dict) else None
    return MessageEntry(
        seq=message.seq,
        at=at,
        kind=message.kind,
        message_id=message.message_id,
        content=message.content,
        prompt_key=key if isinstance(key, str) else UNSET,
    )


def tool_name(call: Mapping[str, Any]) -> str | None:
    """Return the name of the tool of a call (JSON of a `ToolCallState`), if the agent gives it."""
    extensions = call.get("extensions")
    name = extensions.get("name") if isinstance(extensions, Mapping) else None
    return name if isinstance(name, str) and name else None


def tool_entry(
    call: ToolCallState,
    terminals: Mapping[str, TerminalOutputState],
    at: float,
    ended_at: float | None,
) -> ToolEntry:
    content: Sequence[Any] = call.content  # elements can be any JSON
    named = [each.get("terminalId") for each in content if isinstance(each, Mapping)]
    return ToolEntry(
        seq=call.seq,
        at=at,
        ended_at=ended_at,
        call=_shown_call(call),
        terminals={
            name: to_json(terminals[name])
            for name in named
            if isinstance(name, str) and name in terminals
        },
    )


def _shown_call(call: ToolCallState) -> dict[str, Any]:
    """Return a call with a diff for each file, whichever version its agent speaks."""
    shown = to_json(call)
    shown["content"] = list(shown_content(shown["content"]))
    return shown


def _is_plain(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and len(block) == 2
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    )

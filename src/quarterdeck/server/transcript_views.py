"""Entries of a transcript as pages get them, and how much of a large one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType, structs

from quarterdeck.protocol import TerminalOutputState, ToolCallState, to_json

LONGEST_TEXT: Final = 32 << 10
"""Characters of one text of a call; a page asks for the whole when somebody wants to see it."""
LONGEST_MESSAGE: Final = 256 << 10
"""Characters of one text of a message: those are what people read."""
LONGEST_DATA: Final = 512 << 10
"""Characters of an image or a file: half of one shows nothing."""
MOST_ELEMENTS: Final = 500
_DATA: Final = frozenset({"data", "blob"})


class MessageEntry(
    Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="message"
):
    seq: int
    at: float
    kind: str
    message_id: Any
    content: list[Any]
    """Plain texts that follow each other are one block."""
    prompt_key: str | UnsetType = UNSET
    """Of the prompt that it is, if it came through the queue."""
    is_clipped: bool = False


class ToolEntry(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool"):
    seq: int
    at: float
    ended_at: float | None
    call: dict[str, Any]
    terminals: dict[str, Any]
    """Those that its content names."""
    is_clipped: bool = False


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
    """A session was closed, lost its agent, or came back."""

    seq: int
    at: float
    status: str
    resumed: bool


Entry: TypeAlias = MessageEntry | ToolEntry | TurnEntry | StatusEntry


class Message:
    """A part of a message, without anything else between its chunks; it grows."""

    __slots__ = ("_blocks", "extensions", "kind", "message_id", "seq")

    def __init__(self, kind: str, message_id: Any, seq: int, extensions: Any) -> None:
        self.kind = kind
        self.message_id = message_id
        self.seq = seq
        self.extensions = extensions
        self._blocks: list[Any] = []
        """Plain texts that follow each other are a list."""

    def append(self, block: Any) -> None:
        if _is_plain(block):
            self.append_text(block["text"])
        else:
            self._blocks.append(block)

    def append_text(self, text: str) -> None:
        if self._blocks and isinstance(self._blocks[-1], list):
            self._blocks[-1].append(text)
        else:
            self._blocks.append([text])

    @property
    def content(self) -> list[Any]:
        return [
            {"type": "text", "text": "".join(each)} if isinstance(each, list) else each
            for each in self._blocks
        ]


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


def tool_entry(
    call: ToolCallState,
    terminals: Mapping[str, TerminalOutputState],
    at: float,
    ended_at: float | None,
) -> ToolEntry:
    content: tuple[Any, ...] = call.content  # whatever its agent has put there
    named = [each.get("terminalId") for each in content if isinstance(each, Mapping)]
    return ToolEntry(
        seq=call.seq,
        at=at,
        ended_at=ended_at,
        call=to_json(call),
        terminals={
            name: to_json(terminals[name])
            for name in named
            if isinstance(name, str) and name in terminals
        },
    )


def _is_plain(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and len(block) == 2
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    )


def clipped(entry: Entry) -> Entry:
    """Return an entry with what is very long in it cut; terminals keep their end."""
    clip = _Clip(LONGEST_MESSAGE if isinstance(entry, MessageEntry) else LONGEST_TEXT)
    match entry:
        case MessageEntry():
            entry = structs.replace(entry, content=clip.value(entry.content))
        case ToolEntry():
            terminals = {
                name: {**each, "output": clip.tail(each["output"])}
                for name, each in entry.terminals.items()
            }
            entry = structs.replace(entry, call=clip.value(entry.call), terminals=terminals)
        case TurnEntry() | StatusEntry():
            return entry
    return structs.replace(entry, is_clipped=True) if clip.has_cut else entry


class _Clip:
    """Copies JSON without what is too long, and remembers whether there was any."""

    def __init__(self, longest: int) -> None:
        self.has_cut = False
        self._longest = longest

    def value(self, value: Any, name: str = "") -> Any:
        match value:
            case str():
                return self._text(value, name)
            case Mapping():
                return {each: self.value(inner, each) for each, inner in value.items()}
            case list() | tuple():
                return [self.value(each, name) for each in self._few(value)]
            case _:
                return value

    def tail(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        self.has_cut = True
        return text[-self._longest :]

    def _text(self, text: str, name: str) -> str:
        is_data = name in _DATA
        if len(text) <= (LONGEST_DATA if is_data else self._longest):
            return text
        self.has_cut = True
        return "" if is_data else text[: self._longest]

    def _few(self, elements: Sequence[Any]) -> Sequence[Any]:
        if len(elements) <= MOST_ELEMENTS:
            return elements
        self.has_cut = True
        return elements[:MOST_ELEMENTS]

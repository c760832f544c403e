"""Entries with very long values cut, so that a page of a transcript is small.

The reader loads the rest of an entry on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, structs

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol.line_diff import LineTally, tally_of
from quarterdeck.views.entries import (
    Entry,
    MessageEntry,
    MismatchEntry,
    NoteEntry,
    StatusEntry,
    ToolEntry,
    TurnEntry,
)

LONGEST_TEXT: Final = 32 << 10
"""Characters of one text of a tool call; the page loads the rest on demand."""
LONGEST_MESSAGE: Final = 256 << 10
"""Characters of one text of a message: people read those."""
LONGEST_DATA: Final = 512 << 10
"""Characters of an image or a file: half of one shows nothing."""
MOST_ELEMENTS: Final = 500
_DATA: Final = frozenset({"data", "blob"})


def clipped(entry: Entry) -> Entry:
    """Return an entry with very long values cut; terminals keep their end."""
    clip = _Clip(LONGEST_MESSAGE if isinstance(entry, MessageEntry) else LONGEST_TEXT)
    match entry:
        case MessageEntry():
            entry = structs.replace(entry, content=clip.value(entry.content))
        case ToolEntry():
            terminals = {
                name: {**each, "output": clip.tail(each["output"])}
                for name, each in entry.terminals.items()
            }
            whole = entry.call
            entry = structs.replace(entry, call=clip.value(whole), terminals=terminals)
            if clip.cut_characters:
                entry = _with_tallies(entry, whole)
        case NoteEntry():
            entry = structs.replace(
                entry, text=clip.value(entry.text), update=clip.value(entry.update)
            )
        case TurnEntry() | StatusEntry() | MismatchEntry():
            return entry
    if not clip.cut_characters:
        return entry
    return structs.replace(entry, is_clipped=True, cut_characters=clip.cut_characters)


def _with_tallies(entry: ToolEntry, whole: Mapping[str, Any]) -> ToolEntry:
    """Return a clipped entry with the tallies of its diffs as they were."""
    tallies = {
        position: tally_of(part.get("oldText") if _is_text(part, "oldText") else None, new)
        for position, part in enumerate(whole["content"])
        if isinstance(part, Mapping) and part.get("type") == "diff"
        for new in (part["newText"] if _is_text(part, "newText") else "",)
    }
    if not tallies:
        return entry
    content = entry.call["content"]
    cut = {
        str(position): each
        for position, each in tallies.items()
        if position < len(content) and content[position] != whole["content"][position]
    }
    added = sum(each.added for each in tallies.values())
    tally = LineTally(added, sum(each.deleted for each in tallies.values()))
    return structs.replace(entry, tally=tally, cut_diffs=cut or UNSET)


def _is_text(part: Mapping[str, Any], name: str) -> bool:
    return isinstance(part.get(name), str)


class _Clip:
    """Copies JSON, cuts what is too long, and counts what it cut."""

    def __init__(self, longest: int) -> None:
        self.cut_characters = 0
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
        self.cut_characters += len(text) - self._longest
        return text[-self._longest :]

    def _text(self, text: str, name: str) -> str:
        is_data = name in _DATA
        if len(text) <= (LONGEST_DATA if is_data else self._longest):
            return text
        kept = "" if is_data else text[: self._longest]
        self.cut_characters += len(text) - len(kept)
        return kept

    def _few(self, elements: Sequence[Any]) -> Sequence[Any]:
        if len(elements) <= MOST_ELEMENTS:
            return elements
        self.cut_characters += len(encode_json(list(elements[MOST_ELEMENTS:])))
        return elements[:MOST_ELEMENTS]

"""The tool calls of a log: an agent sends patches, a packet carries everything known of the call.

`quarterdeck.protocol.tool_calls` decides which messages change which facts. This module adds what
packets need: content items and locations with all their keys, the output of terminals in place of
the terminals, the names of tools, and an end for calls that agents leave open.

Memory is bounded: of the calls that have ended only the newest `REMEMBERED` are kept, and of
terminals the newest `TERMINALS`, each with the end of its output. A call that is mentioned after it
was dropped starts again.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.terminal_output import TailBuffer
from quarterdeck.protocol.tool_calls import (
    FINAL_STATUSES,
    announced,
    ended_by_us,
    extended,
    is_open,
    requested,
    updated,
)
from quarterdeck.views.packets.builders import ToolSnapshot, text_item, whole_item, whole_locations
from quarterdeck.views.packets.tools import WIRE_KINDS, canonical_name, resolve_name, tool_kind
from quarterdeck.views.packets.types import Json

REMEMBERED: Final = 64
TERMINALS: Final = 64
TERMINAL_BYTES: Final = 65_536
_ONE_WORD: Final = re.compile(r"[A-Za-z][\w.:\-]*")
_LASTING: Final = ("toolName", "tool_name", "sessionId", "parentSessionId", "subagentSessionId")
"""Keys of `_meta` that describe the call; the others describe one update."""
_STATUSES: Final = FINAL_STATUSES | {"pending", "in_progress"}  # packets have no "paused"
_NOTHING: Final = ToolCallFacts(id="", turn=0)
CallKey = tuple[str, str]
"""The session and the id: an id is unique in its session only."""


class Terminals:
    """The end of what each terminal wrote."""

    def __init__(self) -> None:
        self._outputs: OrderedDict[CallKey, TailBuffer] = OrderedDict()

    def extend(self, key: CallKey, delta: str) -> None:
        output = self._outputs.pop(key, None) or TailBuffer.empty()
        self._outputs[key] = output.extended(delta, TERMINAL_BYTES)[0]
        if len(self._outputs) > TERMINALS:
            self._outputs.popitem(last=False)

    def replace(self, key: CallKey, text: str) -> None:
        """Forget what the terminal wrote; its whole output is `text`."""
        self._outputs.pop(key, None)
        self.extend(key, text)

    def text(self, key: CallKey) -> str:
        output = self._outputs.get(key)
        return "" if output is None else output.text


class PacketToolCall:
    """One tool call."""

    __slots__ = (
        "_content",
        "_facts",
        "_locations",
        "_meta",
        "_name",
        "_pending",
        "_shown",
        "id",
        "session",
        "status",
        "turn",
    )

    def __init__(self, session: str, call_id: str, turn: int) -> None:
        self.session = session
        self.id = call_id
        self.turn = turn
        self.status = "pending"
        self._facts: ToolCallFacts | None = None
        self._name = ""
        self._content: list[Json] | None = None
        self._pending: list[Any] = []
        """Elements that were appended to the content and are not in `_content` yet."""
        self._shown: list[Json] | None = None
        self._locations: list[Json] | None = None
        self._meta: Json | None = None

    def declare(self, name: str, meta: Json) -> None:
        """Store the name of the tool and the lasting part of `_meta`."""
        self._name = name or self._name
        lasting: Json = {key: meta[key] for key in _LASTING if key in meta}
        if lasting:
            self._meta = {**(self._meta or {}), **lasting}

    def is_open(self, turn: int) -> bool:
        """Return whether an announcement or request of `turn` is for this call, not a new one."""
        return self._facts is None or is_open(self._facts, turn)

    @property
    def content(self) -> Sequence[Any]:
        """The content that the agent sent last."""
        return () if self._facts is None else self._facts.content

    def announce(self, payload: Mapping[str, Any]) -> None:
        """Apply an announcement, the first or a repeated one."""
        self._apply(announced(self._facts, payload, self.turn), payload)

    def update(self, payload: Mapping[str, Any]) -> None:
        """Apply an update."""
        if self._facts is None:
            self.announce(payload)
        else:
            self._apply(updated(self._facts, payload), payload)

    def extend(self, payload: Mapping[str, Any]) -> None:
        """Append an element to the content."""
        if self._facts is not None:
            self._facts = extended(self._facts, payload)
            self._pending.append(payload.get("content"))

    def request(self, tool_call: Mapping[str, Any]) -> None:
        """Apply the tool call of a permission request."""
        self._apply(requested(self._facts, tool_call, self.turn), {})

    def end(self) -> None:
        """End a call that its agent left open."""
        self.status = "failed"
        if self._facts is not None:
            self._facts = ended_by_us(self._facts)

    def _apply(self, facts: ToolCallFacts, payload: Mapping[str, Any]) -> None:
        self._flush()
        before, self._facts = self._facts or _NOTHING, facts
        # An empty list is written as one if the agent sent it, and as null if it sent none; in a
        # permission request it only means that the agent does not repeat the list.
        content, locations = facts.content, facts.locations
        if content is not before.content or (not content and payload.get("content") == []):
            self._keep(_whole_content(content))
        if locations is not before.locations or (not locations and payload.get("locations") == []):
            self._locations = whole_locations(list(locations))
        if facts.status in _STATUSES:
            self.status = facts.status

    def _flush(self) -> None:
        if self._pending:
            self._keep([*(self._content or []), *_whole_content(self._pending)])
            self._pending = []

    def settle(self, terminals: Terminals) -> None:
        """Replace terminals by their output, when the call has ended."""
        self._flush()
        if self._content is not None and self._content is not self._shown:
            self._keep(list(_settled(self._content, self.session, terminals)))

    def snapshot(self, meta: Json | None, *, names: bool) -> ToolSnapshot:
        """Return all that is known, and `meta`; with `names`, the tool's name and own kind too."""
        self._flush()
        facts = self._facts or _NOTHING
        if self._meta is not None:
            meta = {**self._meta, **(meta or {})}
        if names:
            meta = {"toolName": self._tool_name(facts), **(meta or {})}
        return ToolSnapshot(
            tool_call_id=self.id,
            title=facts.title or self._name or self.id,
            kind=self._kind_to_write(facts, any_kind=names),
            status=self.status,
            raw_input=facts.raw_input,
            raw_output=facts.raw_output,
            content=self._shown,
            locations=self._locations,
            meta=meta,
        )

    def _keep(self, content: list[Json]) -> None:
        self._content = content
        self._shown = _without_terminals(content)

    def _kind_to_write(self, facts: ToolCallFacts, *, any_kind: bool) -> str:
        if any_kind and facts.kind:
            return facts.kind
        # The name decides only for a call without a kind: an agent knows its own tools best.
        kind = facts.kind or tool_kind(self._name or facts.title)
        return kind if kind in WIRE_KINDS else "other"

    def _tool_name(self, facts: ToolCallFacts) -> str:
        """Return what the tool is called; a first title of one word is taken for its name."""
        if not self._name and _ONE_WORD.fullmatch(facts.title):
            self._name = facts.title
        if self._name:
            return canonical_name(self._name) or self._name
        raw_input = facts.raw_input if isinstance(facts.raw_input, dict) else {}
        return resolve_name(facts.title, raw_input, facts.kind or "")


def _whole_content(items: Iterable[Any]) -> list[Json]:
    """Complete the items that packets have; terminals are replaced when the call ends."""
    if not items:
        return []
    whole = [
        item if item.get("type") == "terminal" else whole_item(item)
        for item in shown_content(tuple(items))
        if isinstance(item, dict)
    ]
    return [item for item in whole if item is not None]


def _without_terminals(content: list[Json]) -> list[Json] | None:
    shown = [item for item in content if item["type"] != "terminal"]
    if len(shown) == len(content):
        return content
    return shown or None


def _settled(content: list[Json], session: str, terminals: Terminals) -> Iterator[Json]:
    for item in content:
        if item["type"] != "terminal":
            yield item
        elif isinstance(item.get("terminalId"), str):
            text = terminals.text((session, item["terminalId"]))
            if text:
                yield text_item(text)


class PacketToolCalls:
    """All calls that may be mentioned again."""

    def __init__(self) -> None:
        self._open: dict[CallKey, PacketToolCall] = {}
        self._ended: OrderedDict[CallKey, PacketToolCall] = OrderedDict()
        self.terminals = Terminals()
        self.turn = 0

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()
        self.terminals = Terminals()

    def find(self, session: str, call_id: str) -> PacketToolCall | None:
        key = (session, call_id)
        return self._open.get(key) or self._ended.get(key)

    def begin(self, session: str, call_id: str) -> PacketToolCall:
        """Create a call; it replaces an old one with the same id."""
        key = (session, call_id)
        self._ended.pop(key, None)
        call = self._open[key] = PacketToolCall(session, call_id, self.turn)
        return call

    def sort(self, call: PacketToolCall) -> None:
        """Move a call between open and ended after a change."""
        key = (call.session, call.id)
        if call.status not in FINAL_STATUSES:
            if self._ended.pop(key, None) is not None:
                self._open[key] = call
            return
        call.settle(self.terminals)
        self._end(key, call)

    def end_open(self, session: str | None) -> list[PacketToolCall]:
        """End the calls that an agent left open, in one session or in all."""
        left = [call for call in self._open.values() if session in (None, call.session)]
        for call in left:
            call.end()
            call.settle(self.terminals)
            self._end((call.session, call.id), call)
        return left

    def _end(self, key: CallKey, call: PacketToolCall) -> None:
        self._open.pop(key, None)
        self._ended[key] = call
        self._ended.move_to_end(key)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

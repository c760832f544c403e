"""The tool calls of a log: an agent sends patches of them, packets want all that is known.

    an absent or null field      stays as it was
    content, locations           are replaced
    an empty `rawInput`          does not erase one that says something
    a status                     does not go back from an end, unless we ended the call ourselves

Memory is bounded: of the calls that have ended only the newest `REMEMBERED` are kept, and of
terminals the newest `TERMINALS`, each with the end of its output. A call that is mentioned again
after it was forgotten begins again.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from quarterdeck.dialects.packets.build import (
    ToolSnapshot,
    text_item,
    whole_item,
    whole_locations,
)
from quarterdeck.dialects.packets.tools import WIRE_KINDS, canonical_name, resolve_name, tool_kind
from quarterdeck.dialects.packets.types import Json
from quarterdeck.protocol import TailBuffer

REMEMBERED: Final = 64
TERMINALS: Final = 64
TERMINAL_BYTES: Final = 65_536
ENDS: Final = frozenset({"completed", "failed"})
_ONE_WORD: Final = re.compile(r"[A-Za-z][\w.:\-]*")
_LASTING: Final = ("toolName", "tool_name", "sessionId", "parentSessionId", "subagentSessionId")
"""What is true of a call for good; the rest of `_meta` is about one update."""
_STATUSES: Final = ENDS | {"pending", "in_progress"}
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

    def text(self, key: CallKey) -> str:
        output = self._outputs.get(key)
        return "" if output is None else output.text


class Call:
    """One tool call."""

    __slots__ = (
        "_content",
        "_kind",
        "_locations",
        "_meta",
        "_name",
        "_raw_input",
        "_raw_output",
        "_shown",
        "_title",
        "id",
        "is_ended_by_us",
        "session",
        "status",
        "turn",
    )

    def __init__(self, session: str, call_id: str, turn: int) -> None:
        self.session = session
        self.id = call_id
        self.turn = turn
        self.status = "pending"
        self.is_ended_by_us = False
        self._title = ""
        self._name = ""
        self._kind = ""
        self._content: list[Json] | None = None
        self._shown: list[Json] | None = None
        self._locations: list[Json] | None = None
        self._raw_input: Any = None
        self._raw_output: Any = None
        self._meta: Json | None = None

    def declare(self, name: str, meta: Json) -> None:
        """Take in what an agent says beside the call."""
        self._name = name or self._name
        lasting: Json = {key: meta[key] for key in _LASTING if key in meta}
        if lasting:
            self._meta = {**(self._meta or {}), **lasting}

    def patch(self, said: Mapping[str, Any]) -> None:
        """Take in what an agent says of the call."""
        if isinstance(title := said.get("title"), str) and title:
            self._title = title
        if isinstance(kind := said.get("kind"), str):
            self._kind = kind
        if (raw_input := said.get("rawInput")) is not None and (raw_input or not self._raw_input):
            self._raw_input = raw_input
        if (raw_output := said.get("rawOutput")) is not None:
            self._raw_output = raw_output
        if isinstance(content := said.get("content"), list):
            self._keep(_whole_content(content))
        if isinstance(locations := said.get("locations"), list):
            self._locations = whole_locations(locations)
        status = said.get("status")
        if isinstance(status, str) and status in _STATUSES:
            self._go_to(status)

    def _go_to(self, status: str) -> None:
        if status in ENDS or self.status not in ENDS or self.is_ended_by_us:
            self.status = status
            self.is_ended_by_us = False

    def settle(self, terminals: Terminals) -> None:
        """Put what terminals wrote in the place of the terminals: the call is over."""
        if self._content is not None and self._content is not self._shown:
            self._keep(list(_settled(self._content, self.session, terminals)))

    def snapshot(self, meta: Json | None, *, names: bool) -> ToolSnapshot:
        """Return all that is known, and `meta`; with `names`, the tool's name and own kind too."""
        if self._meta is not None:
            meta = {**self._meta, **(meta or {})}
        if names:
            meta = {"toolName": self._tool_name(), **(meta or {})}
        return ToolSnapshot(
            tool_call_id=self.id,
            title=self._title or self._name or self.id,
            kind=self._kind_to_write(any_kind=names),
            status=self.status,
            raw_input=self._raw_input,
            raw_output=self._raw_output,
            content=self._shown,
            locations=self._locations,
            meta=meta,
        )

    def _keep(self, content: list[Json]) -> None:
        self._content = content
        self._shown = _without_terminals(content)

    def _kind_to_write(self, *, any_kind: bool) -> str:
        if any_kind and self._kind:
            return self._kind
        # Only a call without a kind is judged by its name: an agent knows best.
        kind = self._kind or tool_kind(self._name or self._title)
        return kind if kind in WIRE_KINDS else "other"

    def _tool_name(self) -> str:
        """Return what the tool is called; a first title of one word is taken for its name."""
        if not self._name and _ONE_WORD.fullmatch(self._title):
            self._name = self._title
        if self._name:
            return canonical_name(self._name) or self._name
        raw_input = self._raw_input if isinstance(self._raw_input, dict) else {}
        return resolve_name(self._title, raw_input, self._kind)


def _whole_content(items: Iterable[Any]) -> list[Json]:
    """Complete the items that packets have; terminals wait for the end."""
    whole = [
        item if item.get("type") == "terminal" else whole_item(item)
        for item in items
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


class Ledger:
    """All calls that may be mentioned again."""

    def __init__(self) -> None:
        self._open: dict[CallKey, Call] = {}
        self._ended: OrderedDict[CallKey, Call] = OrderedDict()
        self.terminals = Terminals()
        self.turn = 0

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()
        self.terminals = Terminals()

    def find(self, session: str, call_id: str) -> Call | None:
        key = (session, call_id)
        return self._open.get(key) or self._ended.get(key)

    def begin(self, session: str, call_id: str) -> Call:
        """Make a new call, in the place of an old one with the same id."""
        key = (session, call_id)
        self._ended.pop(key, None)
        call = self._open[key] = Call(session, call_id, self.turn)
        return call

    def sort(self, call: Call) -> None:
        """Put a call where it belongs after it changed."""
        key = (call.session, call.id)
        if call.status not in ENDS:
            if self._ended.pop(key, None) is not None:
                self._open[key] = call
            return
        call.settle(self.terminals)
        self._end(key, call)

    def end_open(self, session: str | None) -> list[Call]:
        """End what an agent left open: in one session, or in all."""
        left = [call for call in self._open.values() if session in (None, call.session)]
        for call in left:
            call.status = "failed"
            call.is_ended_by_us = True
            call.settle(self.terminals)
            self._end((call.session, call.id), call)
        return left

    def _end(self, key: CallKey, call: Call) -> None:
        self._open.pop(key, None)
        self._ended[key] = call
        self._ended.move_to_end(key)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

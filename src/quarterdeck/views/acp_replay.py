"""Numbers on ACP updates, so that a client can continue exactly where it stopped. Pure.

Each update carries `_meta.quarterdeck.seq`, the number of its event in the log. An event can have
several updates: all but the last carry `part` as well, counted from 0. A client that has seen an
update continues with a `ReplayCursor`: of the same `seq` and the next `part` if the update has a
`part`, of the next `seq` otherwise. The same numbers are in `_meta` of the notification, also where
the `_meta` of the update is null, which in ACP 2 removes what was there.

`ReplayUpdates` makes a replay of ACP 2 safe for a client that has some of it: what appends is
preceded by an update that empties it. `ReplayRuns` sends what events in a row append to one message
or terminal as one update, with the number of the last of them: a client that has it has all, and
continues after it. So numbers stay exact, although most messages are sent whole.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

SEQ_CURSOR: Final = "_quarterdeck_seq"
"""The type of our cursors in `replayFrom`."""
Update: TypeAlias = dict[str, Any]
_CHUNKS: Final = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_CALL_FIELDS: Final = ("content", "locations", "rawInput", "rawOutput")


@dataclass(frozen=True, order=True)
class ReplayCursor:
    """A position in the updates of a log: an event, and which of its updates."""

    seq: int
    part: int = 0

    @classmethod
    def read(cls, given: Any) -> ReplayCursor | None:
        """Return the cursor that a client sent; None if it is not one of ours."""
        if not isinstance(given, Mapping) or given.get("type") != SEQ_CURSOR:
            return None
        seq, part = given.get("seq"), given.get("part", 0)
        if not isinstance(seq, int) or not isinstance(part, int):
            return None
        is_count = not isinstance(seq, bool) and not isinstance(part, bool) and min(seq, part) >= 0
        return cls(seq, part) if is_count else None


START: Final = ReplayCursor(0)


def numbered(
    updates: Sequence[Sequence[Update]], seq: int, since: ReplayCursor = START
) -> Iterator[tuple[Update, dict[str, Any]]]:
    """Yield the updates of an event with their numbers, and these as `_meta` of a notification.

    Each part is one update, with what a replay needs in front of it. Parts before the cursor are
    left out. What is in front has the number before its part: after it, the part comes next.
    """
    last = len(updates) - 1
    for part, group in enumerate(updates):
        if (seq, part) < (since.seq, since.part):
            continue
        for index, update in enumerate(group, 1 - len(group)):
            is_last = part == last and index == 0
            number = (
                {"seq": seq} if is_last else {"seq": seq, "part": part if index == 0 else part - 1}
            )
            yield with_number(update, number), {"quarterdeck": number}


def with_number(update: Update, number: dict[str, int]) -> Update:
    """Return an update with its number in its own `_meta`."""
    meta = update.get("_meta", {})
    if not isinstance(meta, dict):
        return update
    own = meta.get("quarterdeck")
    table = {**own, **number} if isinstance(own, dict) else number
    return {**update, "_meta": {**meta, "quarterdeck": table}}


class ReplayUpdates:
    """Which messages, calls and terminals of a session have occurred."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def is_first(self, update: Update) -> bool:
        """Note an update; return whether nothing of the same message or terminal was before it."""
        key = _key(update.get("sessionUpdate", ""), update)
        if key is None or key in self._seen:
            return False
        self._seen.add(key)
        return True

    def prepared(self, update: Update, *, is_history: bool) -> list[Update]:
        """Return an update with what a replay needs in front of it; notices are not history."""
        name = update.get("sessionUpdate", "")
        if is_history and name == "notice":
            return []
        key = _key(name, update)
        if key is None or key in self._seen:
            return [update]
        self._seen.add(key)
        return _from_nothing(name, key[1], update) if is_history else [update]


def _from_nothing(name: str, thing_id: str, update: Update) -> list[Update]:
    """Return the first update of something so that it replaces what a client has of it."""
    if name in _CHUNKS:
        whole = {"sessionUpdate": name.removesuffix("_chunk"), "messageId": thing_id}
        return [{**whole, "content": []}, update]
    if name == "tool_call_update":
        return [{**update, **{field: None for field in _CALL_FIELDS if field not in update}}]
    if name == "tool_call_content_chunk":
        empty = {"sessionUpdate": "tool_call_update", "toolCallId": thing_id, "content": []}
        return [empty, update]
    if name == "terminal_output_chunk":
        empty = {"sessionUpdate": "terminal_update", "terminalId": thing_id}
        return [{**empty, "output": {"data": ""}}, update]
    if name == "terminal_update" and "output" not in update:
        return [{**update, "output": {"data": ""}}]
    return [update]


def _key(name: str, update: Update) -> tuple[str, str] | None:
    """Return which thing an update is about, if it can be appended to."""
    if name.startswith(("user_message", "agent_message", "agent_thought")):
        return name.removesuffix("_chunk"), str(update.get("messageId"))
    if name.startswith("tool_call"):
        return "tool_call", str(update.get("toolCallId"))
    if name.startswith("terminal"):
        return "terminal", str(update.get("terminalId"))
    return None


_JOINED: Final = {"sessionUpdate", "messageId", "content"}
_OUTPUT: Final = {"sessionUpdate", "terminalId", "data"}
_RUN_CHARACTERS: Final = 256 * 1024


class ReplayRuns:
    """What events in a row append to one message or terminal."""

    def __init__(self) -> None:
        self._first: Update | None = None
        self._is_whole = False
        self._texts: list[str] = []
        self._data: list[bytes] = []
        self._size = 0
        self.seq = 0
        """The number of the last event of the run."""

    @property
    def is_open(self) -> bool:
        return self._first is not None

    def continues(self, update: Update) -> bool:
        """Return whether an update continues the run."""
        first = self._first
        if first is None or self._size > _RUN_CHARACTERS:
            return False
        names = ("sessionUpdate", "messageId", "terminalId")
        return all(update.get(name) == first.get(name) for name in names)

    def add(self, update: Update, seq: int, *, is_first: bool) -> None:
        """Begin or continue a run; `is_first` if nothing of the message or terminal was before."""
        if self._first is None:
            self._first, self._is_whole = update, is_first
        self.seq = seq
        if "data" in update:
            self._data.append(base64.b64decode(update["data"]))
            self._size += len(update["data"])
        else:
            self._texts.append(update["content"]["text"])
            self._size += len(update["content"]["text"])

    def end(self) -> Update:
        """Return the run as one update: whole if it begins the message or the terminal's output."""
        assert self._first is not None, "a run was begun"
        first, is_whole = self._first, self._is_whole
        texts, data = self._texts, self._data
        self._first, self._texts, self._data, self._size = None, [], [], 0
        if "data" in first:
            joined = base64.b64encode(b"".join(data)).decode()
            if not is_whole:
                return {**first, "data": joined}
            named = {"sessionUpdate": "terminal_update", "terminalId": first["terminalId"]}
            return {**named, "output": {"data": joined}}
        block = {"type": "text", "text": "".join(texts)}
        if not is_whole:
            return {**first, "content": block}
        name = first["sessionUpdate"].removesuffix("_chunk")
        return {"sessionUpdate": name, "messageId": first["messageId"], "content": [block]}


def can_join(updates: Sequence[Update]) -> bool:
    """Return whether the updates of an event are one that appends plain text or output."""
    if len(updates) != 1:
        return False
    (update,) = updates
    name = update.get("sessionUpdate")
    if name == "terminal_output_chunk":
        return update.keys() == _OUTPUT
    content = update.get("content")
    is_text = isinstance(content, dict) and content.keys() == {"type", "text"}
    return name in _CHUNKS and update.keys() == _JOINED and is_text

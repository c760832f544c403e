"""Numbers on ACP updates, so that a client can continue exactly where it stopped. Pure.

Each update carries `_meta.quarterdeck.seq`, the number of its event in the log. An event can have
several updates: all but the last carry `part` as well, counted from 0. A client that has seen an
update continues with a `ReplayCursor`: of the same `seq` and the next `part` if the update has a
`part`, of the next `seq` otherwise. The same numbers are in `_meta` of the notification, also where
the `_meta` of the update is null, which in ACP 2 removes what was there.

`ReplayUpdates` makes a replay of ACP 2 safe for a client that has some of it: what appends is
preceded by an update that empties it.
"""

from __future__ import annotations

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
            yield _with_number(update, number), {"quarterdeck": number}


def _with_number(update: Update, number: dict[str, int]) -> Update:
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

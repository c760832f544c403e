"""A consumer of packets, written from their description and nothing else.

It imports nothing of ours. It is strict about the seven documented packets: the keys, the nulls and
the empty values have to be there. What we write beyond the description is in `BEYOND`; packets of
other types are counted and skipped, as a reader of an open protocol does.
"""

from __future__ import annotations

import re
from typing import Any

from tests.views.shapes import ANY, Misfit, Shape, check

Json = dict[str, Any]

META: Shape = (None, dict)  # described as null; ours may carry the agent's
KIND = {"search", "read", "execute", "edit", "other"}
TODO = {"pending", "in_progress", "completed"}
BEYOND = {
    "status": {"pending", "failed"},
    "stopReason": {"cancelled", "refusal", "max_turn_requests"},
}
TEXT = {"_meta": META, "type": {"text"}, "text": str, "annotations": (None, dict)}
ITEM = (
    {"_meta": META, "type": {"content"}, "content": (TEXT, dict)},
    {"_meta": META, "type": {"diff"}, "newText": str, "oldText": str, "path": str},
)
LOCATION = {"_meta": META, "path": str, "line": (None, int)}
TOOL = {"_meta": META, "toolCallId": str, "title": str, "kind": KIND, "rawInput": ANY}
PACKETS: dict[str, Shape] = {
    "agent_message_chunk": {
        "_meta": META,
        "type": {"agent_message_chunk"},
        "sessionUpdate": {"agent_message_chunk"},
        "content": (TEXT, dict),
    },
    "tool_call_start": {
        **TOOL,
        "sessionUpdate": {"tool_call"},
        "status": {"pending"},
        "content": (None, [ITEM]),
        "rawOutput": None,
        "locations": [LOCATION],
    },
    "tool_call_progress": {
        **TOOL,
        "type": {"tool_call_progress"},
        "sessionUpdate": {"tool_call_update"},
        "timestamp": str,
        "status": {"in_progress", "completed"} | BEYOND["status"],
        "rawOutput": ANY,
        "content": (None, [ITEM]),
        "locations": (None, [LOCATION]),
    },
    "agent_plan_update": {
        "_meta": META,
        "type": {"agent_plan_update"},
        "sessionUpdate": {"plan"},
        "timestamp": str,
        "entries": [
            {
                "_meta": META,
                "content": str,
                "status": TODO,
                "priority": {"medium", "high", "low"},
            }
        ],
    },
    "prompt_response": {
        "_meta": {},
        "type": {"prompt_response"},
        "stopReason": {"end_turn", "max_tokens", "stop_sequence"} | BEYOND["stopReason"],
    },
    "error": {"type": {"error"}, "message": str, "code?": str},
    "artifact_created": {
        "type": {"artifact_created"},
        "artifact": {
            "id": str,
            "type": {"file", "image", "nextjs_app", "web_app"},
            "name": str,
            "path": str,
            "preview_url?": (None, str),
        },
    },
}
UPDATES = {
    "agent_message_chunk": "agent_message_chunk",
    "tool_call": "tool_call_start",
    "tool_call_update": "tool_call_progress",
    "plan": "agent_plan_update",
}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")


def determine(packet: Json) -> str | None:
    """Say what a packet is: `type` first, then `sessionUpdate`."""
    kind = packet.get("type")
    if isinstance(kind, str):
        return kind
    return UPDATES.get(str(packet.get("sessionUpdate")))


class Card:
    """A tool call on the screen."""

    def __init__(self, packet: Json) -> None:
        self.packet = packet

    @property
    def is_over(self) -> bool:
        return self.packet["status"] in ("completed", "failed")

    @property
    def title(self) -> str:
        """The display title: todos and tasks by their input, edits by their diff."""
        packet = self.packet
        given = packet["rawInput"] if isinstance(packet["rawInput"], dict) else {}
        if str(packet["title"]).lower() in ("todowrite", "todo_write") or "todos" in given:
            return "Todos"
        if str(packet["title"]).lower() == "task" or given.get("subagent_type"):
            return "Task"
        if packet["kind"] == "edit":
            diffs = [each for each in packet["content"] or () if each["type"] == "diff"]
            return "Editing file" if diffs and diffs[0]["oldText"] != "" else "Writing file"
        return str(packet["title"])


class Consumer:
    """Shows a stream; raises a `Misfit` as soon as something is not as described."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.skipped: dict[str, int] = {}
        self.text = ""
        self.cards: dict[str, Card] = {}
        self.plan: list[Json] = []
        self.artifacts: list[Json] = []
        self.turns: list[str] = []

    def take(self, packet: Json) -> None:
        """Check a packet, then show it."""
        kind = determine(packet)
        if kind not in PACKETS:
            name = str(kind)
            self.skipped[name] = self.skipped.get(name, 0) + 1
            return
        check(packet, PACKETS[kind], kind)
        if "timestamp" in packet and not ISO.fullmatch(packet["timestamp"]):
            raise Misfit(f"{kind}: {packet['timestamp']!r} is no time")
        self.seen[kind] = self.seen.get(kind, 0) + 1
        getattr(self, f"_{kind}")(packet)

    def _agent_message_chunk(self, packet: Json) -> None:
        self.text += packet["content"].get("text", "")

    def _key(self, packet: Json) -> str:
        """Ids are unique in a session; a sub-agent's packets say whose they are."""
        return f"{(packet['_meta'] or {}).get('sessionId', '')}/{packet['toolCallId']}"

    def _tool_call_start(self, packet: Json) -> None:
        known = self.cards.get(self._key(packet))
        if known is not None and not known.is_over:
            raise Misfit(f"{packet['toolCallId']} starts twice")
        self.cards[self._key(packet)] = Card(packet)

    def _tool_call_progress(self, packet: Json) -> None:
        # The history of a loaded session has calls that are over, and their starts no more.
        if self._key(packet) not in self.cards and not Card(packet).is_over:
            raise Misfit(f"{packet['toolCallId']} continues and never started")
        self.cards[self._key(packet)] = Card(packet)

    def _agent_plan_update(self, packet: Json) -> None:
        self.plan = packet["entries"]

    def _prompt_response(self, packet: Json) -> None:
        self._end(packet["stopReason"])

    def _error(self, packet: Json) -> None:
        self._end(f"error: {packet['message']}")

    def _end(self, how: str) -> None:
        if open_cards := [card for card in self.cards.values() if not card.is_over]:
            raise Misfit(f"{open_cards[0].packet['toolCallId']} is open when its turn is over")
        self.turns.append(how)

    def _artifact_created(self, packet: Json) -> None:
        self.artifacts.append(packet["artifact"])

"""`PacketProjector`, the stream of packets, and `PacketRows`, the packets that a page stores.

A page that is attached to a session reads the stream. A page that opens a session later loads rows
instead of the stream it missed: consecutive chunks are one row, a tool call has only its final row,
and the context usage only its last value in a turn (`Coalescer`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from quarterdeck.protocol import Event
from quarterdeck.views.packets.detection import has_todo_title, is_task_tool, packet_type
from quarterdeck.views.packets.projection import HasSessionId, Projection, Style
from quarterdeck.views.packets.types import Json, Packet

_RUNS: Final = {
    "user_message_chunk": "user_message",
    "agent_message_chunk": "agent_message",
    "agent_thought_chunk": "agent_thought",
}
_KEPT_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
_METADATA: Final = "<task_metadata>"


class InsertRow(Struct, frozen=True):
    """Append a packet; `turn` counts the prompts before its own."""

    turn: int
    packet: Packet


class UpsertPlan(Struct, frozen=True):
    """Store the plan of a turn; it replaces the previous one."""

    turn: int
    packet: Packet


class ClearRows(Struct, frozen=True):
    """Delete all rows: the session was loaded again and its whole history follows."""


Row: TypeAlias = InsertRow | UpsertPlan | ClearRows


class Coalescer:
    """Turns packets into rows; holds at most one message and the last context usage."""

    def __init__(self) -> None:
        self._prompts = 0
        self._kind = ""
        self._origin: tuple[Any, ...] = ()
        self._texts: list[str] = []
        self._attachments: list[Json] = []
        self._usage: Packet | None = None

    def feed(self, packet: Packet) -> list[Row]:
        """Return the rows that a packet completes."""
        kind = packet_type(packet)
        if kind == "context_usage":
            self._usage = packet  # must not split a message
            return []
        run = _RUNS.get(kind, "")
        origin = _origin(packet) if run else ()
        rows: list[Row] = []
        if self._kind and (run, origin) != (self._kind, self._origin):
            rows = self._flush()
        self._kind, self._origin = run, origin
        match kind:
            case "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk":
                self._take(packet["content"])
            case "tool_call_progress":
                rows += [InsertRow(self._turn, kept) for kept in _kept_of_call(packet)]
            case "agent_plan_update":
                rows.append(UpsertPlan(self._turn, packet))
            case "compaction":
                rows.append(InsertRow(self._turn, packet))
            case "prompt_response" | "error":
                rows += self.finish()
            case _:
                pass
        return rows

    def finish(self) -> list[Row]:
        """Return the rows that are still held, at the end of a turn or of the log."""
        rows = self._flush()
        if self._usage is not None:
            rows.append(InsertRow(self._turn, self._usage))
            self._usage = None
        return rows

    @property
    def _turn(self) -> int:
        return max(self._prompts - 1, 0)

    def _take(self, block: Json) -> None:
        if block.get("type") == "text":
            self._texts.append(block["text"])
        elif self._kind == "user_message":
            self._attachments.append(block)

    def _flush(self) -> list[Row]:
        kind, text, attachments = self._kind, "".join(self._texts), self._attachments
        origin = self._origin
        self._kind, self._origin, self._texts, self._attachments = "", (), [], []
        if not text and not attachments:
            return []
        packet: Packet = {"type": kind, "content": {"type": "text", "text": text}}
        if kind == "user_message":
            self._prompts += 1
            if attachments:
                packet["attachments"] = attachments
            return [InsertRow(self._turn, packet)]
        packet["sessionUpdate"] = kind
        routing = _routing(origin)
        if routing:
            packet["_meta"] = routing
        return [InsertRow(self._turn, packet)]


def _origin(packet: Packet) -> tuple[Any, ...]:
    meta = packet["_meta"] or {}
    return meta.get("sessionId"), meta.get("parentSessionId"), meta.get("messageId")


def _routing(origin: tuple[Any, ...]) -> Json:
    named = zip(("sessionId", "parentSessionId"), origin, strict=False)
    return {key: value for key, value in named if isinstance(value, str) and value}


def _kept_of_call(packet: Packet) -> list[Packet]:
    """Return the rows of a call's progress: the call when it has ended, a subagent's answer."""
    kept = [packet] if packet["status"] in _KEPT_STATUSES or has_todo_title(packet) else []
    output = packet["rawOutput"]
    if packet["status"] != "completed" or not isinstance(output, dict) or not is_task_tool(packet):
        return kept
    answer = output.get("output")
    text = answer.partition(_METADATA)[0].strip() if isinstance(answer, str) else ""
    if not text:
        return kept
    answered = {
        "type": "agent_message",
        "content": {"type": "text", "text": text},
        "source": "task_output",
        "timestamp": packet["timestamp"],
    }
    return [*kept, answered]


class PacketRows:
    """Turns a log into the rows that a page stores."""

    def __init__(self, session: str | HasSessionId, *, style: Style = "plain") -> None:
        self._projection = Projection(session, style)
        self._coalescer = Coalescer()

    def feed(self, event: Event) -> list[Row]:
        """Return the rows that an event completes."""
        if event.type == "session-reset":
            self._coalescer = Coalescer()
            return [ClearRows(), *self._rows(event)]
        return self._rows(event)

    def _rows(self, event: Event) -> list[Row]:
        return [
            row for packet in self._projection.feed(event) for row in self._coalescer.feed(packet)
        ]

    def finish(self) -> list[Row]:
        """Return the rows that the log leaves incomplete."""
        return self._coalescer.finish()


class PacketProjector:
    """Turns events into packets; the same log gives the same packets, whole or in pieces.

    Style "plain" writes packets exactly as they are documented. Style "tagged" adds what newer
    readers look for: `type` and `timestamp` on every packet, the tool's name in `_meta.toolName`,
    ACP's own kinds, and `cancelled` for calls that a cancelled turn left open.

    The history of a session that is loaded has whole messages (`user_message`, `agent_message`,
    `agent_thought`) and only final states of calls, as in `PacketRows`.

    The documented stream has no prompts: the page that sends one shows it itself. A page that
    joins later, or next to another one, passes `prompts=True` and gets a `user_message` for each
    block of a prompt as well. Blocks of one prompt have the same `_meta.messageId`.

    Packets share nested values with the events and with each other: do not change them.
    """

    def __init__(
        self, session: str | HasSessionId, *, style: Style = "plain", prompts: bool = False
    ) -> None:
        self._projection = Projection(session, style)
        self._has_prompts = prompts
        self._history: Coalescer | None = None

    def feed(self, event: Event) -> list[Packet]:
        """Return the packets of the next event; events of the host have none."""
        packets = self._projection.feed(event)
        if self._history is not None:
            return self._from_history(self._history, event, packets)
        if event.type == "session-reset" and event.session_id == self._projection.session_id:
            self._history = Coalescer()
        if packets and packets[0].get("type") == "user_message_chunk":
            is_own = event.session_id == self._projection.session_id  # a call has a subagent's
            return [_prompt(each) for each in packets] if self._has_prompts and is_own else []
        return packets

    def _from_history(
        self, history: Coalescer, event: Event, packets: list[Packet]
    ) -> list[Packet]:
        rows: list[Row] = [row for packet in packets for row in history.feed(packet)]
        if event.type == "session-status-change":
            rows += history.finish()
            self._history = None
        return [row.packet for row in rows if not isinstance(row, ClearRows)]


def _prompt(chunk: Packet) -> Packet:
    """Return a block of a prompt as a message of the user, in the shape of a row."""
    block, meta = chunk["content"], chunk["_meta"]
    is_text = block.get("type") == "text"
    content = {"type": "text", "text": block["text"] if is_text else ""}
    packet: Packet = {"type": "user_message", "content": content}
    if not is_text:
        packet["attachments"] = [block]
    if "timestamp" in chunk:
        packet["timestamp"] = chunk["timestamp"]
    return packet if meta is None else {**packet, "_meta": meta}

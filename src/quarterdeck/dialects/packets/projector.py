"""`PacketProjector`: the packets of a log, as a page that is attached to it sees them."""

from __future__ import annotations

from quarterdeck.dialects.packets.projection import HasSessionId, Projection, Style
from quarterdeck.dialects.packets.rows import ClearRows, Coalescer, Row
from quarterdeck.dialects.packets.types import Packet
from quarterdeck.protocol import Event


class PacketProjector:
    """Makes packets of events; the same log gives the same packets, whole or in pieces.

    Style "plain" writes packets exactly as they are documented. Style "tagged" adds what newer
    readers look for: `type` and `timestamp` on every packet, the tool's name in `_meta.toolName`,
    ACP's own kinds, and `cancelled` for calls that a cancelled turn left open.

    A session that is loaded comes as history: whole messages (`user_message`, `agent_message`,
    `agent_thought`) and the ends of calls, as `PacketRows` keeps them.

    Packets share what is nested in them with the events and with each other: do not change them.
    """

    def __init__(self, session: str | HasSessionId, *, style: Style = "plain") -> None:
        self._projection = Projection(session, style)
        self._history: Coalescer | None = None

    def feed(self, event: Event) -> list[Packet]:
        """Return the packets of the next event; events of the host have none."""
        packets = self._projection.feed(event)
        if self._history is not None:
            return self._from_history(self._history, event, packets)
        if event.type == "session-reset" and event.session_id == self._projection.session_id:
            self._history = Coalescer()
        return [] if event.type == "user-message-chunk" else packets

    def _from_history(
        self, history: Coalescer, event: Event, packets: list[Packet]
    ) -> list[Packet]:
        rows: list[Row] = [row for packet in packets for row in history.feed(packet)]
        if event.type == "session-status-change":
            rows += history.finish()
            self._history = None
        return [row.packet for row in rows if not isinstance(row, ClearRows)]

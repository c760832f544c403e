"""Numbers, timestamps and collects the context events of one session.

Rare events are made by `emit`. Frequent ones are constructed where they occur, with `take_seq` and
`add`: a call with all its keywords spelled out costs a fifth of one that collects them first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quarterdeck.protocol.timestamps import IsoClock
from quarterdeck.views.context.events import ContextEvent, CustomEvent

NAMESPACE = "acp"
"""The namespace of custom events for what only the Agent Client Protocol has."""


class EventNumbering:
    """The sequence of one session; timestamps are those of the log's events."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.ts: float = 0
        self.is_replay = False
        self.timestamp = ""
        self._clock = IsoClock()
        self._out: list[ContextEvent] = []

    def begin(self, ts: float) -> list[ContextEvent]:
        """Start the next event of the log; return the list that its context events are added to."""
        if ts != self.ts or not self.timestamp:
            self.ts = ts
            self.timestamp = self._clock.text(ts)
        self._out = []
        return self._out

    def take_seq(self) -> int:
        """Return the number of the next context event."""
        self.seq = seq = self.seq + 1
        return seq

    def add(self, event: ContextEvent) -> None:
        """Add an event that has the number just taken."""
        self._out.append(event)

    def emit(self, make: Callable[..., ContextEvent], **fields: Any) -> None:
        """Make an event with the next number and add it."""
        self._out.append(
            make(
                seq=self.take_seq(),
                session_id=self.session_id,
                timestamp=self.timestamp,
                replay=self.is_replay,
                **fields,
            )
        )

    def custom(self, name: str, data: Any, namespace: str = NAMESPACE) -> None:
        """Add a `custom` event, for what this protocol has no event for."""
        contents = data if isinstance(data, dict) else {"value": data}
        self.emit(CustomEvent, namespace=namespace, event_name=name, data=contents)

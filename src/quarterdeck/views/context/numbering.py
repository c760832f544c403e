"""Where the events of a projection are numbered and collected.

`emit` is for events that are told now and then. Those that make up a log are made where they are
told, with `take_seq` and `add`: a call with all its keywords spelled out costs a fifth of one that
collects them first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quarterdeck.protocol.timestamps import IsoClock
from quarterdeck.views.context.events import ContextEvent, CustomEvent

NAMESPACE = "acp"
"""Of the custom events that stand for what the Agent Client Protocol has and this one has not."""


class EventNumbering:
    """One session's numbers; times are those of the log's events."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.ts: float = 0
        self.is_replay = False
        self.timestamp = ""
        self._clock = IsoClock()
        self._out: list[ContextEvent] = []

    def begin(self, ts: float) -> list[ContextEvent]:
        """Start with the next event of the log; return what it will be told as."""
        if ts != self.ts or not self.timestamp:
            self.ts = ts
            self.timestamp = self._clock.text(ts)
        self._out = []
        return self._out

    def take_seq(self) -> int:
        """Return the number of the next event."""
        self.seq = seq = self.seq + 1
        return seq

    def add(self, event: ContextEvent) -> None:
        """Tell an event that has the number just taken."""
        self._out.append(event)

    def emit(self, make: Callable[..., ContextEvent], **fields: Any) -> None:
        """Make an event and tell it."""
        self._out.append(
            make(
                seq=self.take_seq(),
                session_id=self.session_id,
                timestamp=self.timestamp,
                replay=self.is_replay,
                **fields,
            )
        )

    def custom(self, name: str, about: Any, namespace: str = NAMESPACE) -> None:
        """Tell what no other event can tell."""
        contents = about if isinstance(about, dict) else {"value": about}
        self.emit(CustomEvent, namespace=namespace, event_name=name, data=contents)

"""Where the events of a projection are numbered and collected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quarterdeck.dialects.context.events import ContextEvent, CustomEvent
from quarterdeck.dialects.context.times import iso_time

NAMESPACE = "acp"
"""Of the custom events that stand for what the Agent Client Protocol has and this one has not."""


class Stage:
    """One session's numbers; times are those of the log's events."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.ts: float = 0
        self.is_replay = False
        self._timestamp = ""
        self._out: list[ContextEvent] = []

    def begin(self, ts: float) -> list[ContextEvent]:
        """Start with the next event of the log; return what it will be told as."""
        if ts != self.ts or not self._timestamp:
            self.ts = ts
            self._timestamp = iso_time(ts)
        self._out = []
        return self._out

    def emit(self, make: Callable[..., ContextEvent], **fields: Any) -> None:
        self.seq += 1
        self._out.append(
            make(
                seq=self.seq,
                session_id=self.session_id,
                timestamp=self._timestamp,
                replay=self.is_replay,
                **fields,
            )
        )

    def custom(self, name: str, about: Any, namespace: str = NAMESPACE) -> None:
        """Tell what no other event can tell."""
        contents = about if isinstance(about, dict) else {"value": about}
        self.emit(CustomEvent, namespace=namespace, event_name=name, data=contents)

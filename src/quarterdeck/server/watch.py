"""Waiting for something to become true of the host: it is looked at again after each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from quarterdeck.protocol import Event

LOOKS: Final = frozenset({"agent-updated", "agent-removed", "session-updated"})


class Watch:
    """Wakes whoever waits when an agent or a session has changed."""

    def __init__(self) -> None:
        self._changed: anyio.Event | None = None  # exists while somebody waits

    def on_event(self, event: Event) -> None:
        if event.type in LOOKS:
            self.look()

    def look(self) -> None:
        """Have everybody look again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

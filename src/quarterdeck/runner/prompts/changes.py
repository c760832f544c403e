"""`QueueChanges`: notifies subscribers that the prompt queue of a session has changed.

A notification does not carry the queue: subscribers read it. Each change has a number, so that a
subscriber notices what it missed.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

OnChange = Callable[[str, int], None]


class QueueChanges:
    """Counts the changes of each queue."""

    def __init__(self, on_change: OnChange | None = None) -> None:
        """`on_change` is called with the session and the number of each change."""
        self._changes: dict[str, int] = {}
        self._on_change = on_change
        self.next = anyio.Event()
        """Set at the next change, then replaced by another."""

    def changed(self, session_id: str) -> None:
        """Note that a prompt of this session was added, changed, started or ended."""
        number = self._changes[session_id] = self._changes.get(session_id, 0) + 1
        self.next.set()
        self.next = anyio.Event()
        if self._on_change is not None:
            self._on_change(session_id, number)

"""Tells whoever follows sessions that the queue of one has changed; what is in it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import anyio


class QueueChanges:
    """Counts the changes of each queue."""

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._wakers: dict[object, Callable[[], None]] = {}
        self.next = anyio.Event()
        """Set at the next change; then there is another one."""

    def changes(self, session_id: str) -> int:
        return self._changes.get(session_id, 0)

    def changed(self, session_id: str) -> None:
        """Say that a prompt of this session was added, changed, begun or ended."""
        self._changes[session_id] = self.changes(session_id) + 1
        self.next.set()
        self.next = anyio.Event()
        for wake in tuple(self._wakers.values()):
            wake()

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is news; return what ends that."""
        key = object()
        self._wakers[key] = wake
        return lambda: self._wakers.pop(key, None) and None

"""Who wants to know that something changed. A listener takes nothing: it looks at what is now."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

Listener = Callable[[], None]
Unsubscribe = Callable[[], None]


class Listeners:
    """Calls plain functions after each change, never at once when they are added."""

    def __init__(self) -> None:
        self._calls: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Unsubscribe:
        """Add a listener; one that is added twice is called twice and removed one by one."""
        key = object()
        self._calls[key] = listener
        return lambda: self._remove(key)

    def notify(self) -> None:
        for key, listener in tuple(self._calls.items()):
            if key not in self._calls:
                continue  # removed by another listener meanwhile
            try:
                listener()
            except Exception:  # a listener is foreign code
                logger.exception("listener failed")

    def _remove(self, key: object) -> None:
        self._calls.pop(key, None)

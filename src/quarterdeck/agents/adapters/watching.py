"""Sessions of a foreign program as the context protocol lists and watches them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.views.context import (
    DiscoveredSession,
    ForeignAdapter,
    ForeignSession,
    SessionDiscoveryEvent,
)

WATCH_SECONDS: Final = 1.0


def discovered(agent: str, found: ForeignSession) -> DiscoveredSession:
    """Return a found session as the context protocol lists it."""
    changed = iso_seconds(found.changed_at / 1000) if found.changed_at else None
    return DiscoveredSession(
        id=found.id,
        agent=agent,
        project_path=found.cwd,
        project_name=found.cwd.rstrip("/").rpartition("/")[2],
        last_activity=changed,
        session_name=found.title,
    )


def watch(
    adapter: ForeignAdapter,
    callback: Callable[[SessionDiscoveryEvent], None],
    seconds: float = WATCH_SECONDS,
) -> Callable[[], None]:
    """Compare the sessions at intervals, on a thread; return a function that ends it.

    `callback` is called on that thread with what has changed since the call of this function.
    """
    ended = threading.Event()
    before = _versions(adapter)

    def compare() -> None:
        known = before
        while not ended.wait(seconds):
            now = _versions(adapter)
            for event in _changes(adapter.name, known, now):
                if not ended.is_set():
                    callback(event)
            known = now

    threading.Thread(target=compare, name=f"watch {adapter.name}", daemon=True).start()
    return ended.set


_Versions = dict[str, tuple[int, int]]


def _versions(adapter: ForeignAdapter) -> _Versions:
    return {each.id: (each.size, each.changed_at) for each in adapter.find_sessions()}


def _changes(agent: str, before: _Versions, now: _Versions) -> list[SessionDiscoveryEvent]:
    created = [each for each in now if each not in before]
    removed = [each for each in before if each not in now]
    updated = [each for each in now if each in before and before[each] != now[each]]
    return [
        *(
            SessionDiscoveryEvent(type="session_created", session_id=s, agent=agent)
            for s in created
        ),
        *(
            SessionDiscoveryEvent(type="session_updated", session_id=s, agent=agent)
            for s in updated
        ),
        *(
            SessionDiscoveryEvent(type="session_removed", session_id=s, agent=agent)
            for s in removed
        ),
    ]

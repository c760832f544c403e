"""The live state of one session: its events, folded as they come.

    an event of another session     ignored
    an event that is not new        ignored, except `session-reset`, which always counts
    any other event                 moves `last_seq`; listeners hear of it if the state changed

Gaps are accepted: what is missing is the business of whoever delivers. After a `session-reset` the
numbering is that of the reset: our host goes on, others start again. The host's own word on a
session (`apply_projection`) may come ahead of the session's events and never moves `last_seq`.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.client.listeners import Listener, Listeners, Unsubscribe
from quarterdeck.protocol import (
    Event,
    SessionSnapshotWire,
    SessionState,
    initial_state,
    reduce,
)


class SessionStore:
    """What a session looks like now."""

    def __init__(self, session_id: str) -> None:
        self.state: SessionState = initial_state(session_id)
        self.last_seq = 0
        self._session_id = session_id
        self._listeners = Listeners()

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` after each change of `state`."""
        return self._listeners.add(listener)

    def apply(self, event: Event) -> None:
        """Take in an event of the session's stream."""
        if event.session_id != self._session_id:
            return
        if event.seq <= self.last_seq and event.type != "session-reset":
            return
        self.last_seq = event.seq
        self._move(reduce(self.state, event))

    def apply_projection(self, snapshot: SessionSnapshotWire) -> bool:
        """Take in the host's own word; tell whether it was news."""
        if snapshot.session_id != self._session_id:
            return False
        before, info = self.state, self.state.info
        title = info.title if snapshot.title is UNSET else snapshot.title
        updated_at = info.updated_at if snapshot.updated_at is UNSET else snapshot.updated_at
        after = replace(
            before,
            connection=replace(before.connection, status=snapshot.status),
            info=replace(info, title=title, updated_at=updated_at),
        )
        if (after.connection, after.info) == (before.connection, before.info):
            return False
        self._move(after)
        return True

    def _move(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self._listeners.notify()

"""The queues of the sessions on one connection: that they have changed, not what is in them.

A notice is no event of a log: it has no id, and is not repeated to a reader that comes again,
which asks for the queue anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from quarterdeck.http.sse import named_event
from quarterdeck.server.queue_news import QueueNews
from quarterdeck.server.streams.tracks import Track


class QueueTrack:
    """Goes along with the logs of a connection, and ends with them."""

    def __init__(self, news: QueueNews, tracks: Sequence[Track]) -> None:
        self.log = news
        self._tracks = tracks
        sessions = [track.log.session_id for track in tracks]
        self._seen = {each: news.changes(each) for each in sessions if each is not None}

    @property
    def is_over(self) -> bool:
        return all(track.is_over for track in self._tracks)

    async def next(self) -> bytes:
        """Return what to say next; nothing, if there is nothing new."""
        changes = {session_id: self.log.changes(session_id) for session_id in self._seen}
        if changes == self._seen:
            return b""
        news = [each for each in changes if changes[each] != self._seen[each]]
        self._seen = changes
        return b"".join(named_event("queue", {"sessionId": session_id}) for session_id in news)

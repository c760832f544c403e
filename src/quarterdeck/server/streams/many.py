"""Several logs on one connection: browsers allow six to a server, a phone wants one.

Each id says how far every log has come (`cursors`), so that a reader that is cut off anywhere goes
on exactly there. The events themselves are those that everybody gets: only their ids are completed.
"""

from __future__ import annotations

from functools import partial

from quarterdeck.server.streams.cursors import ManyCursors
from quarterdeck.server.streams.tracks import Track


class Braid:
    """The logs of one connection, by their places in its query."""

    def __init__(self, asked: ManyCursors) -> None:
        self._names = asked.names
        self._tracks: dict[int, Track] = {}
        self._asked = [str(seq) for _, seq in asked.sessions]
        if asked.has_host:
            self._asked.append("" if asked.host is None else asked.host.text)

    @property
    def tracks(self) -> list[Track]:
        return list(self._tracks.values())

    def add(self, index: int, track: Track) -> None:
        self._tracks[index] = track
        track.complete = partial(self._complete, index)

    def _complete(self, index: int) -> bytes:
        """Write the rest of an id: which log it is of, and where the others are."""
        positions = [
            "" if each == index else self._position(each) for each in range(len(self._asked))
        ]
        return f"@{index}/{self._names}/{','.join(positions)}".encode()

    def _position(self, index: int) -> str:
        track = self._tracks.get(index)
        return self._asked[index] if track is None else track.position

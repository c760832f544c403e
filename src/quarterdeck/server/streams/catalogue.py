"""What sessions are listed by in the context protocol: names, and times that are times."""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.protocol import SessionSnapshotWire
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.server.headings import Heading
from quarterdeck.server.library import Library
from quarterdeck.server.streams.context_frames import Known

_UNKNOWN: Final = iso_seconds(0)  # its clients read a time there, whatever is known


class Catalogue:
    """Knows what a hub's library knows; of a bare host it is what agents say."""

    def __init__(self, library: Library | None) -> None:
        self._library = library

    async def learn(self) -> None:
        """Look at what has happened since the last time."""
        if self._library is not None:
            await self._library.learn()

    def known(self, session: SessionSnapshotWire) -> Known:
        library = self._library
        heading = Heading() if library is None else library.heading(session.session_id)
        last_at = heading.last_at or _text(session.updated_at) or _UNKNOWN
        title = _text(session.title) or heading.title
        return Known(title, heading.first_at or last_at, last_at)


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given.strip() else None

"""The logs of sessions as bytes (`LogSource`): live ones are the host's, `ClosedLog` is only read.

A session that was closed before the runner started has no stream in the host: its stored log is
read. When it is opened again, its events go to a log that grows, and the closed one ends.
"""

from __future__ import annotations

from collections.abc import Callable

from quarterdeck.errors import AcpError
from quarterdeck.host import EncodedLog, Host, RunSubscriber
from quarterdeck.protocol import Event
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.storage import CompactedFile
from quarterdeck.storage.group_commit import ThreadedStorage


class ClosedLog:
    """The log of a session that was closed before the runner started; a `LogSource`."""

    first = 1
    has_ended = False
    was_closed = True

    def __init__(self, host: Host, catalogue: SessionCatalogue, session_id: str, head: int) -> None:
        self.head = head
        self._host = host
        self._catalogue = catalogue
        self._session_id = session_id

    async def read(self, after: int, limit: int) -> list[bytes]:
        return list(await self._catalogue.read_events(self._session_id, after, limit))

    def subscribe(self, subscriber: RunSubscriber) -> Callable[[], None]:
        is_live = False

        def on_event(event: Event) -> None:
            is_it = event.type == "session-updated" and is_live
            if is_it and event.payload.get("sessionId") == self._session_id:
                subscriber.on_ended()

        unsubscribe = self._host.subscribe(None, 0, on_event)
        is_live = True  # the events before do not count
        return unsubscribe


async def open_log(
    host: Host, catalogue: SessionCatalogue, session_id: str | None
) -> EncodedLog | ClosedLog:
    """Return the log of a session, live or closed; None means the host stream.

    Raises:
        AcpError: `acpjs/session-closed` if there is no such session.
        StorageFailed: if it cannot be read.
    """
    try:
        return await host.open_log(session_id)
    except AcpError:
        overview = None if session_id is None else catalogue.find(session_id)
        if session_id is None or overview is None:
            raise
        return ClosedLog(host, catalogue, session_id, overview.last_seq)


async def compact_log(host: Host) -> list[CompactedFile]:
    """Give free space of the log back to the disk.

    Raises:
        StorageFailed: if that is not possible now.
    """
    storage = host.options.storage
    if not isinstance(storage, ThreadedStorage):
        return []
    before, after = await storage.compact()
    return [CompactedFile(file=storage.path.name, before=before, after=after)]

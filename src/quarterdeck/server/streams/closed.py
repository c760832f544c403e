"""The log of a session that was closed before this hub began: it is read, and nothing is added."""

from __future__ import annotations

from collections.abc import Callable

from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.host import EncodedLog, Host, Watcher
from quarterdeck.protocol import Event
from quarterdeck.server.library import Library


class ClosedLog:
    """What an `EncodedLog` is; it ends when the session is opened again, under a log that grows."""

    first = 1
    has_ended = False

    def __init__(self, host: Host, library: Library, session_id: str, head: int) -> None:
        self.head = head
        self._host = host
        self._library = library
        self._session_id = session_id

    async def read(self, after: int, limit: int) -> list[bytes]:
        return list(await self._library.page(self._session_id, after, limit))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        is_live = False

        def on_event(event: Event) -> None:
            is_it = event.type == "session-updated" and is_live
            if is_it and event.payload.get("sessionId") == self._session_id:
                watcher.on_ended()

        unsubscribe = self._host.subscribe(None, 0, on_event)
        is_live = True  # what was before is no news
        return unsubscribe


async def open_source(
    host: Host, library: Library | None, session_id: str | None
) -> EncodedLog | ClosedLog:
    """Return the log of a session, of the host, or of one that was closed long ago.

    Raises:
        AcpError: `acpjs/session-closed` if there is no such session.
        StorageFailed: if it cannot be read.
    """
    try:
        return await host.open_log(session_id)
    except AcpError:
        if library is None or session_id is None:
            raise
        try:
            view = library.get(session_id)
        except RequestRejected:
            view = None
        if view is None:
            raise
        return ClosedLog(host, library, session_id, view.last_seq)

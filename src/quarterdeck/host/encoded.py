"""One stream as bytes: for those who pass events on and need not understand them."""

from __future__ import annotations

from collections.abc import Callable

from quarterdeck.host.streams import Stream, Watcher


class EncodedLog:
    """The published events of a session, or of the host, each as it was stored."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def head(self) -> int:
        """The number of the newest event that may be seen."""
        return self._stream.published

    @property
    def first(self) -> int:
        """The number of the oldest event there may be; the host forgets its own."""
        return self._stream.first_kept

    @property
    def has_ended(self) -> bool:
        return self._stream.has_ended

    async def read(self, after: int, limit: int) -> list[bytes]:
        """Return at most so many events after a number, in order; what is deleted is left out.

        Raises:
            StorageFailed: if they cannot be read.
        """
        return await self._stream.read_encoded(after, limit)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Hand a watcher each run of new events in the step that publishes it."""
        return self._stream.watch(watcher)

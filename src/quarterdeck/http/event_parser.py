"""Reads a stream of server-sent events from bytes that arrive in any pieces. Pure.

Only what carries messages is kept: the `data` and the `id` of each event. Lines end with LF, CR or
both. An event that is longer than its limit is an error: it would be kept in memory until its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quarterdeck.errors import ConnectionClosed

_BOM = b"\xef\xbb\xbf"
_AFTER = b": after "


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event, and the id to resume after it; None if the server has sent none."""

    data: bytes
    last_id: str | None
    after: str | None = None
    """The event of another stream that it follows, if the server names it in a comment."""


class EventParser:
    """Gathers events; `feed` returns those that are complete."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # of a line that is not complete
        self._size = 0
        self._data: list[bytes] = []
        self._id: str | None = None
        self.last_id: str | None = None
        """The id of the last complete event; one without data counts."""
        self._after: str | None = None
        self._is_first = True

    def feed(self, received: bytes) -> Iterator[ReceivedEvent]:
        """Return the events that end in these bytes.

        Raises:
            ConnectionClosed: if an event is longer than the limit.
        """
        is_half_ended = bool(self._parts) and self._parts[-1].endswith(b"\r")
        self._size += len(received)
        self._parts.append(received)
        if is_half_ended or b"\n" in received or b"\r" in received:
            lines = b"".join(self._parts).splitlines(keepends=True)
            # A CR at the end may be half of a line end.
            self._parts = [lines.pop()] if not lines[-1].endswith(b"\n") else []
            for line in lines:
                event = self._take(line.rstrip(b"\r\n"))
                if event is not None:
                    yield event
        if self._size > self._max_bytes:
            raise ConnectionClosed(f"it sent an event of more than {self._max_bytes} bytes")

    def _take(self, line: bytes) -> ReceivedEvent | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if not line:
            return self._finish()
        if line.startswith(_AFTER):
            self._after = line.removeprefix(_AFTER).decode("latin-1")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("latin-1")
        return None

    def _finish(self) -> ReceivedEvent | None:
        data, self._data = self._data, []
        after, self._after = self._after, None
        self.last_id = self._id
        self._size = sum(map(len, self._parts))
        return ReceivedEvent(b"\n".join(data), self.last_id, after) if data else None

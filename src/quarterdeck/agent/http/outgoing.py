"""The messages for one client, by SSE stream: one stream for its connection, one for each session.

Each stream numbers its messages from 1, and the id of an event is the number behind the stream's
`epoch`. A message is kept after it was sent, since what a socket took may still be lost with it; a
reader that names the last event it has continues after that one. So over any number of cuts it
reads every message once.

*Bounds.* All streams of a client share one `ReplayLimits`. Beyond it the messages that were sent
already are dropped first, of the stream that has the most of them. If that is not enough, a reader
is missing or far behind: the stream with the most unsent messages is *lost*. It drops everything,
ends its reader and drops what follows, so that the other streams, and the agent, continue. Its
next reader gets an error instead of a stream with a gap (`LostMessages`), once; then it begins
anew.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

import anyio

from quarterdeck.http.keepalive import LiveConnection
from quarterdeck.http.sse import ReplayLimits

EVENT_ID: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")
CONNECTION: Final = b""
"""The key of the stream that belongs to no session."""
_BATCH_BYTES: Final = 64 << 10
_SHRUNK: Final = 7 / 8  # of the limit: the streams are compared once for many messages


class LostMessages(Exception):
    """Messages that a reader needs are no longer kept; not in `errors`, since it stays here."""


class UnknownEvent(Exception):
    """The id of an event that this stream never sent; not in `errors`, since it stays here."""


class OutgoingStream:
    """The messages of one stream, and its reader."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.epoch = secrets.token_hex(4)
        self.is_lost = False
        self.written = 0
        """The number of the newest message that a socket took."""
        self.reader: LiveConnection | None = None
        self.size = 0
        """Bytes of all messages that are kept."""
        self.sent_size = 0
        """Bytes of those that a reader was given."""
        self._messages: dict[int, bytes] = {}
        self._first = self._next = 1
        self.position = 1
        """The number of the next message that a reader is given."""

    @property
    def last(self) -> int:
        """The number of the newest message."""
        return self._next - 1

    @property
    def count(self) -> int:
        return len(self._messages)

    @property
    def unsent_count(self) -> int:
        return self._next - self.position

    @property
    def unsent_size(self) -> int:
        return self.size - self.sent_size

    def event_id(self, number: int) -> bytes:
        return b"%b-%d" % (self.epoch.encode(), number)

    def append(self, message: bytes) -> None:
        self._messages[self._next] = message
        self._next += 1
        self.size += len(message)

    def take(self) -> list[tuple[int, bytes]]:
        """Return the reader's next messages with their numbers; none if it has all."""
        taken: list[tuple[int, bytes]] = []
        size = 0
        while self.position < self._next and size < _BATCH_BYTES:
            message = self._messages[self.position]
            taken.append((self.position, message))
            size += len(message)
            self.position += 1
        self.sent_size += size
        return taken

    def begin(self, last_event: str) -> None:
        """Move to where a reader continues: after an event, or where the last reader stopped.

        Raises:
            UnknownEvent: if this stream did not send it.
            LostMessages: if messages after it are no longer kept.
        """
        if self.is_lost:
            raise LostMessages("some")
        if not last_event:
            return
        found = EVENT_ID.fullmatch(last_event)
        if found is None or found[1] != self.epoch or int(found[2]) > self.last:
            raise UnknownEvent(last_event)
        position = int(found[2]) + 1
        if position < self._first:
            raise LostMessages(str(self._first - position))
        before = range(self._first, position)
        self.sent_size = sum(len(self._messages[number]) for number in before)
        self.position = position

    def drop_sent(self, size: int) -> tuple[int, int]:
        """Drop the oldest messages that were sent; return how many, and their size."""
        count = dropped = 0
        while dropped < size and self._first < self.position:
            message = self._messages.pop(self._first)
            self._first += 1
            count += 1
            dropped += len(message)
        self.size -= dropped
        self.sent_size -= dropped
        return count, dropped

    def clear(self) -> None:
        """Drop everything; its events are none of this stream any more."""
        self._first = self.position = self._next
        self._messages.clear()
        self.size = self.sent_size = 0
        self.epoch = secrets.token_hex(4)

    def wake(self) -> None:
        if self.reader is not None:
            self.reader.wake()

    def end_reader(self) -> None:
        if self.reader is not None:
            self.reader.scope.cancel()


class OutgoingStreams:
    """All streams of one client, within one limit."""

    def __init__(self, limits: ReplayLimits) -> None:
        self._limits = limits
        self._count = self._unsent_count = 0
        self._size = self._unsent_size = 0
        self._changed = anyio.Event()
        self.connection = OutgoingStream(CONNECTION)
        self._streams = {CONNECTION: self.connection}

    def __len__(self) -> int:
        return len(self._streams)

    def get(self, key: bytes) -> OutgoingStream:
        """Return the stream of a session, or of the connection; create it if it is new."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = OutgoingStream(key)
        return stream

    def __contains__(self, key: bytes) -> bool:
        return key in self._streams

    def all(self) -> list[OutgoingStream]:
        return list(self._streams.values())

    @property
    def is_behind(self) -> bool:
        """Whether half of what may be kept was not sent; senders should wait."""
        limits = self._limits
        return self._unsent_size * 2 >= limits.size or self._unsent_count * 2 >= limits.messages

    def put(self, key: bytes, message: bytes) -> None:
        """Add a message to a stream; one that is lost drops it."""
        stream = self.get(key)
        if stream.is_lost:
            return
        stream.append(message)
        self._count += 1
        self._size += len(message)
        self._unsent_count += 1
        self._unsent_size += len(message)
        if self._is_too_much(1):
            self._shrink()
        stream.wake()

    def begin(self, stream: OutgoingStream, last_event: str) -> None:
        """Move a stream to where a reader continues; raises as `OutgoingStream.begin` does."""
        stream.begin(last_event)
        self._count_unsent()

    def begin_anew(self, stream: OutgoingStream) -> None:
        """Drop everything of a stream and use it again."""
        self._forget(stream)
        stream.is_lost = False

    def discard_unused(self) -> None:
        """Forget session streams without a reader and without a message."""
        for key, stream in list(self._streams.items()):
            is_unused = stream.reader is None and not stream.count and not stream.is_lost
            if key != CONNECTION and is_unused:
                del self._streams[key]

    def took(self) -> None:
        """Wake senders: a reader was given messages."""
        self._count_unsent()
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    def wake_all(self) -> None:
        self.took()
        for stream in self._streams.values():
            stream.wake()

    def _is_too_much(self, part: float) -> bool:
        is_heavy = self._size > self._limits.size * part
        return self._count > 1 and (is_heavy or self._count > self._limits.messages * part)

    def _shrink(self) -> None:
        while self._is_too_much(_SHRUNK):
            stream = max(self._streams.values(), key=lambda each: each.sent_size)
            if stream.sent_size == 0:
                break
            count, size = stream.drop_sent(max(1, stream.sent_size // 2))
            self._count -= count
            self._size -= size
        while self._is_too_much(1):
            self._lose(max(self._streams.values(), key=lambda each: each.unsent_size))

    def _lose(self, stream: OutgoingStream) -> None:
        self._forget(stream)
        stream.is_lost = True
        stream.end_reader()

    def _forget(self, stream: OutgoingStream) -> None:
        self._count -= stream.count
        self._size -= stream.size
        stream.clear()
        self._count_unsent()

    def _count_unsent(self) -> None:
        streams = self._streams.values()
        self._unsent_count = sum(stream.unsent_count for stream in streams)
        self._unsent_size = sum(stream.unsent_size for stream in streams)

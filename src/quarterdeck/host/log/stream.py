"""A numbered stream of events, and its subscribers: by callback, by iteration, or as bytes.

A subscriber is a cursor, not a queue: it has seen everything up to a number. What it has not seen
is in the stream's tail (the newest events, in memory) or, further back, in storage. A slow or late
subscriber therefore costs nothing but its own time (INV-8).

**Backlog and live are joined in one step (INV-2).** `join` is synchronous. It delivers what the
tail has after the cursor and, once the cursor has reached the newest published event, adds the
subscriber to those that `publish` calls. Both run on the event loop's thread, so no event can be
published between the two: no gap, no duplicate. If the cursor is further back than the tail,
`replay` reads pages from storage, without holding up anyone else, until `join` succeeds.

    status      meaning                                          next
    replaying   gets what it has not seen, from tail or storage  live, when `join` returns True
    ahead       starts after a number that is not published yet  live, when the next one is
    live        has seen everything that is published            gone
    gone        unsubscribed; gets nothing more

`published` is the last number that subscribers may see, `last_seq` the last number given to an
event; those between are queued in the journal and not stored yet (INV-5).

A *run* is consecutive events of one stream that are published together. `RunSubscriber` gets events
as the bytes that were stored, a run at a time, in the step that publishes them: for components that
pass events on without decoding them, such as network streams.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

import anyio

from quarterdeck.errors import EventInvalid, StorageFailed
from quarterdeck.protocol import Event, decode_event, encode_event
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

OnEvent = Callable[[Event], None]
ReadPage = Callable[[int, int], Awaitable[Sequence[bytes]]]
"""Read stored events after a number, at most so many."""
ReadNow = Callable[[int, int], Sequence[bytes]]
"""The same without waiting: for a storage in memory."""
OnCallbackFailed = Callable[[Event, BaseException], None]
OnHead = Callable[[int], None]
"""Takes the number of the newest published event; it must be quick and not raise."""

_Page = tuple[Sequence[Event], int]
"""Events, and the number up to which there are no others."""

TAIL = 256  # events of a session kept in memory; with 1,000 they leave the processor's cache, and
# making and freeing each costs a tenth more
TAIL_BYTES = 1 << 20  # about, that the tail of a session takes: some events are megabytes
HOST_TAIL = 1000  # events of the host that are kept; they are not stored
RETRY_SECONDS = 1.0  # before a page is read again after storage failed
PAGE = 1000  # events that are read from storage at a time for a subscriber

# Limits for reading a whole log, by `next_limit`. With many small pages each waits for a thread on
# a busy machine; with few large ones a page takes much memory.
FIRST_LIMIT: Final = 1000
MOST: Final = 10_000
LEAST: Final = 16
PAGE_BYTES: Final = 4 << 20


def next_limit(page: Sequence[bytes]) -> int:
    """Return how many events to read after a page, if they are as large as the ones in it."""
    size = sum(map(len, page))
    return min(MOST, max(LEAST, len(page) * PAGE_BYTES // max(1, size)))


def decode_stored(page: Sequence[bytes]) -> list[Event]:
    """Decode stored events and leave out damaged ones."""
    try:
        return [decode_event(data) for data in page]
    except EventInvalid:
        return list(_readable(page))


def _readable(page: Sequence[bytes]) -> Iterator[Event]:
    for data in page:
        try:
            yield decode_event(data)
        except EventInvalid as error:
            logger.warning("a stored event cannot be read", extra={"reason": error.reason})


class RunSubscriber(Protocol):
    """Gets events as bytes, in the step that publishes them: it must be quick and not raise."""

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        """Take the newest events as they were stored; `last_seq` is the number of the last."""

    def on_skipped(self, last_seq: int) -> None:
        """Events up to `last_seq` were published and must be read: too many to be handed over.

        Only a log of another process does that, when its subscriber is too slow.
        """

    def on_ended(self) -> None:
        """The stream has ended: there will be no more events."""


class Subscriber:
    """A callback that is called with each event, and how far it has got."""

    __slots__ = ("callback", "cursor", "is_gone", "rest")

    def __init__(self, callback: OnEvent, cursor: int) -> None:
        self.callback = callback
        self.cursor = cursor  # exact while it replays; a live subscriber has seen everything
        self.is_gone = False
        self.rest: Iterator[Event] = iter(())  # of the events that are being delivered to it


class Stream:
    """One numbered sequence of events: a session's, or the host's own."""

    def __init__(
        self,
        read_page: ReadPage | None,
        on_callback_failed: OnCallbackFailed,
        *,
        read_now: ReadNow | None = None,
        on_head: OnHead | None = None,
        last_seq: int = 0,
    ) -> None:
        """Without `read_page` events are not stored: those that left the tail are lost.

        `on_head` is called with `published` after each run, before its subscribers.
        """
        self.last_seq = last_seq  # the last number given to an event
        self.published = last_seq  # the last number that subscribers may see
        self._read_page = read_page
        self._read_now = read_now
        self._on_head = on_head
        self._on_callback_failed = on_callback_failed
        self._tail: deque[Event] = deque(maxlen=HOST_TAIL if read_page is None else TAIL)
        self._tail_bytes = 0  # that were added since it was last shortened
        self._live: tuple[Subscriber, ...] = ()
        self._ahead: tuple[Subscriber, ...] = ()  # live, from a number that is not published yet
        self._changed: anyio.Event | None = None  # exists while an iterator waits
        self._has_ended = False
        self.unpublished: list[bytes] = []
        """A session's events, encoded, until they are published; `Emitter` adds to them."""
        self._run_subscribers: tuple[RunSubscriber, ...] = ()

    def next_seq(self) -> int:
        """Number an event that is not stored."""
        self.last_seq += 1
        return self.last_seq

    def number(self, seq: int, encoded: bytes) -> None:
        """Give a session's event, which is encoded already, the number after `last_seq`."""
        self.last_seq = seq
        self.unpublished.append(encoded)

    def publish(self, events: Sequence[Event]) -> None:
        """Deliver events to every live subscriber. `Journal` calls this, after the commit."""
        self._tail.extend(events)
        self.published = events[-1].seq
        if self._on_head is not None:
            self._on_head(self.published)
        if self._run_subscribers:
            self._publish_run(events)
        if self.unpublished:
            self._tail_bytes += sum(map(len, self.unpublished[: len(events)]))
            del self.unpublished[: len(events)]
            if self._tail_bytes > TAIL_BYTES:
                self._shorten_tail()
        # A subscriber that joins in a callback has these events already and is in another tuple.
        live = self._live
        if self._ahead:
            self._activate(events)
        for subscriber in live:
            self._deliver(subscriber, events)
        if self._changed is not None:
            self._wake()

    def discard(self) -> None:
        """Forget the events that are numbered and not published: they will never be stored."""
        self.unpublished.clear()
        self.last_seq = self.published

    def _shorten_tail(self) -> None:
        """Keep the newer half; nothing if even that may be large. The rest is read from storage."""
        self._tail_bytes //= 2
        kept = len(self._tail) // 2 if self._tail_bytes <= TAIL_BYTES else 0
        while len(self._tail) > kept:
            self._tail.popleft()

    def release_tail(self) -> None:
        """Keep no events of a session that has stopped: they are read from storage."""
        if self._read_page is not None:
            self._tail.clear()
            self._tail_bytes = 0

    def end(self) -> None:
        """Make iterators stop after the last event."""
        self._has_ended = True
        self._wake()
        for subscriber in self._run_subscribers:
            subscriber.on_ended()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def first_kept(self) -> int:
        """The number of the oldest event that can still be read."""
        if self._read_page is not None:
            return 1
        return self._tail[0].seq if self._tail else self.published + 1

    def subscribe_runs(self, subscriber: RunSubscriber) -> Callable[[], None]:
        """Call a subscriber with each run that is published from now on; return an unsubscriber."""
        self._run_subscribers = (*self._run_subscribers, subscriber)

        def unsubscribe() -> None:
            self._run_subscribers = tuple(
                each for each in self._run_subscribers if each is not subscriber
            )

        return unsubscribe

    async def read_encoded(self, after: int, limit: int) -> list[bytes]:
        """Return published events after a number as they were stored, including damaged ones.

        Raises:
            StorageFailed: if they cannot be read.
        """
        limit = min(limit, self.published - after)
        if limit <= 0:
            return []
        if self._read_page is None:
            return [encode_event(event) for event in self._tail if event.seq > after][:limit]
        return list(await self._read_page(after, limit))

    def _publish_run(self, events: Sequence[Event]) -> None:
        encoded = self.unpublished[: len(events)] or [encode_event(event) for event in events]
        for subscriber in self._run_subscribers:
            subscriber.on_published(self.published, encoded)

    def remove(self, subscriber: Subscriber) -> None:
        """Unsubscribe; from here on the subscriber gets no event."""
        subscriber.is_gone = True
        deque(subscriber.rest, maxlen=0)  # consume it: a delivery under way stops here
        self._live = tuple(each for each in self._live if each is not subscriber)
        self._ahead = tuple(each for each in self._ahead if each is not subscriber)

    def join(self, subscriber: Subscriber) -> bool:
        """Replay and go live in one step; return False if storage must be read first."""
        # By number, not by iterator: a callback may publish while it is called.
        while subscriber.cursor < self.published and not subscriber.is_gone:
            if self._tail_covers(subscriber.cursor):
                self._deliver(subscriber, self._tail_after(subscriber.cursor))
            elif self._read_now is not None:
                page = self._read_now(subscriber.cursor, PAGE)
                self._deliver_page(
                    subscriber, self._visible(page, subscriber.cursor, self.published)
                )
            elif self._read_page is None:
                subscriber.cursor = self._tail[0].seq - 1
            else:
                return False
        if subscriber.is_gone:
            return True
        if subscriber.cursor > self.published:
            self._ahead = (*self._ahead, subscriber)
        else:
            self._live = (*self._live, subscriber)
        return True

    def _activate(self, events: Sequence[Event]) -> None:
        """Make the subscribers live whose first event is among these."""
        last = events[-1].seq
        activated = [each for each in self._ahead if each.cursor < last]
        self._ahead = tuple(each for each in self._ahead if each.cursor >= last)
        self._live = (*self._live, *activated)
        for subscriber in activated:
            self._deliver(subscriber, [each for each in events if each.seq > subscriber.cursor])

    async def replay(self, subscriber: Subscriber) -> None:
        """Read pages from storage for a subscriber until it can `join`."""
        while not self.join(subscriber):
            try:
                page = await self._page(subscriber.cursor)
            except StorageFailed as error:
                if self._has_ended or error.is_final:
                    return  # the log is closed or damaged: the rest cannot be read any more
                logger.error("events cannot be read", extra={"reason": str(error)})  # noqa: TRY400
                await anyio.sleep(RETRY_SECONDS)
            else:
                self._deliver_page(subscriber, page)

    def _deliver_page(self, subscriber: Subscriber, page: _Page) -> None:
        events, reached = page
        if events:
            self._deliver(subscriber, events)
        else:
            subscriber.cursor = reached

    async def events(self, from_seq: int) -> AsyncIterator[Event]:
        """Iterate over all events after `from_seq`, then over new ones as they are published.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        cursor = from_seq
        while True:
            while cursor < self.published:
                try:
                    page, reached = await self._page(cursor)
                except StorageFailed:
                    if self._has_ended:
                        return
                    raise
                for event in page:
                    cursor = event.seq
                    yield event
                cursor = reached
            if self._has_ended:
                return
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    async def _page(self, after: int) -> _Page:
        if self._tail_covers(after):
            events: Sequence[Event] = self._tail_after(after)
        elif self._read_page is None:
            events = list(self._tail)
        else:
            published = self.published  # before reading: all of that is stored, unless deleted
            return self._visible(await self._read_page(after, PAGE), after, published)
        return events, events[-1].seq

    def _visible(self, page: Sequence[bytes], after: int, published: int) -> _Page:
        """Decode stored events and leave out those that are not published yet."""
        events = decode_stored(page)
        while events and events[-1].seq > self.published:
            events.pop()
        if events:
            return events, events[-1].seq
        # An empty page: they were deleted. Else all are damaged; each still uses up a number.
        return events, min(after + len(page), published) if page else published

    def _tail_covers(self, cursor: int) -> bool:
        return bool(self._tail) and self._tail[0].seq <= cursor + 1

    def _tail_after(self, cursor: int) -> list[Event]:
        return list(islice(self._tail, max(0, cursor + 1 - self._tail[0].seq), None))

    def _deliver(self, subscriber: Subscriber, events: Sequence[Event]) -> None:
        """Call a subscriber with the events after its cursor; a failing call does not stop it."""
        if subscriber.is_gone or not events:
            return
        subscriber.cursor = events[-1].seq
        subscriber.rest = rest = iter(events)
        callback, event = subscriber.callback, events[0]
        while True:
            try:
                for event in rest:
                    callback(event)
            except foreign_errors() as error:
                self._on_callback_failed(event, error)
            else:
                return

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class EncodedLog:
    """The published events of a live session or of the host as bytes, as they were stored."""

    was_closed = False  # as in `LogSource` of the runner, which has logs of closed sessions, too

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    @property
    def head(self) -> int:
        """The number of the newest published event."""
        return self._stream.published

    @property
    def first(self) -> int:
        """The number of the oldest event; the host keeps only its newest."""
        return self._stream.first_kept

    @property
    def has_ended(self) -> bool:
        return self._stream.has_ended

    async def read(self, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` events after a number, in order, without deleted ones.

        Raises:
            StorageFailed: if they cannot be read.
        """
        return await self._stream.read_encoded(after, limit)

    def subscribe(self, subscriber: RunSubscriber) -> Callable[[], None]:
        """Call a subscriber with each new run in the step that publishes it."""
        return self._stream.subscribe_runs(subscriber)

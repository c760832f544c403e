"""A numbered stream of events and everybody who follows it.

A follower is a cursor, not a queue: it has seen everything up to a number. What it has not seen is
in the stream's tail (the newest events, in memory) or, further back, in storage. So a follower that
is slow or late costs nothing but its own time (INV-8), and joining is one synchronous step: once
its cursor has reached the newest published event, it is live, and the next event is handed to it
when it is published. Nothing can come in between (INV-2).

    REPLAYING  gets what it has not seen, from the tail or page by page from storage
    LIVE       has seen everything that was published
    GONE       unsubscribed; gets nothing more

One stream as bytes: for those who pass events on and need not understand them.

How many events to read of a log at a time, for whoever reads it whole.

Many small ones: on a busy machine each page waits for its thread. Few large ones: a page is in
memory at once.
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
"""Read at most so many stored events after a number."""
ReadNow = Callable[[int, int], Sequence[bytes]]
"""The same in the same step: for a storage in memory."""
OnCallbackFailed = Callable[[Event, BaseException], None]

_Page = tuple[Sequence[Event], int]
"""Events, and the number up to which nothing else is to be had."""

TAIL = 256  # events of a session kept in memory; with 1,000 they leave the processor's cache, and
# making and freeing each costs a tenth more
HOST_TAIL = 1000  # events of the host that are kept: they are stored nowhere else
RETRY_SECONDS = 1.0  # until a subscriber's page is read again, if storage failed
PAGE = 1000  # events that are read from storage at a time


def decode_stored(page: Sequence[bytes]) -> list[Event]:
    """Decode stored events; a damaged one is left out and does not hide the others."""
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
    """Somebody who wants events as bytes, and wants to know at once that there are some.

    Called in the step that publishes: it must do little, and must not raise.
    """

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        """Take the newest events, as they were stored; the last one has this number."""

    def on_ended(self) -> None:
        """Nothing more will come."""


class Subscriber:
    """Somebody whose callback is called with each event."""

    __slots__ = ("callback", "cursor", "is_gone", "rest")

    def __init__(self, callback: OnEvent, cursor: int) -> None:
        self.callback = callback
        self.cursor = cursor  # kept up while it replays; a live one has seen all
        self.is_gone = False
        self.rest: Iterator[Event] = iter(())  # of what is being handed to it


class Stream:
    """One numbered sequence: that of a session, or the host's own."""

    def __init__(
        self,
        read_page: ReadPage | None,
        on_callback_failed: OnCallbackFailed,
        *,
        read_now: ReadNow | None = None,
        last_seq: int = 0,
    ) -> None:
        """Without `read_page` nothing is stored: what has left the tail is gone."""
        self.last_seq = last_seq  # the last number given away
        self.published = last_seq  # the last number that followers may see
        self._read_page = read_page
        self._read_now = read_now
        self._on_callback_failed = on_callback_failed
        self._tail: deque[Event] = deque(maxlen=HOST_TAIL if read_page is None else TAIL)
        self._live: tuple[Subscriber, ...] = ()
        self._ahead: tuple[Subscriber, ...] = ()  # live, but only for numbers yet to come
        self._changed: anyio.Event | None = None  # exists while an iterator waits
        self._has_ended = False
        self.written: list[bytes] = []
        """Events of a session, encoded, from when they are numbered until they are published."""
        self._watchers: tuple[RunSubscriber, ...] = ()

    def number(self) -> int:
        """Give away the next number."""
        self.last_seq += 1
        return self.last_seq

    def publish(self, events: Sequence[Event]) -> None:
        """Hand events to everybody who is live; they are stored by now, if they are at all."""
        self._tail.extend(events)
        self.published = events[-1].seq
        if self._watchers:
            self._show(events)
        if self.written:
            del self.written[: len(events)]
        # Whoever joins meanwhile has these events already and is in another tuple.
        live = self._live
        if self._ahead:
            self._admit(events)
        for subscriber in live:
            self._deliver(subscriber, events)
        if self._changed is not None:
            self._wake()

    def end(self) -> None:
        """Let iterators stop after the last event."""
        self._has_ended = True
        self._wake()
        for watcher in self._watchers:
            watcher.on_ended()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def first_kept(self) -> int:
        if self._read_page is not None:
            return 1
        return self._tail[0].seq if self._tail else self.published + 1

    def watch(self, watcher: RunSubscriber) -> Callable[[], None]:
        """Show a watcher what is published from now on; return what ends that."""
        self._watchers = (*self._watchers, watcher)

        def unwatch() -> None:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)

        return unwatch

    async def read_encoded(self, after: int, limit: int) -> list[bytes]:
        """Return published events after a number as they were stored, also damaged ones.

        Raises:
            StorageFailed: if they cannot be read.
        """
        limit = min(limit, self.published - after)
        if limit <= 0:
            return []
        if self._read_page is None:
            return [encode_event(event) for event in self._tail if event.seq > after][:limit]
        return list(await self._read_page(after, limit))

    def _show(self, events: Sequence[Event]) -> None:
        encoded = self.written[: len(events)] or [encode_event(event) for event in events]
        for watcher in self._watchers:
            watcher.on_published(self.published, encoded)

    def add(self, callback: OnEvent, from_seq: int) -> Subscriber:
        return Subscriber(callback, from_seq)

    def remove(self, subscriber: Subscriber) -> None:
        subscriber.is_gone = True
        deque(subscriber.rest, maxlen=0)  # so that nothing more is handed to it
        self._live = tuple(each for each in self._live if each is not subscriber)
        self._ahead = tuple(each for each in self._ahead if each is not subscriber)

    def join(self, subscriber: Subscriber) -> bool:
        """Replay and go live, in one step; False if older events have to be read first."""
        # By number, not by iterator: a callback may publish while it is called.
        while subscriber.cursor < self.published and not subscriber.is_gone:
            if self._tail_covers(subscriber.cursor):
                self._deliver(subscriber, self._tail_after(subscriber.cursor))
            elif self._read_now is not None:
                page = self._read_now(subscriber.cursor, PAGE)
                self._hand_over(subscriber, self._visible(page, subscriber.cursor, self.published))
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

    def _admit(self, events: Sequence[Event]) -> None:
        """Make live whoever asked for one of these events first."""
        last = events[-1].seq
        admitted = [each for each in self._ahead if each.cursor < last]
        self._ahead = tuple(each for each in self._ahead if each.cursor >= last)
        self._live = (*self._live, *admitted)
        for subscriber in admitted:
            self._deliver(subscriber, [each for each in events if each.seq > subscriber.cursor])

    async def replay(self, subscriber: Subscriber) -> None:
        """Bring a subscriber that is far behind up to date, page by page."""
        while not self.join(subscriber):
            try:
                page = await self._page(subscriber.cursor)
            except StorageFailed as error:
                if self._has_ended:
                    return  # the log is closed: who has not seen it all by now will not
                logger.error("events cannot be read", extra={"reason": str(error)})  # noqa: TRY400
                await anyio.sleep(RETRY_SECONDS)
            else:
                self._hand_over(subscriber, page)

    def _hand_over(self, subscriber: Subscriber, page: _Page) -> None:
        events, reached = page
        if events:
            self._deliver(subscriber, events)
        else:
            subscriber.cursor = reached

    async def events(self, from_seq: int) -> AsyncIterator[Event]:
        """Iterate over all events after `from_seq`, then over those to come.

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
            published = self.published  # what is not stored of that by now never will be
            return self._visible(await self._read_page(after, PAGE), after, published)
        return events, events[-1].seq

    def _visible(self, page: Sequence[bytes], after: int, published: int) -> _Page:
        """Decode stored events; what is not published yet is not for anybody's eyes."""
        events = decode_stored(page)
        while events and events[-1].seq > self.published:
            events.pop()
        if events:
            return events, events[-1].seq
        # Deleted, if there are none; else damaged, and each has a number of its own.
        return events, min(after + len(page), published) if page else published

    def _tail_covers(self, cursor: int) -> bool:
        return bool(self._tail) and self._tail[0].seq <= cursor + 1

    def _tail_after(self, cursor: int) -> list[Event]:
        return list(islice(self._tail, max(0, cursor + 1 - self._tail[0].seq), None))

    def _deliver(self, subscriber: Subscriber, events: Sequence[Event]) -> None:
        """Hand to a subscriber what follows its cursor."""
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

    def watch(self, watcher: RunSubscriber) -> Callable[[], None]:
        """Hand a watcher each run of new events in the step that publishes it."""
        return self._stream.watch(watcher)


FIRST_LIMIT: Final = 1000
MOST: Final = 10_000
LEAST: Final = 16
PAGE_BYTES: Final = 4 << 20


def next_limit(page: Sequence[bytes]) -> int:
    """Return how many events to read after a page, if they are as large as those of it."""
    size = sum(map(len, page))
    return min(MOST, max(LEAST, len(page) * PAGE_BYTES // max(1, size)))

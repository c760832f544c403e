"""`RemoteLog`: a log of a runner in another process, as bytes; a `LogSource` of `RunnerApi`.

The hub follows each log once, however many clients read it. New events arrive in runs, in the order
in which the runner published them. Older ones, and those that were skipped because the hub was too
slow, are read by calls.

After the link was down, the log is opened again at the runner. If it has events that did not arrive
here, its subscribers read them (`on_skipped`). If its numbers mean something else now,
because the log went back or the host's stream began anew, it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

import anyio

from quarterdeck.errors import EventInvalid
from quarterdeck.host import RunSubscriber
from quarterdeck.protocol import Event, decode_event
from quarterdeck.runner.api import LogSource, Unsubscribe

KEPT_BYTES: Final = 1 << 20
"""Of the newest events, which a runner that lost them in a power cut gets back."""
PAGE: Final = 256

Read = Callable[[str | None, int, int], Awaitable[list[bytes]]]
"""Reads events of a log after a number, at most so many."""


class LogOwner(Protocol):
    """Follows logs at the runner."""

    def follow(self, log: RemoteLog) -> None:
        """Follow a log from its head on, unless it is followed."""

    def leave(self, log: RemoteLog) -> None:
        """Stop following a log, which has no subscribers."""


class RemoteLog:
    """A log that the hub follows."""

    def __init__(self, session_id: str | None, read: Read, owner: LogOwner) -> None:
        self.session_id = session_id
        self.opened_at = anyio.current_time()
        self.head = 0
        self.first = 1
        self.has_ended = False
        self.was_closed = False
        self.opened = anyio.Event()
        """Set when the runner has answered, with or without `failure`."""
        self.failure: Exception | None = None
        self.kept: deque[tuple[int, Sequence[bytes]]] = deque()
        """The newest runs, each with its last number."""
        self._kept_bytes = 0
        self._read = read
        self._owner = owner
        self._subscribers: tuple[RunSubscriber, ...] = ()

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    async def read(self, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` events after a number, in order.

        Raises:
            StorageFailed: if they cannot be read.
        """
        return await self._read(self.session_id, after, limit)

    def subscribe(self, subscriber: RunSubscriber) -> Unsubscribe:
        if not self._subscribers and not self.has_ended:
            self._owner.follow(self)
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers = tuple(
                    each for each in self._subscribers if each is not subscriber
                )
                if not self._subscribers:
                    self._owner.leave(self)

        return unsubscribe

    # ---- called by the link ----------------------------------------------------------------

    def begin(self, head: int, first: int, *, has_ended: bool, was_closed: bool) -> None:
        """The runner has opened it, for the first time or again."""
        self.first, self.was_closed = first, was_closed
        if not self.opened.is_set():
            self.head, self.has_ended = head, has_ended
            self.opened.set()
            return
        if head < self.head:
            self.end()  # its numbers mean something else now
            return
        if head > self.head:
            self.skip(head, first)
        if has_ended:
            self.end()

    def fail(self, error: Exception) -> None:
        """The runner could not open it."""
        if not self.opened.is_set():
            self.failure = error
            self.opened.set()
        self.end()

    def publish(self, last: int, first: int, encoded: list[bytes]) -> None:
        self.head, self.first = last, first
        self._keep(last, encoded)
        for subscriber in self._subscribers:
            subscriber.on_published(last, encoded)

    def skip(self, head: int, first: int) -> None:
        self.head, self.first = head, first
        self.kept.clear()
        self._kept_bytes = 0
        for subscriber in self._subscribers:
            subscriber.on_skipped(head)

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            for subscriber in self._subscribers:
                subscriber.on_ended()

    def _keep(self, last: int, encoded: list[bytes]) -> None:
        self.kept.append((last, encoded))
        self._kept_bytes += sum(map(len, encoded))
        while self._kept_bytes > KEPT_BYTES and len(self.kept) > 1:
            _, dropped = self.kept.popleft()
            self._kept_bytes -= sum(map(len, dropped))


class LogIterator:
    """Decoded events of a log, from a number on; a `RunSubscriber` while it is used."""

    def __init__(self, log: LogSource) -> None:
        self._log = log
        self._runs: deque[list[bytes]] = deque()
        self._runs_from = log.head + 1
        self._changed = anyio.Event()

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        if len(self._runs) < PAGE:
            self._runs.append(encoded)
        else:  # it is far behind: the rest is read
            self._runs.clear()
            self._runs_from = last_seq + 1
        self._changed.set()

    def on_skipped(self, last_seq: int) -> None:
        self._runs.clear()
        self._runs_from = last_seq + 1
        self._changed.set()

    def on_ended(self) -> None:
        self._changed.set()

    async def after(self, seq: int) -> AsyncIterator[Event]:
        """Iterate over all events after a number, then over new ones as they arrive.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        leave = self._log.subscribe(self)
        try:
            while True:
                self._changed = anyio.Event()
                while seq + 1 < self._runs_from and seq < self._log.head:
                    page = await self._log.read(seq, PAGE)
                    # A damaged event uses up its number; an empty page: they were deleted.
                    reached = min(seq + len(page), self._log.head) if page else self._runs_from - 1
                    for event in _decoded(page, seq):
                        seq = event.seq
                        yield event
                    seq = max(seq, reached)
                while self._runs and seq + 1 >= self._runs_from:
                    run = self._runs.popleft()
                    self._runs_from += len(run)
                    for event in _decoded(run, seq):
                        seq = event.seq
                        yield event
                    seq = max(seq, self._runs_from - 1)
                if seq < self._log.head:
                    continue
                if self._log.has_ended:
                    return
                await self._changed.wait()
        finally:
            leave()


def _decoded(page: Sequence[bytes], after: int) -> Iterator[Event]:
    for data in page:
        try:
            event = decode_event(data)
        except EventInvalid:
            continue  # damaged; the runner reports it
        if event.seq > after:
            yield event

"""Every event on its way from numbered to stored to seen, in one order for all streams.

    number → queue → commit → publish

One queue for all streams: what was numbered first is published first, also across streams, so the
session's event is seen before the host's event that tells of it. Publishing is never nested: what a
callback emits waits until the event that it was called with has reached everybody.

Stored before seen (INV-5): with a durable storage a batch is committed, then published. While one
batch is being committed the next one gathers: the commit is shared by all that arrived meanwhile.
A commit that fails is told (`storage/write-failed`) and tried again until it succeeds: nothing is
published that is not stored, and nothing is dropped. Meanwhile `pressure` asks whoever reads from
agents to stop, so that a full disk or a slow one does not fill the memory instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored

HIGH_WATER = 5000  # events that wait for their commit before reading from agents stops
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)  # after a failed commit; the last one repeats

OnStorageFailed = Callable[[StorageFailed], None]


class Entry(NamedTuple):
    """What to store, if anything, and whom to give what after that."""

    record: Stored | SessionMeta | None
    publish: Callable[[Any], None]
    argument: Any


def _nothing(_argument: Any) -> None:
    """Publish nothing: the entry was only to be stored."""


class Journal:
    """Stores and publishes; `run` is its task."""

    def __init__(self, storage: Storage, on_storage_failed: OnStorageFailed) -> None:
        self._storage = storage
        self._on_storage_failed = on_storage_failed
        self._waiting: list[Entry] = []  # for their commit
        self._ready: deque[Entry] = deque()  # for their publication
        self._is_publishing = False
        self._added = 0
        self._done = 0
        self._filled = anyio.Event()
        self._progress = anyio.Event()
        self._relief: anyio.Event | None = None
        self._is_ending = False

    def add(self, entry: Entry) -> None:
        """Take an entry; with a storage that keeps nothing over a crash it is published at once."""
        self._added += 1
        if isinstance(self._storage, MemoryStorage):
            if entry.record is not None:
                self._storage.append_now((entry.record,))
            self._publish((entry,))
            return
        self._waiting.append(entry)
        self._filled.set()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Publish nothing before all that is added inside is queued.

        Whoever hears of the first of two events that belong together may act on it at once; what
        that leads to comes after the second.
        """
        was_publishing, self._is_publishing = self._is_publishing, True
        try:
            yield
        finally:
            self._is_publishing = was_publishing
            self._publish(())

    def add_record(self, record: SessionMeta) -> None:
        """Store a record in the order of events; nobody sees it."""
        self.add(Entry(record, _nothing, None))

    def publish_now(self, entry: Entry) -> None:
        """Publish what is not stored ahead of all that waits: news of the storage itself."""
        self._added += 1
        self._publish((entry,))

    def pressure(self) -> anyio.Event | None:
        """Return what to wait for before producing more, if anything."""
        if len(self._waiting) < HIGH_WATER:
            return None
        if self._relief is None:
            self._relief = anyio.Event()
        return self._relief

    async def settled(self) -> None:
        """Wait until all that was added so far is stored and published."""
        target = self._added
        while self._done < target:
            await self._progress.wait()

    async def commit(self, record: SessionMeta) -> None:
        """Store one record now, or fail: for what must not be said unless it is stored.

        Raises:
            StorageFailed: if it could not be stored; nothing was changed.
        """
        await self.settled()
        await self._storage.append((record,))

    async def run(self) -> None:
        """Commit and publish until `end`, then the rest."""
        while True:
            while not self._waiting:
                if self._is_ending:
                    return
                self._filled = anyio.Event()
                await self._filled.wait()
            batch, self._waiting = self._waiting, []
            await self._store([entry.record for entry in batch if entry.record is not None])
            self._publish(batch)
            if self._relief is not None and len(self._waiting) < HIGH_WATER:
                self._relief.set()
                self._relief = None

    def end(self) -> None:
        self._is_ending = True
        self._filled.set()

    async def _store(self, records: Sequence[Stored | SessionMeta]) -> None:
        attempt = 0
        while records:
            try:
                await self._storage.append(records)
            except StorageFailed as error:
                if attempt == 0:
                    self._on_storage_failed(error)
                await anyio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
            else:
                return

    def _publish(self, batch: Sequence[Entry]) -> None:
        self._ready.extend(batch)
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            while self._ready:
                entry = self._ready.popleft()
                self._done += 1
                entry.publish(entry.argument)
        finally:
            self._is_publishing = False
        self._progress.set()
        self._progress = anyio.Event()

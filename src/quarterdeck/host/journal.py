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

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored

logger = logging.getLogger(__name__)

HIGH_WATER = 5000  # events that wait for their commit before reading from agents stops
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)  # after a failed commit; the last one repeats

OnStorageFailed = Callable[[StorageFailed], None]


# A plain tuple: a named one costs six times as much to make, and there is one for every event.
Entry = tuple[Stored | SessionMeta | None, Callable[[Any], None], Any]
"""What to store, if anything, and whom to give what after that."""


def _nothing(_argument: Any) -> None:
    """Publish nothing: the entry was only to be stored."""


class Journal:
    """Stores and publishes; `run` is its task."""

    def __init__(self, storage: Storage, on_storage_failed: OnStorageFailed) -> None:
        self._storage = storage
        self._memory = storage if isinstance(storage, MemoryStorage) else None
        self._on_storage_failed = on_storage_failed
        self._waiting: list[Entry] = []  # for their commit
        self._ready: deque[Entry] = deque()  # for their publication
        self._is_publishing = False
        self._added = 0
        self._done = 0
        # Each exists while somebody waits for it: making one costs more than a whole event.
        self._filled: anyio.Event | None = None
        self._progress: anyio.Event | None = None
        self._relief: anyio.Event | None = None
        self._ending = anyio.Event()

    def add(self, entry: Entry) -> None:
        """Take an entry; with a storage that keeps nothing over a crash it is published at once."""
        self._added += 1
        if self._memory is None:
            self._waiting.append(entry)
            if self._filled is not None:
                self._filled.set()
            return
        record = entry[0]
        if record is not None:
            self._memory.append_now((record,))
        self._ready.append(entry)
        if not self._is_publishing:
            self._publish_ready()

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
        self.add((record, _nothing, None))

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
            if self._progress is None:
                self._progress = anyio.Event()
            await self._progress.wait()

    async def commit(self, record: SessionMeta) -> None:
        """Store one record now, or fail: for what must not be said unless it is stored.

        Raises:
            StorageFailed: if it could not be stored; nothing was changed.
        """
        await self.settled()
        await self._storage.append((record,))

    async def run(self) -> None:
        """Commit and publish until `end`, then the rest.

        Only `end` ends it, which `Host.dispose` always calls: whoever is cancelled from outside
        in the middle of a stream still wants stored what was numbered.
        """
        with anyio.CancelScope(shield=True):
            await self._run()

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                if self._ending.is_set():
                    return
                self._filled = anyio.Event()
                await self._filled.wait()
                self._filled = None
            batch, self._waiting = self._waiting, []
            records = [record for record, _publish, _argument in batch if record is not None]
            if not await self._store(records):
                return
            self._publish(batch)
            if self._relief is not None and len(self._waiting) < HIGH_WATER:
                self._relief.set()
                self._relief = None

    def end(self) -> None:
        """Let `run` end after what is left; what cannot be stored now is given up."""
        self._ending.set()
        if self._filled is not None:
            self._filled.set()

    async def _store(self, records: Sequence[Stored | SessionMeta]) -> bool:
        """Store until it works; False if it did not and there is no more time to try."""
        attempt = 0
        while records:
            try:
                await self._storage.append(records)
            except StorageFailed as error:
                if attempt == 0:
                    self._on_storage_failed(error)
                if self._ending.is_set():
                    facts = {"records": len(records), "reason": str(error)}
                    logger.error("events could not be stored before the end", extra=facts)  # noqa: TRY400
                    return False
                with anyio.move_on_after(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                    await self._ending.wait()
                attempt += 1
            else:
                return True
        return True

    def _publish(self, batch: Sequence[Entry]) -> None:
        self._ready.extend(batch)
        if not self._is_publishing:
            self._publish_ready()

    def _publish_ready(self) -> None:
        self._is_publishing = True
        ready = self._ready
        try:
            while ready:
                _record, publish, argument = ready.popleft()
                self._done += 1
                publish(argument)
        finally:
            self._is_publishing = False
        if self._progress is not None:
            self._progress.set()
            self._progress = None

"""Every event on its way from numbered to stored to seen, in one order for all streams.

    number → queue → commit → publish

One queue for all streams: what was numbered first is published first, also across streams, so the
session's event is seen before the host's event that tells of it. Events of one stream that follow
each other are published together. Publishing is never nested: what a callback emits waits until
what it was called with has reached everybody.

Stored before seen (INV-5): a batch is committed, then published. A storage that can do so in the
same step is asked to; else `run` waits for it. While one batch is being committed the next one
gathers: the commit is shared by all that arrived meanwhile.
A commit that fails is told (`storage/write-failed`) and tried again until it succeeds: nothing is
published that is not stored, and nothing is dropped. Meanwhile `pressure` asks whoever reads from
agents to stop, so that a full disk or a slow one does not fill the memory instead. Only a storage
that says it will never take anything again is believed: then nothing is published any more, and
every call that needs the log fails with what it said.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.storage import ImmediateStorage, SessionMeta, Storage, Stored

logger = logging.getLogger(__name__)

HIGH_WATER = 5000  # events that wait for their commit before reading from agents stops
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)  # after a failed commit; the last one repeats

_LOG = "in storage"  # of a storage that does not say its name

OnStorageFailed = Callable[[StorageFailed], None]


class Audience(Protocol):
    """Somebody to whom things are published."""

    def publish(self, things: Sequence[Any]) -> None: ...


class _Nobody:
    def publish(self, things: Sequence[Any]) -> None:
        """Publish nothing: the entries were only to be stored."""


_NOBODY = _Nobody()

# A plain tuple: a named one costs six times as much to make, and there is one for every event.
Entry = tuple[Stored | SessionMeta | None, Audience, Any]
"""What to store, if anything, and whom to give what after that."""


class Journal:
    """Stores and publishes; `run` is its task."""

    def __init__(self, storage: Storage, on_storage_failed: OnStorageFailed) -> None:
        self._storage = storage
        self._immediate = storage if isinstance(storage, ImmediateStorage) else None
        self._is_storing = False  # `run` is, and what waits must come after that
        self._on_storage_failed = on_storage_failed
        self._waiting: list[Entry] = []  # for their commit; always the same list
        self.gather = self._waiting.append
        """Take one of many entries; `flush` them soon. Straight into the list: each event does."""
        self._ready: deque[tuple[Audience, list[Any]]] = deque()  # for their publication
        self._is_publishing = False
        self._taken = 0  # entries that have left `_waiting`
        self._done = 0
        # Each exists while somebody waits for it: making one costs more than a whole event.
        self._filled: anyio.Event | None = None
        self._progress: anyio.Event | None = None
        self._relief: anyio.Event | None = None
        self._ending = anyio.Event()
        self.failure: StorageFailed | None = None
        """Why nothing can be stored now, while `run` tries again and again."""
        self._broken: StorageFailed | None = None

    def add(self, entry: Entry) -> None:
        """Take an entry and let it go on its way."""
        self.gather(entry)
        self.flush()

    def flush(self) -> None:
        """Let go on their way the entries that were gathered."""
        if self._is_publishing:
            return  # whoever does comes back for them
        if self._ready:
            self._publish_ready()
        if self._waiting and not self._store_now() and self._filled is not None:
            self._filled.set()
            self._filled = None

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
            self.flush()

    def add_record(self, record: SessionMeta) -> None:
        """Store a record in the order of events; nobody sees it."""
        self.add((record, _NOBODY, None))

    def publish_now(self, entry: Entry) -> None:
        """Publish what is not stored ahead of all that waits: news of the storage itself."""
        self._done -= 1  # it is none of those that `settled` counts
        self._publish((entry,))

    def pressure(self) -> anyio.Event | None:
        """Flush, and return what to wait for before producing more, if anything."""
        self.flush()
        if len(self._waiting) < HIGH_WATER:
            return None
        if self._relief is None:
            self._relief = anyio.Event()
        return self._relief

    async def settled(self) -> None:
        """Wait until all that was added so far is stored and published.

        Raises:
            StorageFailed: if it never will be.
        """
        self.flush()
        target = self._taken + len(self._waiting)
        while self._done < target:
            self.check()
            if self._progress is None:
                self._progress = anyio.Event()
            await self._progress.wait()

    def check(self) -> None:
        """Refuse to begin what could not be recorded.

        Raises:
            StorageFailed: if nothing can be stored any more.
        """
        if self._broken is not None:
            raise self._broken.again()

    async def commit(self, record: SessionMeta) -> None:
        """Store one record now, or fail: for what must not be said unless it is stored.

        Raises:
            StorageFailed: if it could not be stored; nothing was changed.
        """
        await self.settled()
        await self._append((record,))

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
                filled = self._filled = anyio.Event()
                await filled.wait()
            batch = self._take_waiting()
            records = [record for record, _publish, _argument in batch if record is not None]
            self._is_storing = True
            is_stored = self._broken is None and await self._store(records)
            self._is_storing = False
            if is_stored:
                self._publish(batch)
                self.flush()  # in this step, if the storage can by now
            elif self._broken is None:
                return
            self._relieve()

    async def finish(self, seconds: float) -> None:
        """Store what is left and end; a storage that keeps failing gets so many seconds."""
        with anyio.move_on_after(seconds), suppress(StorageFailed):
            await self.settled()
        self.end()

    def end(self) -> None:
        """Let `run` end after what is left; what cannot be stored now is given up."""
        self._ending.set()
        if self._filled is not None:
            self._filled.set()
            self._filled = None

    async def _store(self, records: Sequence[Stored | SessionMeta]) -> bool:
        """Store until it works; False if it never will, or there is no more time to try."""
        attempt = 0
        self.failure = None
        while records:
            try:
                await self._append(records)
            except StorageFailed as error:
                self.failure = error.again()
                if attempt == 0:
                    self._on_storage_failed(error)
                if error.is_final:
                    self._break(error)
                    return False
                if self._ending.is_set():
                    facts = {"records": len(records), "reason": str(error)}
                    logger.error("events could not be stored before the end", extra=facts)  # noqa: TRY400
                    return False
                with anyio.move_on_after(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                    await self._ending.wait()
                attempt += 1
            else:
                self.failure = None
                return True
        return True

    async def _append(self, records: Sequence[Stored | SessionMeta]) -> None:
        try:
            await self._storage.append(records)
        except StorageFailed:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageFailed(
                _LOG, reason, "check the disk; then it goes on by itself"
            ) from error
        except Exception as error:
            logger.exception("the storage failed in a way it must not")
            reason = f"{type(error).__name__}: {error}"
            raise StorageFailed(_LOG, reason, "restart, and report this", is_final=True) from error

    def _break(self, error: StorageFailed) -> None:
        """Let everybody know who waits for what will never be stored."""
        self._broken = error.again()
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _relieve(self) -> None:
        """Let those go on who were asked to stop, if little enough waits by now."""
        if self._relief is not None and len(self._waiting) < HIGH_WATER:
            self._relief.set()
            self._relief = None

    def _take_waiting(self) -> list[Entry]:
        batch = self._waiting.copy()
        self._waiting.clear()
        self._taken += len(batch)
        return batch

    def _store_now(self) -> bool:
        """Store and publish what waits; False if that takes `run`."""
        if self._immediate is None or self._is_storing or self._broken is not None:
            return False
        while self._waiting:
            records = [entry[0] for entry in self._waiting if entry[0] is not None]
            try:
                if records and not self._immediate.append_now(records):
                    return False
            except Exception:  # noqa: BLE001  # `run` will meet it again, and tell
                return False
            self._publish(self._take_waiting())
        self._relieve()  # `run` was perhaps woken for these, and finds nothing to do
        return True

    def _publish(self, batch: Sequence[Entry]) -> None:
        """Publish a batch: one run of things for each audience in turn."""
        audience: Audience | None = None
        run: list[Any] = []
        for _record, next_audience, thing in batch:
            if next_audience is not audience:
                audience, run = next_audience, []
                self._ready.append((audience, run))
            run.append(thing)
        if not self._is_publishing:
            self._publish_ready()

    def _publish_ready(self) -> None:
        self._is_publishing = True
        ready = self._ready
        try:
            while ready:
                audience, things = ready.popleft()
                self._done += len(things)
                audience.publish(things)
        finally:
            self._is_publishing = False
        if self._progress is not None:
            self._progress.set()
            self._progress = None

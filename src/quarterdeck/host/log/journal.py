"""The writer of all logs: queue, commit, publish, in one order for all streams.

How an event gets from an agent's output to a subscriber:

    Connection._dispatch          decode it; call `AgentProcess._on_notification`
    UpdateRecorder.on_update      find the session; normalize and repair the update
                                  (`host/sessions/updates`; ACP 2: `host/acp2/updates`)
    Emitter.enqueue               number and encode it; append it to the journal's queue
    Journal.commit_and_publish    called by `AgentProcess._after_read` at the end of each read, and
                                  after each event that is not an agent's update
      ├─ _commit_now              the storage can commit in this step (memory; SQLite when idle)
      └─ run → _commit            it cannot: a task waits for the commit, and retries
    _publish                      hand the batch to its publishers, such as `Stream.publish`
    Stream.publish                call subscribers; a `RunSubscriber`, such as `SharedLog` of the
                                  hub (`hub/streams/shared_log`), gets the stored bytes

**One order.** All streams share one queue. What was numbered first is published first, also across
streams, so a session's event is seen before the host's event that refers to it. Consecutive events
of one stream are published as one run. Publishing is never nested: what a callback emits is queued
and published after the callback's own event has reached every subscriber.

**Stored before seen (INV-5).** A batch is committed, then published. While one batch is being
committed the next one fills up, so that concurrent sessions share a commit.

**Failures.** A failed commit is reported once (`storage/write-failed`) and retried until it
succeeds: nothing is published that is not stored, and nothing is dropped. Meanwhile
`back_pressure` stops the reading from agents, so that a full or slow disk does not fill the memory
instead. A storage whose failure `is_final` is not tried again: from then on nothing is published,
and every call that needs the log raises that failure.

    state of an entry   where                       leaves it by
    queued              `_queued`                   `_commit_now`, or `run`
    being committed     the batch of `run`          `_commit`
    committed           `_committed`                `_publish_committed`
    published           counted in `_published`     `settled` returns when all are
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

_LOG = "in storage"  # the name of a storage whose error has none

OnStorageFailed = Callable[[StorageFailed], None]


class Publisher(Protocol):
    """Publishes items once they are stored, in the order in which they were queued."""

    def publish(self, items: Sequence[Any]) -> None: ...


class _NoPublisher:
    def publish(self, items: Sequence[Any]) -> None:
        """Publish nothing: the entries only had to be stored."""


_NO_PUBLISHER = _NoPublisher()

# A plain tuple: a named one costs six times as much to make, and there is one for every event.
Entry = tuple[Stored | SessionMeta | None, Publisher, Any]
"""What to store, if anything; who publishes after that; and what."""


class Journal:
    """Stores and publishes; `run` is its task."""

    def __init__(self, storage: Storage, on_storage_failed: OnStorageFailed) -> None:
        self._storage = storage
        self._immediate = storage if isinstance(storage, ImmediateStorage) else None
        self._is_committing = False  # `run` is; what is queued must be stored after that
        self._on_storage_failed = on_storage_failed
        self._queued: list[Entry] = []  # always the same list: `enqueue` is bound to it
        self.enqueue = self._queued.append
        """Queue an entry without committing it; `commit_and_publish` soon after.

        The list's own `append`, because every update of an agent goes through here.
        """
        self._committed: deque[tuple[Publisher, list[Any]]] = deque()
        self._is_publishing = False
        self._taken = 0  # entries that have left `_queued`
        self._published = 0
        # Each exists while a task waits for it: making one costs more than a whole event.
        self._filled: anyio.Event | None = None
        self._progress: anyio.Event | None = None
        self._drained: anyio.Event | None = None
        self._ending = anyio.Event()
        self.failure: StorageFailed | None = None
        """Why nothing can be stored now, while `run` retries."""
        self._final_failure: StorageFailed | None = None

    def write(self, entry: Entry) -> None:
        """Queue an entry, then commit and publish."""
        self.enqueue(entry)
        self.commit_and_publish()

    def write_record(self, record: SessionMeta) -> None:
        """Store a session's record in the order of events; it is not published."""
        self.write((record, _NO_PUBLISHER, None))

    def commit_and_publish(self) -> None:
        """Commit and publish what is queued: in this step if the storage can, else in `run`."""
        if self._is_publishing:
            return  # `_publish_committed`, further up the stack, or `batch` does it afterwards
        if self._committed:
            self._publish_committed()
        if self._queued and not self._commit_now() and self._filled is not None:
            self._filled.set()
            self._filled = None

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Publish nothing before everything that is written inside is queued.

        A subscriber may act at once on the first of two events that belong together; what it
        causes is numbered after the second.
        """
        was_publishing, self._is_publishing = self._is_publishing, True
        try:
            yield
        finally:
            self._is_publishing = was_publishing
            self.commit_and_publish()

    def publish_now(self, entry: Entry) -> None:
        """Publish an entry that is not stored, ahead of the queue: a report about the storage."""
        self._published -= 1  # `settled` does not count it
        self._publish((entry,))

    def back_pressure(self) -> anyio.Event | None:
        """Return what to wait for before reading more from agents; None if nothing."""
        if len(self._queued) < HIGH_WATER:
            return None
        if self._drained is None:
            self._drained = anyio.Event()
        return self._drained

    async def settled(self) -> None:
        """Wait until everything queued so far is stored and published.

        Raises:
            StorageFailed: if it never will be.
        """
        self.commit_and_publish()
        target = self._taken + len(self._queued)
        while self._published < target:
            self.check_writable()
            if self._progress is None:
                self._progress = anyio.Event()
            await self._progress.wait()

    def check_writable(self) -> None:
        """Refuse to begin what could not be recorded.

        Raises:
            StorageFailed: if nothing can be stored any more.
        """
        if self._final_failure is not None:
            raise self._final_failure.again()

    async def commit_record(self, record: SessionMeta) -> None:
        """Store one record now, or fail: for what must not be published unless it is stored.

        Raises:
            StorageFailed: if it could not be stored; nothing was changed.
        """
        await self.settled()
        await self._append((record,))

    async def run(self) -> None:
        """Commit and publish until `end`, then the rest.

        Shielded: only `end`, which `Host.dispose` always calls, stops it. If the host's task is
        cancelled in the middle of a stream, what was numbered must still be stored.
        """
        with anyio.CancelScope(shield=True):
            await self._run()

    async def _run(self) -> None:
        while True:
            while not self._queued:
                if self._ending.is_set():
                    return
                filled = self._filled = anyio.Event()
                await filled.wait()
            batch = self._take_queued()
            records = [record for record, _publisher, _item in batch if record is not None]
            self._is_committing = True
            is_stored = self._final_failure is None and await self._commit(records)
            self._is_committing = False
            if is_stored:
                self._publish(batch)
                self.commit_and_publish()  # in this step, if the storage can by now
            elif self._final_failure is None:
                return
            self._release_readers()

    async def finish(self, seconds: float) -> None:
        """Store what is left and end; a storage that keeps failing gets this many seconds."""
        with anyio.move_on_after(seconds), suppress(StorageFailed):
            await self.settled()
        self.end()

    def end(self) -> None:
        """Make `run` return after what is left; what cannot be stored then is given up."""
        self._ending.set()
        if self._filled is not None:
            self._filled.set()
            self._filled = None

    # ---- commit --------------------------------------------------------------------------

    def _commit_now(self) -> bool:
        """Commit and publish the queue in this step; return False if `run` has to do it."""
        if self._immediate is None or self._is_committing or self._final_failure is not None:
            return False
        while self._queued:
            records = [entry[0] for entry in self._queued if entry[0] is not None]
            try:
                if records and not self._immediate.append_now(records):
                    return False
            except Exception:  # noqa: BLE001  # `run` meets it again, and reports it
                return False
            self._publish(self._take_queued())
        self._release_readers()  # `run` was perhaps woken for these, and finds nothing to do
        return True

    async def _commit(self, records: Sequence[Stored | SessionMeta]) -> bool:
        """Retry until the records are stored; return False if they never will be."""
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
                    self._fail(error)
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
                _LOG, reason, "check the disk; writing resumes by itself"
            ) from error
        except Exception as error:
            logger.exception("the storage raised an error that its contract does not allow")
            reason = f"{type(error).__name__}: {error}"
            raise StorageFailed(_LOG, reason, "restart, and report this", is_final=True) from error

    def _fail(self, error: StorageFailed) -> None:
        """Wake the callers of `settled`: what they wait for will never be stored."""
        self._final_failure = error.again()
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _release_readers(self) -> None:
        """End the back-pressure if the queue is short enough."""
        if self._drained is not None and len(self._queued) < HIGH_WATER:
            self._drained.set()
            self._drained = None

    def _take_queued(self) -> list[Entry]:
        batch = self._queued.copy()
        self._queued.clear()
        self._taken += len(batch)
        return batch

    # ---- publish -------------------------------------------------------------------------

    def _publish(self, batch: Sequence[Entry]) -> None:
        """Publish a committed batch: consecutive items of one publisher as one run."""
        publisher: Publisher | None = None
        run: list[Any] = []
        for _record, next_publisher, item in batch:
            if next_publisher is not publisher:
                publisher, run = next_publisher, []
                self._committed.append((publisher, run))
            run.append(item)
        if not self._is_publishing:
            self._publish_committed()

    def _publish_committed(self) -> None:
        self._is_publishing = True
        committed = self._committed
        try:
            while committed:
                publisher, items = committed.popleft()
                self._published += len(items)
                publisher.publish(items)
        finally:
            self._is_publishing = False
        if self._progress is not None:
            self._progress.set()
            self._progress = None

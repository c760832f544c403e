"""The writer of all logs: queue, commit, publish, in one order for all streams.

How an event gets from an agent's output to a subscriber:

    Connection._dispatch          decode it; call `AgentProcess._on_notification`
    UpdateRecorder.on_update      find the session; normalize and repair the update
                                  (`host/sessions/updates`; ACP 2: `host/acp2/updates`)
    Emitter.enqueue               number and encode it; append it to the journal's queue
    Journal.commit_and_publish    called by `AgentProcess._after_read` at the end of each read, and
                                  after each event that is not an agent's update
      ├─ _commit_now              the storage can commit in this step (memory; SQLite when idle)
      └─ work → _commit           it cannot: a task waits for the commit, and retries
    _publish                      hand the batch to its publishers, such as `Stream.publish`
    Stream.publish                call subscribers; a `RunSubscriber`, such as `_FollowedLog` of
                                  the link to a hub (`runner/link/server`), gets the stored bytes

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

    the storage raises                what happens
    StorageFailed                     retried; nothing is published meanwhile
    StorageFailed that `is_final`     the host publishes nothing more
    LogFenced, LogDamaged, LogGap     the sessions that it names stop (`OnSessionRefused`): their
                                      records are dropped, now and later; the rest of the batch is
                                      committed, and every other session continues

    state of an entry   where                       leaves it by
    queued              `_queued`                   `_commit_now`, or `work`
    being committed     the batch of `work`          `_commit`
    committed           `_committed`                `_publish_committed`
    published           counted in `_published`     `wait_stored` returns when all are
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import anyio

from quarterdeck.errors import LogDamaged, LogFenced, LogGap, StorageFailed
from quarterdeck.storage import ImmediateStorage, SessionMeta, Storage, Stored

logger = logging.getLogger(__name__)

HIGH_WATER = 5000  # events that wait for their commit before reading from agents stops
RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0)  # after a failed commit; the last one repeats

_LOG = "in storage"  # the name of a storage whose error has none

OnStorageFailed = Callable[[StorageFailed], None]
OnSessionRefused = Callable[[str, str], None]
"""Takes a session whose records the storage does not accept, and why, as a clause."""


class Publisher(Protocol):
    """Publishes items once they are stored, in the order in which they were queued."""

    def publish(self, items: Sequence[Any]) -> None: ...


class _NoPublisher:
    def publish(self, items: Sequence[Any]) -> None:
        """Publish nothing: the entries only had to be stored."""


NO_PUBLISHER = _NoPublisher()

# A plain tuple: a named one costs six times as much to make, and there is one for every event.
Entry = tuple[Stored | SessionMeta | None, Publisher, Any]
"""What to store, if anything; who publishes after that; and what."""


class Journal:
    """Stores and publishes; `work` is its task."""

    def __init__(self, storage: Storage, on_storage_failed: OnStorageFailed) -> None:
        self._storage = storage
        self._immediate = storage if isinstance(storage, ImmediateStorage) else None
        self._is_committing = False  # `work` is; what is queued must be stored after that
        self._on_storage_failed = on_storage_failed
        self.on_session_refused: OnSessionRefused = _report_refusal
        """Stops a session whose records the storage does not accept; set by the host."""
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
        """Why nothing can be stored now, while `work` retries."""
        self._stopped: set[str] = set()  # sessions whose events are dropped
        self._final_failure: StorageFailed | None = None

    def write(self, entry: Entry) -> None:
        """Queue an entry, then commit and publish."""
        self.enqueue(entry)
        self.commit_and_publish()

    def write_record(self, record: SessionMeta) -> None:
        """Store a session's record in the order of events; it is not published."""
        self.write((record, NO_PUBLISHER, None))

    def stop_session(self, session_id: str) -> None:
        """Drop the events of a session from now on, those that are queued included."""
        self._stopped.add(session_id)

    def commit_and_publish(self) -> None:
        """Commit and publish what is queued: in this step if the storage can, else in `work`."""
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
        self._published -= 1  # `wait_stored` does not count it
        self._publish((entry,))

    def back_pressure(self) -> anyio.Event | None:
        """Return what to wait for before reading more from agents; None if nothing."""
        if len(self._queued) < HIGH_WATER:
            return None
        if self._drained is None:
            self._drained = anyio.Event()
        return self._drained

    async def wait_stored(self) -> None:
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
        await self.wait_stored()
        try:
            await self._append((record,))
        except (LogFenced, LogDamaged) as error:
            self._stop_sessions(_refused_by(error))
            raise

    async def work(self) -> None:
        """Commit and publish until `end`, then the rest.

        Shielded: only `end`, which `Host.dispose` always calls, stops it. If the host's task is
        cancelled in the middle of a stream, what was numbered must still be stored.
        """
        with anyio.CancelScope(shield=True):
            await self._work()

    async def _work(self) -> None:
        while True:
            while not self._queued:
                if self._ending.is_set():
                    return
                filled = self._filled = anyio.Event()
                await filled.wait()
            if self._stopped:
                self._drop_stopped()
            batch = self._take_queued()
            self._is_committing = True
            is_stored = self._final_failure is None and await self._commit(batch)
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
            await self.wait_stored()
        self.end()

    def end(self) -> None:
        """Make `work` return after what is left; what cannot be stored then is given up."""
        self._ending.set()
        if self._filled is not None:
            self._filled.set()
            self._filled = None

    # ---- commit --------------------------------------------------------------------------

    def _commit_now(self) -> bool:
        """Commit and publish the queue in this step; return False if `work` has to do it."""
        if self._immediate is None or self._is_committing or self._final_failure is not None:
            return False
        while self._queued:
            if self._stopped:
                self._drop_stopped()
            records = [entry[0] for entry in self._queued if entry[0] is not None]
            try:
                if records and not self._immediate.append_now(records):
                    return False
            except Exception:  # noqa: BLE001  # `work` meets it again, and reports it
                return False
            self._publish(self._take_queued())
        self._release_readers()  # `work` was perhaps woken for these, and finds nothing to do
        return True

    async def _commit(self, batch: list[Entry]) -> bool:
        """Retry until a batch is stored; return False if it never will be.

        Entries of sessions that the storage refuses are removed from the batch.
        """
        attempt = 0
        self.failure = None
        while records := [entry[0] for entry in batch if entry[0] is not None]:
            try:
                await self._append(records)
            except StorageFailed as error:
                if self._leave_out(batch, _refused_by(error)):
                    continue
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
        except LogGap as error:
            logger.error("a log does not continue as expected", extra={"reason": str(error)})  # noqa: TRY400
            reason = f"its log continues with event {error.expected}, not {error.seq}"
            raise LogFenced(_LOG, {error.session_id: reason}) from error
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
        """Wake the callers of `wait_stored`: what they wait for will never be stored."""
        self._final_failure = error.again()
        self._report_progress()

    def _leave_out(self, batch: list[Entry], refused: Mapping[str, str]) -> bool:
        """Stop refused sessions and remove their records from a batch; `wait_stored` counts them.

        Returns whether anything has changed: else the same commit would fail in the same way.
        """
        taken, known = len(batch), len(self._stopped)
        batch[:] = [
            entry for entry in batch if entry[0] is None or entry[0].session_id not in refused
        ]
        self._published += taken - len(batch)
        self._report_progress()
        self._stop_sessions(refused)
        return len(batch) < taken or len(self._stopped) > known

    def _stop_sessions(self, refused: Mapping[str, str]) -> None:
        for session_id, reason in refused.items():
            if session_id not in self._stopped:
                self.stop_session(session_id)
                self.on_session_refused(session_id, reason)

    def _release_readers(self) -> None:
        """End the back-pressure if the queue is short enough."""
        if self._drained is not None and len(self._queued) < HIGH_WATER:
            self._drained.set()
            self._drained = None

    def _drop_stopped(self) -> None:
        """Drop the queued events of stopped sessions; `wait_stored` counts them as published."""
        stopped, queued = self._stopped, len(self._queued)
        self._queued[:] = [
            entry
            for entry in self._queued
            if not (isinstance(entry[0], Stored) and entry[0].session_id in stopped)
        ]
        dropped = queued - len(self._queued)
        self._taken += dropped
        self._published += dropped
        self._report_progress()

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
            self._report_progress()

    def _report_progress(self) -> None:
        """Wake the callers of `wait_stored`."""
        if self._progress is not None:
            self._progress.set()
            self._progress = None


def _report_refusal(session_id: str, reason: str) -> None:
    logger.error("a session is not stored", extra={"session": session_id, "reason": reason})


def _refused_by(error: StorageFailed) -> Mapping[str, str]:
    """Return the sessions whose records a storage does not accept, and why."""
    match error:
        case LogFenced():
            return error.sessions
        case LogDamaged(session_id=session_id) if session_id:
            return {session_id: error.reason}
        case _:
            return {}

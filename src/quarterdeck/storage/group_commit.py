"""Group commit: one thread writes the log, and each caller waits for its own batch only.

While a commit runs, batches queue; the next commit takes them all. A single caller pays for one
commit, a thousand callers share one. `ThreadedStorage` wraps a log with blocking calls in this
writer, and adds a second thread for reads.

Who has the log
---------------
`commit`, `tidy` and `forget` of a `BlockingLog` never run at the same time. The log belongs to the
thread from the moment the loop hands it a job until the thread reports that every job is done and
there is no housekeeping left:

    state  condition                         what happens
    LOOP   `_finished == _handed`            `append_now` may commit on the event loop; the thread
                                             is blocked in `_jobs.get()`
    QUEUE  `_finished != _handed`            the thread commits groups of batches, runs tasks, and
                                             does housekeeping between them
    WARY   LOOP, but before `_wary_until`    a commit on the loop took more than `SLOW_SECONDS`:
                                             batches go to the thread for `WARY_SECONDS`

Each field belongs to one side, so there is no lock: `_handed`, `_finished`, `_failures_known`,
`_wary_until` are read and written on the loop only; `_taken`, `_failures`, `_last_failure`,
`_put_back` and `_has_untidy` on the thread only. Values cross in the queue (loop to thread) and in
`call_soon_threadsafe` (thread to loop).

Orderings
---------
- Batches are committed in the order of the calls. A task (`run`) is executed after everything that
  was handed over before it: a group ends at the first job that is not a batch.
- Callers are woken after the commit returned, and before housekeeping begins: only the next
  batch can wait for a checkpoint.
- When a commit fails, so does every batch that was handed over before its caller could know: it
  would otherwise follow a batch that is lost, and fail with a gap that is not its fault. A batch
  carries `failures_known`, the count of failed commits that its caller had seen; the thread fails
  batches whose count is not the current one. Appending all again, in order, is then correct.

Limits
------
`GROUP_RECORDS` bounds a group, so that the first caller does not wait for all that follow. The
queue has no bound of its own: the journal has one batch in flight, and stops reading from agents
when too many events wait. `STOP_SECONDS` bounds the wait for the last commit on a disk that does
not respond.

What was tried
--------------
- `to_thread.run_sync` per commit, as other modules do: 108 µs (120 µs of processor time) for one
  event stored and acknowledged. A thread of our own with `call_soon_threadsafe`: 50 µs (60 µs).
- `from_thread.run_sync` for the way back: 63 µs, and the writer would wait for the loop.
- All commits on the thread: two threads that alternate on one interpreter make an agent's stream
  cost half as much again, hence `append_now` for logs whose commits do not wait for the disk
  (docs/adr/0011-commits-on-the-loop.md).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from quarterdeck.errors import LogGap, StorageFailed
from quarterdeck.storage.contract import Batch, SessionMeta, Stored
from quarterdeck.storage.integrity import Damage, LogEpoch

logger = logging.getLogger(__name__)

GROUP_RECORDS = 8_192
"""A group with this many records takes no further batch."""
SLOW_SECONDS = 0.05
"""A commit on the loop that takes longer delays all other tasks too much."""
WARY_SECONDS = 1.0
"""How long commits stay on the thread after that."""
STOP_SECONDS = 60.0
"""How long `stop` waits for the last commit; only a dead disk or network share takes longer."""

_T = TypeVar("_T")


class Commits(Protocol):
    """The blocking work; never called by two threads at once."""

    @property
    def is_quick(self) -> bool:
        """Whether a commit does not wait for the disk."""
        ...

    @property
    def is_untidy(self) -> bool:
        """Whether `tidy` has something to do."""
        ...

    def commit(self, batches: Sequence[Batch]) -> Sequence[LogGap | None]:
        """Store all batches in one commit, except those that leave a gap.

        Raises:
            StorageFailed: if the commit fails; then nothing of it is stored.
        """
        ...

    def tidy(self) -> bool:
        """Do a short piece of housekeeping; return whether there is more."""
        ...


class _Loop(Protocol):
    """The one method of the asyncio loop that is used."""

    def call_soon_threadsafe(self, callback: Callable[[Any], None], argument: Any) -> object: ...


class _Job(Generic[_T]):
    """Work for the thread that a caller waits for."""

    def __init__(self) -> None:
        self.is_done = anyio.Event()
        self.is_awaited = True
        self.failure: Exception | None = None
        self.result: _T

    async def wait(self) -> _T:
        try:
            await self.is_done.wait()
        except anyio.get_cancelled_exc_class():
            self.is_awaited = False
            raise
        if self.failure is not None:
            raise self.failure
        return self.result


class _Append(_Job[None]):
    def __init__(self, batch: Batch, failures_known: int) -> None:
        super().__init__()
        self.batch = tuple(batch)  # the caller may change its list
        self.failures_known = failures_known
        self.result = None


class _Task(_Job[_T]):
    def __init__(self, run: Callable[[], _T]) -> None:
        super().__init__()
        self.run = run


class GroupCommit:
    """The thread, its queue and the way back to the event loop."""

    def __init__(self, commits: Commits, name: str) -> None:
        self._commits = commits
        self._jobs: queue.SimpleQueue[_Append | _Task[Any] | None] = queue.SimpleQueue()
        self._loop = cast(_Loop, current_token().native_token)
        self._put_back: list[_Task[Any] | None] = []
        self._handed = 0  # loop: jobs given to the thread
        self._finished = -1  # loop: jobs done when the thread last became idle
        self._taken = 0  # thread: jobs taken from the queue
        self._wary_until = 0.0  # loop
        self._has_untidy = True  # thread; the process before may have left some
        self._failures = 0  # thread: commits that failed
        self._failures_known = 0  # loop: failures that callers can know of
        self._last_failure: Exception | None = None
        self._has_stopped = anyio.Event()
        # A daemon: a program that does not close its storage must still be able to exit.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def append(self, batch: Batch) -> None:
        job = _Append(batch, self._failures_known)
        self._hand_over(job)
        await job.wait()

    def append_now(self, batch: Batch) -> bool:
        """Commit a batch on the loop if the thread is idle and the log is quick, else return False.

        Raises:
            LogGap, StorageFailed: as `append`.
        """
        if self._finished != self._handed or not self._commits.is_quick:
            return False  # the log belongs to the thread
        began = time.monotonic()
        if began < self._wary_until:
            return False
        (gap,) = self._commits.commit((batch,))
        ended = time.monotonic()
        if ended - began > SLOW_SECONDS:
            self._wary_until = ended + WARY_SECONDS
        if self._commits.is_untidy:
            self._hand_over(_Task(lambda: None))  # the thread does housekeeping after each job
        if gap is not None:
            raise gap
        return True

    async def run(self, task: Callable[[], _T]) -> _T:
        """Run `task` on the thread, after everything that was handed over before."""
        job = _Task(task)
        self._hand_over(job)
        return await job.wait()

    async def stop(self) -> bool:
        """Commit what was handed over and end the thread; return whether it ended in time."""
        self._jobs.put(None)
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            await self._has_stopped.wait()
            self._thread.join()  # it is about to return
            return True
        return False

    def _hand_over(self, job: _Append | _Task[Any]) -> None:
        self._handed += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while self._take_turn():
            pass  # no reference is kept here: a batch must not outlive its commit
        self._call_loop(lambda _: self._has_stopped.set(), None)

    def _take_turn(self) -> bool:
        """Do the next job; return False at the end."""
        job = self._next_job()
        if job is None:
            return False
        if isinstance(job, _Append):
            group = self._group(job)
            self._taken += len(group)
            self._commit(group)
        else:
            self._taken += 1
            self._do(job)
        if self._has_untidy:
            self._tidy()
        return True

    def _next_job(self) -> _Append | _Task[Any] | None:
        """Wait for the next job, and do housekeeping while there is none."""
        if self._put_back:
            return self._put_back.pop()
        while self._has_untidy and self._jobs.empty():
            self._tidy()
        return self._jobs.get()

    def _group(self, first: _Append) -> list[_Append]:
        """Take the jobs that can be committed together with `first`."""
        group, records = [first], len(first.batch)
        while records < GROUP_RECORDS and not self._jobs.empty():
            job = self._jobs.get()
            if not isinstance(job, _Append):
                self._put_back.append(job)
                break
            group.append(job)
            records += len(job.batch)
        return group

    def _commit(self, group: list[_Append]) -> None:
        current = [job for job in group if job.failures_known == self._failures]
        for job in group:
            if job.failures_known != self._failures:
                assert self._last_failure is not None
                job.failure = _again(self._last_failure)
        try:
            gaps = self._commits.commit([job.batch for job in current]) if current else ()
        except Exception as error:  # noqa: BLE001 - the edge of a thread: the callers raise it
            self._failures += 1
            self._last_failure = _again(error)
            for job in current:
                job.failure = error
        else:
            for job, gap in zip(current, gaps, strict=True):
                job.failure = gap
        self._settle_soon(group, self._failures)

    def _do(self, job: _Task[Any]) -> None:
        try:
            job.result = job.run()
        except Exception as error:  # noqa: BLE001 - the edge of a thread: the caller raises it
            job.failure = error
        self._settle_soon([job], None)

    def _settle_soon(self, jobs: Sequence[_Job[Any]], failures: int | None) -> None:
        self._has_untidy = self._commits.is_untidy
        finished = None if self._has_untidy else self._taken  # idle: the log is the loop's
        self._call_loop(self._settle, (jobs, failures, finished))

    def _tidy(self) -> None:
        self._has_untidy = self._tidy_a_little()
        if not self._has_untidy:
            self._call_loop(self._rest, self._taken)

    def _tidy_a_little(self) -> bool:
        try:
            return self._commits.tidy()
        except StorageFailed as error:
            # Nothing is lost, and the next commit will fail on the same disk.
            logger.warning("housekeeping of the log failed", extra={"reason": str(error)})
        except Exception:  # the edge of a thread: it must not end while callers wait for it
            logger.exception("housekeeping of the log failed")
        return False

    def _call_loop(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop was closed without closing the storage
            logger.error("a batch was stored after its event loop was closed")  # noqa: TRY400

    def _rest(self, finished: int) -> None:
        """Note that the thread is idle after `finished` jobs; runs on the loop."""
        self._finished = finished

    def _settle(self, outcome: tuple[Sequence[_Job[Any]], int | None, int | None]) -> None:
        """Wake the callers; runs on the loop."""
        jobs, failures, finished = outcome
        if finished is not None:
            self._rest(finished)
        if failures is not None:
            self._failures_known = failures
        for job in jobs:
            job.is_done.set()
            if job.failure is not None and not job.is_awaited:
                reason = {"reason": str(job.failure)}
                logger.error("a batch of a cancelled caller was not stored", extra=reason)


def _again(error: Exception) -> Exception:
    return error.again() if isinstance(error, StorageFailed) else error


class BlockingLog(Commits, Protocol):
    """A log on disk. `commit`, `tidy` and `forget` never run at the same time; reads may."""

    @property
    def path(self) -> Path: ...

    @property
    def epoch(self) -> LogEpoch: ...

    @property
    def damages(self) -> Sequence[Damage]: ...

    def open(self) -> None: ...

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]: ...

    def sessions(self) -> list[SessionMeta]: ...

    def forget(self, session_id: str) -> None:
        """Hide the events of a session from now on; `tidy` frees their space."""
        ...

    def close(self) -> None: ...


def disk_size(path: Path) -> int:
    """Return the size of a log with its WAL, if it has one."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(each.stat().st_size for each in files if each.exists())


@runtime_checkable
class CompactableLog(Protocol):
    """A log that can be compacted while it is used; see `sqlite_compaction`."""

    def begin_compaction(self) -> bool: ...

    def write_compact_copy(self) -> None: ...

    def finish_compaction(self) -> None: ...

    def end_compaction(self) -> None: ...


PageRequest = tuple[str, int, int]
"""Session, after which event, and how many at most."""


def _pages(log: BlockingLog, wanted: Sequence[PageRequest], most_bytes: int) -> list[list[bytes]]:
    pages: list[list[bytes]] = []
    size = 0
    for session_id, after, limit in wanted:
        page: list[bytes] = []
        if size < most_bytes:
            with suppress(StorageFailed):
                page = log.read(session_id, after, limit)
        size += sum(map(len, page))
        pages.append(page)
    return pages


class ThreadedStorage:
    """A `Storage` around a blocking log: one thread writes, another one reads."""

    def __init__(self, log: BlockingLog) -> None:
        self._log = log
        self._writer: GroupCommit | None = None
        self._compacting = anyio.Lock()
        self._reads = anyio.CapacityLimiter(1)  # one reader is enough: pages are short

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def is_immediate(self) -> bool:
        return False

    @property
    def path(self) -> Path:
        return self._log.path

    @property
    def epoch(self) -> LogEpoch:
        return self._log.epoch

    @property
    def damages(self) -> Sequence[Damage]:
        return self._log.damages

    async def open(self) -> None:
        if self._writer is None:
            await to_thread.run_sync(self._log.open, limiter=self._reads)
            self._writer = GroupCommit(self._log, name=f"writer of {self._log.path.name}")

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        await self._open_writer().append(batch)

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        return self._open_writer().append_now(batch)

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        del session_id, after, limit
        raise StorageFailed(self._log.path, "it is read on a thread", "await read instead")

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self._open_writer()
        page = partial(self._log.read, session_id, after, limit)
        return await to_thread.run_sync(page, limiter=self._reads)

    async def read_many(self, wanted: Sequence[PageRequest], most_bytes: int) -> list[list[bytes]]:
        """Read many pages in one job of the thread.

        A page that cannot be read is empty, and so are all after the one that reaches
        `most_bytes`: the caller reads them singly.
        """
        self._open_writer()
        pages = partial(_pages, self._log, wanted, most_bytes)
        return await to_thread.run_sync(pages, limiter=self._reads)

    async def sessions(self) -> list[SessionMeta]:
        self._open_writer()
        return await to_thread.run_sync(self._log.sessions, limiter=self._reads)

    async def delete_events(self, session_id: str) -> None:
        await self._open_writer().run(partial(self._log.forget, session_id))

    async def compact(self) -> tuple[int, int]:
        """Give free space back to the disk; return the size of the log before and after.

        Commits wait for some milliseconds in the end, and the event loop never.

        Raises:
            StorageFailed: if that is not possible now; the log is as it was.
        """
        writer, log = self._open_writer(), self._log
        before = await to_thread.run_sync(disk_size, log.path)
        if not isinstance(log, CompactableLog):
            return before, before  # it compacts itself
        async with self._compacting:
            try:
                while not await writer.run(log.begin_compaction):
                    pass  # the thread deletes some after each job
                await to_thread.run_sync(log.write_compact_copy)
                await writer.run(log.finish_compaction)
            finally:
                with anyio.CancelScope(shield=True):
                    await writer.run(log.end_compaction)
        return before, await to_thread.run_sync(disk_size, log.path)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not await writer.stop():
            waited = f"its last commit took more than {STOP_SECONDS:g} s"
            raise StorageFailed(self._log.path, waited, "check the disk")
        # Bounded by one page read and the rest of the housekeeping.
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._log.close, limiter=self._reads)

    def _open_writer(self) -> GroupCommit:
        if self._writer is None:
            raise StorageFailed(self._log.path, "it is not open", "open it first")
        return self._writer

"""Group commit: one thread that writes, and callers who each wait for their own batch only.

While a commit runs, batches pile up; the next commit takes them all. A lone caller pays one commit,
a thousand callers share one. The thread sleeps in a queue, so nothing polls.

The thread is our own and answers by `call_soon_threadsafe`, against the house rule of `to_thread`:
one event stored and acknowledged costs 50 µs (60 µs of processor time) this way, 108 µs (120)
with `to_thread.run_sync`. `from_thread.run_sync` (63 µs) would make the writer wait for the loop.

A log whose commits do not wait for the disk is committed on the loop's own thread (`append_now`)
while the writer has nothing to do: two threads that take turns on one interpreter cost an agent's
stream half as much again. Housekeeping stays with the writer; so does everything for a while after
a commit that was slow.

When a commit fails, so does every batch that was handed over before its caller could know: a batch
that follows a lost one would otherwise be told of a gap that is not its fault.

A storage around a log with blocking calls: one thread writes it, another one reads it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import current_token

from quarterdeck.errors import LogGap, StorageFailed
from quarterdeck.storage.contract import Batch, SessionMeta, Stored

logger = logging.getLogger(__name__)

GROUP_RECORDS = 8_192
"""A group that has this many takes no further batch: nobody waits long for the others."""
SLOW_SECONDS = 0.05
"""A commit on the loop's thread that takes longer holds up everybody else."""
WARY_SECONDS = 1.0
"""How long after that commits are the writer's."""
STOP_SECONDS = 60.0
"""How long a stop waits for the last commit; only a dead disk or network share needs longer."""

_T = TypeVar("_T")


class Commits(Protocol):
    """What the thread does; calls come one at a time, nearly all from it."""

    @property
    def is_quick(self) -> bool:
        """Whether a commit does not wait for the disk."""
        ...

    @property
    def is_untidy(self) -> bool:
        """Whether `tidy` would have something to do."""
        ...

    def commit(self, batches: Sequence[Batch]) -> Sequence[LogGap | None]:
        """Store all batches in one commit but those that leave a gap; raises StorageFailed."""
        ...

    def tidy(self) -> bool:
        """Do a little housekeeping; return whether there is more to do."""
        ...


class _Loop(Protocol):
    """What we need of asyncio's loop."""

    def call_soon_threadsafe(self, callback: Callable[[Any], None], argument: Any) -> object: ...


class _Job(Generic[_T]):
    """Something the thread is to do and somebody waits for."""

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
        self.batch = tuple(batch)  # the caller may go on using its list
        self.failures_known = failures_known
        self.result = None


class _Errand(_Job[_T]):
    def __init__(self, run: Callable[[], _T]) -> None:
        super().__init__()
        self.run = run


class GroupCommit:
    """The thread, its queue and the way back to the event loop."""

    def __init__(self, commits: Commits, name: str) -> None:
        self._commits = commits
        self._jobs: queue.SimpleQueue[_Append | _Errand[Any] | None] = queue.SimpleQueue()
        self._loop = cast(_Loop, current_token().native_token)
        self._put_back: list[_Errand[Any] | None] = []
        self._handed = 0  # the loop's: jobs for the thread
        self._finished = -1  # the loop's: of them, when the thread has nothing else to do
        self._taken = 0  # the thread's
        self._wary_until = 0.0
        self._has_untidy = True  # whoever had the log before may have left some
        self._failures = 0  # the thread's
        self._failures_known = 0  # the loop's: how many it has heard of
        self._last_failure: Exception | None = None
        self._has_stopped = anyio.Event()
        # A daemon: a program that forgets to close its storage must still be able to end.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def append(self, batch: Batch) -> None:
        job = _Append(batch, self._failures_known)
        self._hand_over(job)
        await job.wait()

    def append_now(self, batch: Batch) -> bool:
        """Commit a batch on this thread if nobody has to wait for that; else return False.

        Raises:
            LogGap, StorageFailed: as `append`.
        """
        if self._finished != self._handed or not self._commits.is_quick:
            return False  # the thread has the log
        began = time.monotonic()
        if began < self._wary_until:
            return False
        (gap,) = self._commits.commit((batch,))
        ended = time.monotonic()
        if ended - began > SLOW_SECONDS:
            self._wary_until = ended + WARY_SECONDS
        if self._commits.is_untidy:
            self._hand_over(_Errand(lambda: None))  # it tidies up after each job
        if gap is not None:
            raise gap
        return True

    async def run(self, errand: Callable[[], _T]) -> _T:
        """Run something on the thread, after all that was handed over before."""
        job = _Errand(errand)
        self._hand_over(job)
        return await job.wait()

    async def stop(self) -> bool:
        """Store what was handed over and end the thread; return whether it ended in time."""
        self._jobs.put(None)
        with anyio.move_on_after(STOP_SECONDS, shield=True):
            await self._has_stopped.wait()
            self._thread.join()  # it has nothing left to do but to return
            return True
        return False

    def _hand_over(self, job: _Append | _Errand[Any]) -> None:
        self._handed += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while self._take_turn():
            pass  # nothing is held here: a batch must not outlive its commit
        self._call_loop(lambda _: self._has_stopped.set(), None)

    def _take_turn(self) -> bool:
        """Do what is next; return whether there may be more to come."""
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

    def _next_job(self) -> _Append | _Errand[Any] | None:
        """Wait for work; tidy up as long as there is some of that and nothing else."""
        if self._put_back:
            return self._put_back.pop()
        while self._has_untidy and self._jobs.empty():
            self._tidy()
        return self._jobs.get()

    def _group(self, first: _Append) -> list[_Append]:
        """Take what can be committed together with `first`."""
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
        except Exception as error:  # noqa: BLE001  # the edge of a thread: the callers get it
            self._failures += 1
            self._last_failure = _again(error)
            for job in current:
                job.failure = error
        else:
            for job, gap in zip(current, gaps, strict=True):
                job.failure = gap
        self._settle_soon(group, self._failures)

    def _do(self, job: _Errand[Any]) -> None:
        try:
            job.result = job.run()
        except Exception as error:  # noqa: BLE001  # the edge of a thread: the caller gets it
            job.failure = error
        self._settle_soon([job], None)

    def _settle_soon(self, jobs: Sequence[_Job[Any]], failures: int | None) -> None:
        self._has_untidy = self._commits.is_untidy
        finished = None if self._has_untidy else self._taken  # then the log is the loop's
        self._call_loop(self._settle, (jobs, failures, finished))

    def _tidy(self) -> None:
        self._has_untidy = self._tidy_a_little()
        if not self._has_untidy:
            self._call_loop(self._rest, self._taken)

    def _tidy_a_little(self) -> bool:
        try:
            return self._commits.tidy()
        except StorageFailed as error:
            # Nothing is lost by it, and the next commit meets the same disk.
            logger.warning("housekeeping of the log failed", extra={"reason": str(error)})
        except Exception:  # the edge of a thread: whoever waits for it must not wait for ever
            logger.exception("housekeeping of the log failed")
        return False

    def _call_loop(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop was closed without closing the storage
            logger.error("nobody is left to hear what the log has stored")  # noqa: TRY400

    def _rest(self, finished: int) -> None:
        """Know that the thread has done so many jobs and leaves the log alone; on the loop."""
        self._finished = finished

    def _settle(self, outcome: tuple[Sequence[_Job[Any]], int | None, int | None]) -> None:
        """Tell the callers; runs on the loop."""
        jobs, failures, finished = outcome
        if finished is not None:
            self._rest(finished)
        if failures is not None:
            self._failures_known = failures
        for job in jobs:
            job.is_done.set()
            if job.failure is not None and not job.is_awaited:
                reason = {"reason": str(job.failure)}
                logger.error("a batch that nobody waits for was not stored", extra=reason)


def _again(error: Exception) -> Exception:
    return error.again() if isinstance(error, StorageFailed) else error


class BlockingLog(Commits, Protocol):
    """A log on disk. `commit`, `tidy` and `forget` never run at the same time; reads may."""

    @property
    def path(self) -> Path: ...

    def open(self) -> None: ...

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]: ...

    def sessions(self) -> list[SessionMeta]: ...

    def forget(self, session_id: str) -> None:
        """Let the events of a session be gone from now on; `tidy` frees their space."""
        ...

    def close(self) -> None: ...


class ThreadedStorage:
    """All of `Storage` but the constructor."""

    def __init__(self, log: BlockingLog) -> None:
        self._log = log
        self._writer: GroupCommit | None = None
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

    async def sessions(self) -> list[SessionMeta]:
        self._open_writer()
        return await to_thread.run_sync(self._log.sessions, limiter=self._reads)

    async def delete_events(self, session_id: str) -> None:
        await self._open_writer().run(partial(self._log.forget, session_id))

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not await writer.stop():
            waited = f"its last commit takes more than {STOP_SECONDS:g} s"
            raise StorageFailed(self._log.path, waited, "check the disk")
        # Bounded by one page being read and the housekeeping that is left.
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._log.close, limiter=self._reads)

    def _open_writer(self) -> GroupCommit:
        if self._writer is None:
            raise StorageFailed(self._log.path, "it is not open", "open it first")
        return self._writer

"""The journal by itself, where the order of two steps of the loop decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.host.log.journal import HIGH_WATER, Entry, Journal
from quarterdeck.storage import MemoryStorage, SessionMeta, Stored

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


FULL = StorageFailed("log", "the disk is full", "make room")


class CollectingPublisher:
    def __init__(self) -> None:
        self.published: list[Any] = []
        self.has_published = anyio.Event()

    def publish(self, items: Sequence[Any]) -> None:
        self.published += items
        if 1 in items:
            self.has_published.set()


class BusyStorage(MemoryStorage):
    """Cannot store in the same step while `is_busy`; each `append` waits to be released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = True
        self.outcomes: list[StorageFailed | None] = []
        """What becomes of the next appends, the first one first; after these they wait."""
        self.changed = anyio.Event()

    def let(self, *outcomes: StorageFailed | None) -> None:
        self.outcomes += outcomes
        self.changed.set()
        self.changed = anyio.Event()

    @override
    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        return False if self.is_busy else super().append_now(batch)

    @override
    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        while not self.outcomes:
            await self.changed.wait()
        failure = self.outcomes.pop(0)
        if failure is not None:
            raise failure
        super().append_now(batch)


class Bench:
    """A journal on a busy storage, with one publisher."""

    def __init__(self) -> None:
        self.storage = BusyStorage()
        self.publisher = CollectingPublisher()
        self.journal = Journal(self.storage, self._report)
        self._seq = 0

    def entry(self) -> Entry:
        self._seq += 1
        return (Stored("s", self._seq, b"{}"), self.publisher, self._seq)

    def _report(self, _error: StorageFailed) -> None:
        self.journal.publish_now((None, self.publisher, "failed"))


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.storage.open()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.journal.work)
            await anyio.wait_all_tasks_blocked()
            try:
                yield made
            finally:  # `work` cannot be cancelled
                made.storage.let(None, None)
                made.journal.end()


async def test_waiting_does_not_count_the_report_of_a_failure() -> None:
    async with bench() as it, anyio.create_task_group() as tasks:
        it.journal.write(it.entry())
        await anyio.wait_all_tasks_blocked()  # the first is being stored
        it.journal.write(it.entry())
        settled = anyio.Event()

        async def settle() -> None:
            await it.journal.wait_stored()
            settled.set()

        tasks.start_soon(settle)
        await anyio.wait_all_tasks_blocked()
        it.storage.let(FULL, None)
        await it.publisher.has_published.wait()
        await anyio.wait_all_tasks_blocked()
        assert it.publisher.published == ["failed", 1]
        assert not settled.is_set()
        it.storage.let(None)
        await settled.wait()
        assert it.publisher.published == ["failed", 1, 2]


async def test_a_stopped_reader_continues_when_another_step_has_stored_everything() -> None:
    async with bench() as it:
        for _ in range(HIGH_WATER):
            it.journal.enqueue(it.entry())
        it.journal.commit_and_publish()
        relief = it.journal.back_pressure()
        assert relief is not None
        it.storage.is_busy = False
        it.journal.write(it.entry())  # in the same step, before `work` was woken
        assert len(it.publisher.published) == HIGH_WATER + 1
        await relief.wait()

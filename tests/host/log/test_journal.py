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


class Listener:
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.has_heard_one = anyio.Event()

    def publish(self, things: Sequence[Any]) -> None:
        self.heard += things
        if 1 in things:
            self.has_heard_one.set()


class BusyStorage(MemoryStorage):
    """Cannot store in the same step while `is_busy`; each `append` waits to be let go."""

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
    """A journal on a busy storage, and somebody who listens."""

    def __init__(self) -> None:
        self.storage = BusyStorage()
        self.listener = Listener()
        self.journal = Journal(self.storage, self._tell)
        self._seq = 0

    def entry(self) -> Entry:
        self._seq += 1
        return (Stored("s", self._seq, b"{}"), self.listener, self._seq)

    def _tell(self, _error: StorageFailed) -> None:
        self.journal.publish_now((None, self.listener, "failed"))


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.storage.open()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.journal.run)
            await anyio.wait_all_tasks_blocked()
            try:
                yield made
            finally:  # `run` cannot be cancelled
                made.storage.let(None, None)
                made.journal.end()


async def test_news_of_a_failure_does_not_count_as_something_that_was_waited_for() -> None:
    async with bench() as it, anyio.create_task_group() as tasks:
        it.journal.write(it.entry())
        await anyio.wait_all_tasks_blocked()  # the first is being stored
        it.journal.write(it.entry())
        settled = anyio.Event()

        async def settle() -> None:
            await it.journal.settled()
            settled.set()

        tasks.start_soon(settle)
        await anyio.wait_all_tasks_blocked()
        it.storage.let(FULL, None)
        await it.listener.has_heard_one.wait()
        await anyio.wait_all_tasks_blocked()
        assert it.listener.heard == ["failed", 1]
        assert not settled.is_set()
        it.storage.let(None)
        await settled.wait()
        assert it.listener.heard == ["failed", 1, 2]


async def test_whoever_was_stopped_goes_on_when_another_step_has_stored_everything() -> None:
    async with bench() as it:
        for _ in range(HIGH_WATER):
            it.journal.enqueue(it.entry())
        it.journal.commit_and_publish()
        relief = it.journal.back_pressure()
        assert relief is not None
        it.storage.is_busy = False
        it.journal.write(it.entry())  # in the same step, before `run` was woken
        assert len(it.listener.heard) == HIGH_WATER + 1
        await relief.wait()

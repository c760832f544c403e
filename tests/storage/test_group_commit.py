from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import pytest

from quarterdeck.errors import LogGap, StorageFailed
from quarterdeck.storage.contract import Batch, Group
from quarterdeck.storage.group_commit import GROUP_RECORDS, GroupCommit
from tests.storage.support import run_of, stored

AGES = 3600.0  # seconds, so that no test depends on how long a commit takes


class HeldCommits:
    """Keeps what it gets; every commit waits until it is released."""

    def __init__(self) -> None:
        self.groups: list[list[Batch]] = []
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.fails = False
        self.untidy = 0
        self.tidies: Callable[[], object] = lambda: None
        self.is_quick = False
        self.is_untidy = True
        self._last_seqs: dict[str, int] = {}

    def commit(self, batches: Sequence[Batch]) -> list[LogGap | None]:
        self.has_begun.release()
        assert self.may_end.acquire(timeout=30)
        if self.fails:
            raise StorageFailed("log", "the disk is full", "make room")
        group = Group(lambda session_id: self._last_seqs.get(session_id, 0))
        gaps = [group.offer(batch) for batch in batches]
        self._last_seqs |= group.last_seqs
        self.groups.append(list(batches))
        return gaps

    def tidy(self) -> bool:
        self.tidies()
        self.untidy -= 1
        return self.untidy > 0


@pytest.fixture
def commits() -> HeldCommits:
    return HeldCommits()


@pytest.fixture
async def writer(commits: HeldCommits) -> AsyncIterator[GroupCommit]:
    writer = GroupCommit(commits, "test")
    yield writer
    commits.may_end.release(100)
    await writer.stop()


async def begun(commits: HeldCommits) -> None:
    """Return when the thread is inside a commit."""
    assert await anyio.to_thread.run_sync(commits.has_begun.acquire, True, 30)


async def test_what_arrives_during_a_commit_is_committed_together(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [stored("s", 1)])
        await begun(commits)
        for seq in range(2, 51):
            tasks.start_soon(writer.append, [stored("s", seq)])
        await anyio.lowlevel.checkpoint()
        commits.may_end.release(2)
    assert [len(group) for group in commits.groups] == [1, 49]


async def test_a_group_takes_no_more_when_it_is_large(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [])
        await begun(commits)
        tasks.start_soon(writer.append, run_of("s", 1, GROUP_RECORDS - 1))
        tasks.start_soon(writer.append, run_of("t", 1, 10))
        tasks.start_soon(writer.append, run_of("u", 1, 10))
        await anyio.lowlevel.checkpoint()
        commits.may_end.release(3)
    assert [len(group) for group in commits.groups] == [1, 2, 1]


async def test_a_caller_waits_for_its_own_commit_only(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    returned: list[str] = []

    async def append(session_id: str) -> None:
        await writer.append([stored(session_id, 1)])
        returned.append(session_id)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, "a")
        await begun(commits)
        tasks.start_soon(append, "b")
        await anyio.lowlevel.checkpoint()
        commits.may_end.release()
        await begun(commits)
        await anyio.wait_all_tasks_blocked()
        assert returned == ["a"]
        commits.may_end.release()
    assert returned == ["a", "b"]


async def test_a_cancelled_batch_is_stored_whole(commits: HeldCommits, writer: GroupCommit) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, run_of("s", 1, 9))
        await begun(commits)
        tasks.start_soon(writer.append, run_of("s", 10, 12))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    commits.may_end.release(3)
    await writer.append([stored("s", 13)])
    assert [len(batch) for group in commits.groups for batch in group] == [9, 3, 1]


async def test_a_failure_takes_what_was_handed_over_before_it_was_known_with_it(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    """Batch 2 follows batch 1: if that one is lost, "there is a gap" would be the wrong answer."""
    failures: list[str] = []

    async def append(seq: int) -> None:
        try:
            await writer.append([stored("s", seq)])
        except StorageFailed as error:
            failures.append(f"{seq}: {error.reason}")

    commits.fails = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, 1)
        await begun(commits)
        tasks.start_soon(append, 2)
        await anyio.lowlevel.checkpoint()
        commits.may_end.release()
    assert failures == ["1: the disk is full", "2: the disk is full"]
    commits.fails = False
    commits.may_end.release(2)
    await writer.append([stored("s", 1)])
    await writer.append([stored("s", 2)])


async def test_a_failure_without_a_waiting_caller_is_logged(
    commits: HeldCommits, writer: GroupCommit, caplog: pytest.LogCaptureFixture
) -> None:
    commits.fails = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [stored("s", 1)])
        await begun(commits)
        tasks.cancel_scope.cancel()
    with caplog.at_level(logging.ERROR):
        commits.may_end.release()
        await writer.run(lambda: None)
    assert [record.message for record in caplog.records] == [
        "a batch of a cancelled caller was not stored"
    ]


async def test_a_task_runs_after_what_was_handed_over_before(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    commits.may_end.release(2)
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.append, [stored("s", 1)])
        tasks.start_soon(writer.run, lambda: seen.append(len(commits.groups)))
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(writer.append, [stored("s", 2)])
    assert seen == [1]


async def test_a_task_returns_its_result_or_its_error(writer: GroupCommit) -> None:
    assert await writer.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await writer.run(lambda: 1 / 0)


async def test_housekeeping_continues_while_there_is_nothing_to_write(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    commits.untidy = 50
    commits.may_end.release()
    await writer.append([stored("s", 1)])
    with anyio.fail_after(30):
        while commits.untidy > 0:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("error", [StorageFailed("log", "full", "make room"), KeyError("bug")])
async def test_housekeeping_that_fails_is_logged_and_stops_nothing(
    commits: HeldCommits, writer: GroupCommit, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail() -> None:
        raise error

    commits.tidies = fail
    commits.may_end.release(2)
    await writer.append([stored("s", 1)])
    await writer.append([stored("s", 2)])
    assert "housekeeping of the log failed" in caplog.messages


async def test_a_mistake_of_ours_reaches_the_caller_and_the_thread_lives_on(
    commits: HeldCommits, writer: GroupCommit
) -> None:
    commits.may_end.release(2)
    with pytest.raises(AttributeError):
        await writer.append(["not a record"])  # type: ignore[list-item]  # the mistake
    await writer.append([stored("s", 1)])
    assert len(commits.groups) == 1


# ---- commits on the thread of the caller -------------------------------------------------


class QuickCommits:
    """Commits at once, wherever it is called, and knows on which thread that was."""

    def __init__(self) -> None:
        self.is_quick = True
        self.is_untidy = False
        self.threads: list[int] = []
        self.failure: StorageFailed | None = None
        self.tidied = threading.Semaphore(0)
        self.may_tidy = threading.Semaphore(0)
        self._last_seqs: dict[str, int] = {}

    def commit(self, batches: Sequence[Batch]) -> list[LogGap | None]:
        if self.failure is not None:
            raise self.failure
        group = Group(lambda session_id: self._last_seqs.get(session_id, 0))
        gaps = [group.offer(batch) for batch in batches]
        self._last_seqs |= group.last_seqs
        self.threads.append(threading.get_ident())
        return gaps

    def tidy(self) -> bool:
        if self.is_untidy:
            self.tidied.release()
            assert self.may_tidy.acquire(timeout=30)
            self.is_untidy = False
        return False


@pytest.fixture
def quick() -> QuickCommits:
    return QuickCommits()


@pytest.fixture
async def idle(quick: QuickCommits, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupCommit]:
    monkeypatch.setattr("quarterdeck.storage.group_commit.SLOW_SECONDS", AGES)
    writer = GroupCommit(quick, "test")
    await writer.run(lambda: None)
    yield writer
    quick.may_tidy.release(100)
    await writer.stop()


async def test_a_quick_commit_is_made_on_the_loop(quick: QuickCommits, idle: GroupCommit) -> None:
    assert idle.append_now([stored("s", 1)])
    assert quick.threads == [threading.get_ident()]


async def test_what_is_not_quick_is_left_to_the_thread(
    quick: QuickCommits, idle: GroupCommit
) -> None:
    quick.is_quick = False
    assert not idle.append_now([stored("s", 1)])
    assert quick.threads == []


async def test_nothing_overtakes_what_was_handed_to_the_thread(
    quick: QuickCommits, idle: GroupCommit
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(idle.append, [stored("s", 1)])
        await anyio.lowlevel.checkpoint()
        assert not idle.append_now([stored("s", 2)])
    assert idle.append_now([stored("s", 2)])
    assert len(quick.threads) == 2
    assert quick.threads[0] != quick.threads[1] == threading.get_ident()


async def test_the_log_is_the_threads_while_it_tidies_up(
    quick: QuickCommits, idle: GroupCommit
) -> None:
    quick.is_untidy = True
    assert idle.append_now([stored("s", 1)])
    assert await anyio.to_thread.run_sync(quick.tidied.acquire, True, 30)
    assert not idle.append_now([stored("s", 2)])
    quick.may_tidy.release()
    with anyio.fail_after(30):
        while not idle.append_now([stored("s", 2)]):
            await anyio.lowlevel.checkpoint()


async def test_after_a_slow_commit_the_thread_commits_for_a_while(
    idle: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.storage.group_commit.SLOW_SECONDS", -1)  # whatever it takes
    monkeypatch.setattr("quarterdeck.storage.group_commit.WARY_SECONDS", AGES)
    assert idle.append_now([stored("s", 1)])
    assert not idle.append_now([stored("s", 2)])


async def test_a_failed_commit_fails_its_caller_and_nothing_else(
    quick: QuickCommits, idle: GroupCommit
) -> None:
    quick.failure = StorageFailed("log", "the disk is full", "make room")
    with pytest.raises(StorageFailed, match="the disk is full"):
        idle.append_now([stored("s", 1)])
    quick.failure = None
    with pytest.raises(LogGap):
        idle.append_now([stored("s", 2)])
    assert idle.append_now([stored("s", 1)])
    await idle.append([stored("s", 2)])

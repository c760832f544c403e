"""What every storage does (DESIGN INV-1, INV-5), and what every durable one does on top."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from quarterdeck.errors import LogGap, StorageFailed
from quarterdeck.protocol import decode_event
from quarterdeck.storage import ImmediateStorage, SessionMeta, Storage, jsonl, memory, sqlite_rows
from quarterdeck.storage.contract import Record
from tests.storage.support import (
    ANY_STORAGE,
    DURABLE,
    last_seqs,
    meta,
    opened,
    run_of,
    seqs,
    stored,
)


@pytest.fixture(params=ANY_STORAGE)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    async with opened(ANY_STORAGE[request.param](tmp_path)) as storage:
        yield storage


async def test_what_was_appended_is_read_as_the_same_bytes(storage: Storage) -> None:
    events = run_of("s", 1, 3)
    await storage.append(events)
    assert await storage.read("s", 0, 10) == [event.data for event in events]


async def test_pages_follow_each_other_without_gap_or_repetition(storage: Storage) -> None:
    await storage.append(run_of("s", 1, 25))
    assert await seqs(storage, "s", page=7) == list(range(1, 26))


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [
        (0, 2, [1, 2]),
        (2, 2, [3, 4]),
        (4, 10, [5]),
        (5, 10, []),
        (99, 10, []),
        (0, 0, []),
    ],
)
async def test_a_page_begins_after_the_seq_and_ends_at_the_limit(
    storage: Storage, after: int, limit: int, expected: list[int]
) -> None:
    await storage.append(run_of("s", 1, 5))
    page = await storage.read("s", after, limit)
    assert [decode_event(event).seq for event in page] == expected


async def test_a_page_of_large_events_is_bounded_by_bytes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 300_000
    for module in (sqlite_rows, jsonl, memory):
        monkeypatch.setattr(module, "MOST_PAGE_BYTES", most)
    large = most // 3
    for seq in range(1, 12):
        await storage.append([stored("s", seq, "x" * (large if seq % 4 else 10))])
    await storage.append([stored("s", 12, "x" * 2 * most)])
    after, found = 0, []
    while page := await storage.read("s", after, 5_000):
        assert sum(map(len, page[:-1])) < most
        found += [decode_event(event).seq for event in page]
        after = found[-1]
    assert found == list(range(1, 13))


async def test_an_unknown_session_has_no_events(storage: Storage) -> None:
    assert await storage.read("nobody", 0, 10) == []


async def test_sessions_mixed_in_one_batch_are_kept_apart(storage: Storage) -> None:
    mixed: list[Record] = [
        stored("a", 1),
        stored("b", 1),
        meta("a"),
        stored("a", 2),
        stored("b", 2),
    ]
    await storage.append(mixed)
    assert await seqs(storage, "a") == [1, 2]
    assert await seqs(storage, "b") == [1, 2]


async def test_interleaved_sessions_are_read_each_in_order(storage: Storage) -> None:
    for seq in range(1, 40):
        await storage.append([stored("a", seq, "x" * 9_000), stored("b", seq)])
    assert await seqs(storage, "a", page=5) == list(range(1, 40))
    assert await seqs(storage, "b", page=5) == list(range(1, 40))


async def test_sessions_are_listed_in_order_of_first_appearance(storage: Storage) -> None:
    await storage.append([meta("b"), stored("c", 1)])
    await storage.append([meta("a"), meta("c"), meta("b", "changed")])
    assert [session.session_id for session in await storage.sessions()] == ["b", "c", "a"]


async def test_a_session_is_listed_with_its_last_meta_and_its_last_seq(storage: Storage) -> None:
    first = SessionMeta(
        session_id="s",
        agent_definition_id="claude",
        cwd="/work",
        mcp_servers=({"name": "files", "command": "x", "args": []},),
        additional_directories=("/more",),
        title="old",
        updated_at=None,
    )
    await storage.append([first, *run_of("s", 1, 3)])
    assert await storage.sessions() == [_with(first, last_seq=3)]
    second = _with(first, title=None, lifecycle="closed")
    await storage.append([second])
    assert await storage.sessions() == [_with(second, last_seq=3)]


async def test_a_session_without_a_meta_is_listed_all_the_same(storage: Storage) -> None:
    await storage.append([stored("s", 1)])
    assert await storage.sessions() == [SessionMeta(session_id="s", cwd="", last_seq=1)]


async def test_the_last_seq_of_a_meta_that_is_given_is_ignored(storage: Storage) -> None:
    await storage.append([_with(meta("s"), last_seq=70), stored("s", 1)])
    assert await last_seqs(storage) == {"s": 1}


@pytest.mark.parametrize("numbers", [[2], [0], [1, 3], [1, 1], [1, 2, 2], [-1]])
async def test_inv_1_a_gap_is_refused_and_nothing_of_its_batch_is_stored(
    storage: Storage, numbers: list[int]
) -> None:
    await storage.append([stored("other", 1)])
    with pytest.raises(LogGap):
        await storage.append([stored("other", 2), *(stored("s", seq) for seq in numbers)])
    assert await last_seqs(storage) == {"other": 1}
    assert await seqs(storage, "other") == [1]
    await storage.append([stored("s", 1), stored("other", 2)])


async def test_a_gap_names_the_expected_seq(storage: Storage) -> None:
    await storage.append([stored("s", 1)])
    with pytest.raises(LogGap, match="the next event of 's' must be 2, not 3") as caught:
        await storage.append([stored("s", 3)])
    assert (caught.value.session_id, caught.value.expected, caught.value.seq) == ("s", 2, 3)


async def test_an_event_cannot_be_stored_twice(storage: Storage) -> None:
    await storage.append([stored("s", 1, "first")])
    with pytest.raises(LogGap):
        await storage.append([stored("s", 1, "second")])
    assert await storage.read("s", 0, 9) == [stored("s", 1, "first").data]


async def test_an_empty_batch_is_stored_at_once(storage: Storage) -> None:
    await storage.append([])
    assert await storage.sessions() == []


async def test_a_batch_of_ten_thousand_is_stored_whole(storage: Storage) -> None:
    await storage.append([meta("s"), *run_of("s", 1, 10_000)])
    assert await seqs(storage, "s") == list(range(1, 10_001))


async def test_concurrent_appends_keep_the_order_of_each_caller(storage: Storage) -> None:
    async def write(session_id: str) -> None:
        for first in range(1, 60, 3):
            await storage.append(run_of(session_id, first, first + 2))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(16):
                tasks.start_soon(write, f"s{number}")
    for number in range(16):
        assert await seqs(storage, f"s{number}") == list(range(1, 61))


async def test_appends_that_do_not_wait_are_stored_in_the_order_of_the_calls(
    storage: Storage,
) -> None:
    async with anyio.create_task_group() as tasks:
        for seq in range(1, 201):
            tasks.start_soon(storage.append, [stored("s", seq)])
    assert await seqs(storage, "s") == list(range(1, 201))


async def test_a_gap_of_one_caller_does_not_touch_the_others(storage: Storage) -> None:
    refused: list[LogGap] = []

    async def leave_a_gap() -> None:
        try:
            await storage.append([stored("bad", 2)])
        except LogGap as gap:
            refused.append(gap)

    async with anyio.create_task_group() as tasks:
        for seq in range(1, 20):
            tasks.start_soon(storage.append, [stored("good", seq)])
            tasks.start_soon(leave_a_gap)
    assert await last_seqs(storage) == {"good": 19}
    assert len(refused) == 19


async def test_a_cancelled_caller_leaves_a_whole_batch_or_none(storage: Storage) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.append, run_of("s", 1, 500))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await storage.append([meta("other")])  # whatever was under way is over after this
    found = await seqs(storage, "s")
    assert found in ([], list(range(1, 501)))
    await storage.append([stored("s", len(found) + 1)])


async def test_a_batch_is_what_it_was_when_it_was_handed_over(storage: Storage) -> None:
    batch = run_of("s", 1, 3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(storage.append, batch)
        await anyio.lowlevel.checkpoint()
        batch.clear()
    assert await seqs(storage, "s") == [1, 2, 3]


@pytest.mark.parametrize(
    "text", ["naïve 🙂 日本", "\ud83d", "a\u2028b\r\nc\x00d", '"\\{}'], ids=ascii
)
async def test_awkward_text_survives_in_events_metas_and_names(storage: Storage, text: str) -> None:
    event = stored(f"s{text}", 1, text)
    await storage.append([meta(f"s{text}", text), event])
    assert await storage.read(f"s{text}", 0, 9) == [event.data]
    assert await storage.sessions() == [_with(meta(f"s{text}", text), last_seq=1)]


async def test_deleted_events_are_gone_and_the_numbering_continues(storage: Storage) -> None:
    await storage.append([meta("s"), *run_of("s", 1, 5), meta("t"), stored("t", 1)])
    await storage.append([_with(meta("s"), lifecycle="deleted")])
    await storage.delete_events("s")
    assert await seqs(storage, "s") == []
    assert await storage.sessions() == [
        _with(meta("s"), lifecycle="deleted", last_seq=5),
        _with(meta("t"), last_seq=1),
    ]
    with pytest.raises(LogGap):
        await storage.append([stored("s", 1)])
    await storage.append(run_of("s", 6, 7))
    assert await seqs(storage, "s") == [6, 7]
    assert await last_seqs(storage) == {"s": 7, "t": 1}


async def test_appending_now_or_later_gives_one_log(storage: Storage) -> None:
    """Whether it can in this step is the storage's affair; the order is not."""
    assert isinstance(storage, ImmediateStorage)
    for seq in range(1, 301):
        if seq % 7 == 0 or not storage.append_now([stored("s", seq)]):
            await storage.append([stored("s", seq)])
        if seq == 150:
            await storage.delete_events("s")
    assert await seqs(storage, "s") == list(range(151, 301))


async def test_deleting_the_events_of_an_unknown_session_does_nothing(storage: Storage) -> None:
    await storage.delete_events("nobody")
    await storage.append([meta("s")])
    await storage.delete_events("s")
    assert await last_seqs(storage) == {"s": 0}


async def test_events_can_be_deleted_again_and_again(storage: Storage) -> None:
    for seq in range(1, 5):
        await storage.append([stored("s", seq)])
        await storage.delete_events("s")
        await storage.delete_events("s")
        assert await seqs(storage, "s") == []
    assert await last_seqs(storage) == {"s": 4}


async def test_opening_and_closing_twice_changes_nothing(storage: Storage) -> None:
    await storage.open()
    await storage.append([stored("s", 1)])
    await storage.open()
    assert await seqs(storage, "s") == [1]
    await storage.close()
    await storage.close()


async def test_a_closed_storage_raises_and_can_be_opened_again(storage: Storage) -> None:
    await storage.append(run_of("s", 1, 2))
    await storage.close()
    with pytest.raises(StorageFailed, match="not open"):
        await storage.append([stored("s", 3)])
    with pytest.raises(StorageFailed, match="not open"):
        await storage.read("s", 0, 1)
    with pytest.raises(StorageFailed, match="not open"):
        await storage.sessions()
    with pytest.raises(StorageFailed, match="not open"):
        await storage.delete_events("s")
    await storage.open()
    await storage.append([stored("s", 3)])
    assert await seqs(storage, "s") == [1, 2, 3]


async def test_a_session_is_read_while_it_is_written(storage: Storage) -> None:
    """INV-2 needs it: a late subscriber reads pages until it has caught up with the live stream."""

    async def write() -> None:
        for first in range(1, 2_001, 20):
            await storage.append(run_of("s", first, first + 19))

    read: list[int] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while len(read) < 2_000:
                page = await storage.read("s", len(read), 100)
                read += [decode_event(event).seq for event in page]
                await anyio.lowlevel.checkpoint()
    assert read == list(range(1, 2_001))


async def test_an_immediate_storage_reads_in_the_same_step_and_others_raise(
    storage: Storage,
) -> None:
    await storage.append([stored("s", 1), stored("s", 2), stored("s", 3)])
    if storage.is_immediate:
        assert storage.read_now("s", 1, 1) == await storage.read("s", 1, 1)
    else:
        with pytest.raises(StorageFailed, match="await read instead"):
            storage.read_now("s", 1, 1)


def test_only_memory_is_immediate(tmp_path: Path) -> None:
    waiting = [name for name, make in ANY_STORAGE.items() if not make(tmp_path).is_immediate]
    assert waiting == DURABLE


def test_only_memory_is_not_durable(tmp_path: Path) -> None:
    durable = [name for name, make in ANY_STORAGE.items() if make(tmp_path).is_durable]
    assert durable == DURABLE


# ---- durable storages -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DURABLE)
async def test_everything_is_there_for_the_next_process(kind: str, tmp_path: Path) -> None:
    async with opened(ANY_STORAGE[kind](tmp_path)) as storage:
        await storage.append([meta("b", "Büro"), *run_of("b", 1, 30), stored("a", 1), meta("a")])
        await storage.append([_with(meta("c"), lifecycle="closed"), *run_of("c", 1, 4)])
        await storage.delete_events("c")
        before = await storage.sessions()
    async with opened(ANY_STORAGE[kind](tmp_path)) as storage:
        assert await storage.sessions() == before
        assert await storage.read("b", 0, 99) == [event.data for event in run_of("b", 1, 30)]
        assert await seqs(storage, "c") == []
        with pytest.raises(LogGap):
            await storage.append([stored("b", 1)])
        await storage.append([stored("b", 31), stored("c", 5)])
        assert await seqs(storage, "c") == [5]


@pytest.mark.parametrize("kind", DURABLE)
async def test_what_was_handed_over_before_closing_is_stored(kind: str, tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks, opened(ANY_STORAGE[kind](tmp_path)) as storage:
        for seq in range(1, 101):
            tasks.start_soon(storage.append, [stored("s", seq)])
        await anyio.lowlevel.checkpoint()
    async with opened(ANY_STORAGE[kind](tmp_path)) as storage:
        assert await seqs(storage, "s") == list(range(1, 101))


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_inv_8_memory_does_not_grow_with_the_events(kind: str, tmp_path: Path) -> None:
    in_use: list[int] = []
    async with opened(ANY_STORAGE[kind](tmp_path)) as storage:
        tracemalloc.start()
        try:
            for first in range(1, 11_000, 1_000):
                await storage.append(run_of("s", first, first + 999, "x" * 1_000))
                await storage.read("s", first, 1_000)
                await storage.read("s", first, 1)  # the worker thread keeps its last page
                await storage.delete_events("nobody")  # after it the writer has released its batch
                in_use.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert in_use[-1] - in_use[1] < 100_000  # 9 MB were stored in between


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_log_is_for_its_owner_only(kind: str, tmp_path: Path) -> None:
    async with opened(ANY_STORAGE[kind](tmp_path / "new" / "folder")) as storage:
        await storage.append([stored("s", 1)])
        files = list((tmp_path / "new" / "folder").iterdir())
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def _with(session: SessionMeta, **changes: object) -> SessionMeta:
    return replace(session, **changes)

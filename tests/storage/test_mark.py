"""The high-water mark: what was noted is what the next process reads, whatever is beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import LogDamaged
from quarterdeck.storage import SqliteStorage
from quarterdeck.storage.mark import MOST_SLOTS, LogMark, Slot
from tests.storage.support import full_disk, last_seqs, meta, opened, run_of, seqs, stored

numbers = st.one_of(st.integers(0, 40), st.integers(0, 3_000))
slots = st.builds(Slot, st.integers(0, 2**63), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
commits = st.lists(st.dictionaries(numbers, slots, max_size=20), max_size=6)


@given(first=st.dictionaries(numbers, slots, max_size=20), noted=commits)
def test_every_slot_that_was_noted_is_read_and_no_other(
    first: dict[int, Slot], noted: list[dict[int, Slot]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("mark") / "log.db"
    log.touch()
    mark = LogMark(log)
    mark.begin("l00000000", 1, first.items())
    for group in noted:
        mark.note(list(group.items()))
    expected = dict(first)
    for group in noted:
        expected |= group
    assert LogMark(log).read().slots == expected  # as after a kill: it was not closed
    mark.close(is_clean=True)
    reading = LogMark(log).read()
    assert reading.slots == expected
    assert not reading.doubt


@pytest.mark.parametrize("number", [-1, -(2**40), MOST_SLOTS, 2**40, 2**62])
def test_a_number_that_is_no_place_in_the_file_costs_its_slot_only(
    number: int, tmp_path: Path
) -> None:
    log, slot = tmp_path / "log.db", Slot(7, 8, 9)
    log.touch()
    mark = LogMark(log)
    mark.begin("l00000000", 1, {number: slot, 1: slot}.items())
    mark.note([(2, slot), (number, slot)])
    mark.close(is_clean=True)
    assert LogMark(log).read().slots == {1: slot, 2: slot}
    assert mark.path.stat().st_size < 10_000


def test_a_full_disk_leaves_no_part_of_a_mark(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    log.touch()
    mark = LogMark(log)
    with full_disk(4_096):
        mark.begin("l00000000", 1, ((number, Slot(1, 2)) for number in range(1_000)))
    mark.note([(1, Slot(2, 2))])  # never fails
    mark.close(is_clean=True)
    assert LogMark(log).read().doubt == "it has no high-water mark"


@pytest.mark.parametrize("number", [-3, 2**40, MOST_SLOTS + 5, 2**62])
async def test_a_record_whose_number_was_damaged_costs_its_session_only(
    number: int, tmp_path: Path
) -> None:
    path = tmp_path / "log.db"
    async with opened(SqliteStorage(path)) as storage:
        for session_id in ("s", "t"):
            await storage.append([meta(session_id), *run_of(session_id, 1, 5)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sessions SET id = ? WHERE session_id = 't'", (number,))
    for seq in (6, 7):
        async with opened(SqliteStorage(path)) as storage:
            assert storage.damages
            with pytest.raises(LogDamaged):
                await storage.read("t", 0, 10)
            await storage.append([stored("s", seq), *run_of(f"new-{seq}", 1, 3)])
            assert await seqs(storage, "s") == list(range(1, seq + 1))
            assert await seqs(storage, f"new-{seq}") == [1, 2, 3]
    assert (path.with_name("log.db.mark")).stat().st_size < 10_000


async def test_events_of_a_session_whose_record_is_gone_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(SqliteStorage(path)) as storage:
        await storage.append([meta("s"), *run_of("s", 1, 3), meta("t"), *run_of("t", 1, 3)])
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM sessions WHERE session_id = 's'")
        await storage.append([stored("s", 4), stored("t", 4)])
        assert await seqs(storage, "s") == [1, 2, 3, 4]
        assert await seqs(storage, "t") == [1, 2, 3, 4]
    async with opened(SqliteStorage(path)) as storage:
        assert [each.session_id for each in storage.damages] == ["s"]  # its facts are gone
        assert await last_seqs(storage) == {"s": 4, "t": 4}
        assert await seqs(storage, "t") == [1, 2, 3, 4]

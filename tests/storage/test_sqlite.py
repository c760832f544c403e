# ruff: noqa: ASYNC240  # a test may wait for its own disk
from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import StorageFailed, StorageRefused
from quarterdeck.protocol import decode_event
from quarterdeck.storage import SqliteStorage, Stored
from quarterdeck.storage.contract import Record
from quarterdeck.storage.integrity import meta_checksum
from quarterdeck.storage.sqlite_rows import RECORDS, read_record
from tests.storage.support import (
    full_disk,
    last_seqs,
    meta,
    opened,
    run_of,
    seqs,
    stored,
    unwritable_folder,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def log(path: Path) -> Path:
    """A log that was closed properly, with something in it."""
    async with opened(SqliteStorage(path)) as storage:
        await storage.append([meta("s"), *run_of("s", 1, 500, "x" * 200)])
    return path


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def seal_records(path: Path) -> None:
    """Give the records of sessions the checksums of their new content."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for row in connection.execute(RECORDS).fetchall():
            head = read_record((*row[:5], None)).head
            checksum = head._replace(meta=meta_checksum(row[2])).checksum
            connection.execute("UPDATE sessions SET checksum = ? WHERE id = ?", (checksum, row[0]))


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_inside_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def scribble_over_the_first_page(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xa5" * 8000 + content[8100:])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (
        lambda path: path.write_text("Dear diary, nothing happened."),
        "not a SQLite database",
    ),
    "one byte": (lambda path: path.write_bytes(b"x"), "not a SQLite database"),
    "half": (cut_in_half, "it is damaged .*; recover the intact data with `quarterdeck repair`"),
    "header only": (
        cut_inside_the_header,
        "it is damaged .*; recover the intact data with `quarterdeck repair`",
    ),
    "scribbled": (
        scribble_over_the_first_page,
        "it is damaged .*; recover the intact data with `quarterdeck repair`",
    ),
    "newer": (
        lambda path: edit(path, "PRAGMA user_version=99"),
        r"a newer Quarterdeck wrote it \(format 99, this one knows 2\); upgrade Quarterdeck",
    ),
    "not ours": (
        lambda path: edit(path, "PRAGMA application_id=7"),
        "it belongs to another program; choose another path",
    ),
    "unmarked": (
        lambda path: edit(path, "PRAGMA application_id=0"),
        "it belongs to another program; choose another path",
    ),
    "a table less": (lambda path: edit(path, "DROP TABLE events"), "a table is missing"),
}


@pytest.mark.parametrize("change", REFUSED)
async def test_what_is_not_a_sound_log_of_ours_is_refused_and_not_touched(
    log: Path, change: str
) -> None:
    make, sentence = REFUSED[change]
    make(log)
    content = log.read_bytes()
    for _ in range(2):
        with pytest.raises(StorageRefused, match=sentence):
            await SqliteStorage(log).open()
    assert log.read_bytes() == content


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="it is a folder; name a file in it"):
        await SqliteStorage(tmp_path).open()


async def test_a_path_through_a_file_is_refused(log: Path) -> None:
    with pytest.raises(StorageRefused, match="check its disk and that this user may write there"):
        await SqliteStorage(log / "log.db").open()


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="check its disk and that this user may write there"):
        await SqliteStorage(unwritable_folder(tmp_path) / "log.db").open()


async def test_a_second_storage_on_the_same_file_is_refused(path: Path) -> None:
    async with opened(SqliteStorage(path)) as storage:
        with pytest.raises(StorageRefused, match=r"process \d+ is using it; connect to that one"):
            await SqliteStorage(path).open()
        await storage.append([stored("s", 1)])
    async with opened(SqliteStorage(path)):
        pass


async def test_a_refused_storage_opens_once_the_reason_is_gone(log: Path) -> None:
    edit(log, "PRAGMA user_version=99")
    storage = SqliteStorage(log)
    with pytest.raises(StorageRefused):
        await storage.open()
    edit(log, "PRAGMA user_version=2")
    async with opened(storage):
        assert await last_seqs(storage) == {"s": 500}


async def test_a_damaged_page_is_an_error_for_its_reader_only(log: Path) -> None:
    async with opened(SqliteStorage(log)) as storage:
        await storage.append(run_of("t", 1, 5))
    content = bytearray(log.read_bytes())
    page = content.index(b'"seq":100,') // 8192
    content[page * 8192 : page * 8192 + 100] = b"\xa5" * 100
    log.write_bytes(content)
    async with opened(SqliteStorage(log)) as storage:
        with pytest.raises(
            StorageFailed,
            match=r"events 1 to 500 of session s: .*malformed; other sessions still",
        ):
            await seqs(storage, "s")
        assert await seqs(storage, "t") == [1, 2, 3, 4, 5]
        await storage.append([stored("t", 6)])


async def test_a_full_disk_loses_nothing_and_the_same_batch_can_be_stored_later(
    path: Path,
) -> None:
    async with opened(SqliteStorage(path)) as storage:
        await storage.append(run_of("s", 1, 10))
        batch: list[Record] = [*run_of("s", 11, 400, "x" * 1_000), meta("new"), stored("new", 1)]
        with full_disk(200_000):
            for _ in range(3):
                with pytest.raises(StorageFailed, match=r"make room|check the disk, its quota"):
                    await storage.append(batch)
            assert await seqs(storage, "s") == list(range(1, 11))
            assert await last_seqs(storage) == {"s": 10}
        await storage.append(batch)
        assert await seqs(storage, "s") == list(range(1, 401))
    async with opened(SqliteStorage(path)) as storage:
        assert await seqs(storage, "s") == list(range(1, 401))
        assert await last_seqs(storage) == {"s": 400, "new": 1}


async def test_a_disk_that_fills_slowly_takes_every_event_once(path: Path) -> None:
    async with opened(SqliteStorage(path)) as storage:
        failures = seq = 0
        with full_disk(300_000):
            while not failures:
                try:
                    await storage.append([stored("s", seq + 1, "x" * 500)])
                    seq += 1
                except StorageFailed:
                    failures += 1
        for following in range(seq + 1, seq + 20):
            await storage.append([stored("s", following)])
        assert await seqs(storage, "s") == list(range(1, seq + 20))


async def test_a_log_cannot_be_created_on_a_full_disk_and_can_be_later(path: Path) -> None:
    with full_disk(5_000), pytest.raises(StorageRefused):
        await SqliteStorage(path).open()
    async with opened(SqliteStorage(path)) as storage:
        await storage.append([stored("s", 1)])


async def test_many_deleted_events_leave_the_file_and_their_text_with_them(path: Path) -> None:
    async with opened(SqliteStorage(path)) as storage:
        await storage.append([*run_of("s", 1, 5_000, "secret"), *run_of("t", 1, 10)])
        await storage.delete_events("s")
        await storage.append([stored("s", 5_001), stored("t", 11)])
        assert await seqs(storage, "s") == [5_001]
    assert b"secret" not in path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT sum(count) FROM events").fetchone() == (12,)


async def test_every_page_of_a_log_with_long_rows_is_exact(path: Path) -> None:
    async with opened(SqliteStorage(path)) as storage:
        for first in range(1, 3_000, 1_000):
            batch = [
                each for n in range(first, first + 1_000) for each in run_of("s", n, n, "x" * 99)
            ]
            await storage.append([*batch, *run_of("t", first, first + 999)])
        for after in (0, 1, 7, 480, 999, 1_000, 2_345, 2_999, 3_000):
            for limit in (1, 2, 500, 1_500, 5_000):
                page = [decode_event(each).seq for each in await storage.read("s", after, limit)]
                assert page == list(range(after + 1, min(after + limit, 3_000) + 1))
    with closing(sqlite3.connect(path)) as connection:
        rows, events = connection.execute("SELECT count(*), sum(count) FROM events").fetchone()
    assert events == 6_000
    assert rows < 30


async def test_data_with_a_line_break_is_kept_as_it_is(path: Path) -> None:
    lines = [b'{"a":1}', b'{\n"a":2}', b'{"a":3}']
    async with opened(SqliteStorage(path)) as storage:
        await storage.append([Stored("s", n, data) for n, data in enumerate(lines, 1)])
        assert await storage.read("s", 0, 10) == lines
        assert await storage.read("s", 1, 1) == lines[1:2]


async def test_sweeping_continues_after_a_crash(log: Path) -> None:
    edit(log, "UPDATE sessions SET freed_seq = last_seq")
    seal_records(log)
    async with opened(SqliteStorage(log)) as storage:
        assert await seqs(storage, "s") == []
        assert await last_seqs(storage) == {"s": 500}
    with closing(sqlite3.connect(log)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)


async def test_keys_of_a_newer_version_survive_in_a_meta(log: Path) -> None:
    edit(log, "UPDATE sessions SET meta = json_set(CAST(meta AS TEXT), '$.pinned', 1)")
    edit(log, "UPDATE sessions SET meta = CAST(meta AS BLOB)")
    seal_records(log)
    async with opened(SqliteStorage(log)) as storage:
        await storage.append([meta("s", "renamed")])
    with closing(sqlite3.connect(log)) as connection:
        (text,) = connection.execute("SELECT meta FROM sessions").fetchone()
    assert b'"pinned":1' in text
    assert b'"renamed"' in text


async def test_the_write_ahead_log_is_kept_short(path: Path) -> None:
    async with opened(SqliteStorage(path)) as storage:
        for first in range(1, 60_000, 1_000):
            await storage.append(run_of("s", first, first + 999, "x" * 200))
        await storage.delete_events("nobody")  # after the housekeeping of the last commit
        assert path.with_name("log.db-wal").stat().st_size < path.stat().st_size
    assert not path.with_name("log.db-wal").exists()


async def test_a_page_and_the_next_commit_do_not_wait_for_each_other(log: Path) -> None:
    """A read transaction that is open all the time, as that of a slow page is."""
    async with opened(SqliteStorage(log)) as storage:
        with closing(sqlite3.connect(log, isolation_level=None)) as slow:
            slow.execute("BEGIN")
            slow.execute("SELECT sum(count) FROM events").fetchone()
            with anyio.fail_after(30):
                await storage.append(run_of("s", 501, 600))
                assert await seqs(storage, "s") == list(range(1, 601))
            assert slow.execute("SELECT sum(count) FROM events").fetchone() == (500,)

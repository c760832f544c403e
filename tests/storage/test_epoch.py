"""When a log begins a new epoch: whenever it may have gone back, and never otherwise."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from quarterdeck.storage import CheckedStorage, SqliteStorage, Storage, mark
from quarterdeck.storage.sqlite_schema import MIGRATIONS, connect_writer, migrate
from tests.storage.support import ANY_STORAGE, DURABLE, last_seqs, opened, run_of, seqs, stored

NAMES = {"jsonl": "log.jsonl"}


def log_of(kind: str, folder: Path) -> Path:
    return folder / NAMES.get(kind, "log.db")


async def epoch_after(storage: Storage, *numbers: int) -> tuple[str, bool]:
    """Open a log, append events with these numbers, close it; return its epoch."""
    async with opened(storage):
        assert isinstance(storage, CheckedStorage)
        if numbers:
            await storage.append([stored("s", number) for number in numbers])
        return storage.epoch.id, storage.epoch.is_first


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_log_that_was_closed_keeps_its_epoch(kind: str, tmp_path: Path) -> None:
    make = ANY_STORAGE[kind]
    first = await epoch_after(make(tmp_path), 1, 2)
    assert first[1]
    assert await epoch_after(make(tmp_path), 3) == first
    assert await epoch_after(make(tmp_path)) == first


@pytest.mark.parametrize("kind", DURABLE)
async def test_an_older_log_that_was_copied_back_begins_a_new_epoch_and_names_what_is_missing(
    kind: str, tmp_path: Path
) -> None:
    make, path = ANY_STORAGE[kind], log_of(kind, tmp_path)
    first = await epoch_after(make(tmp_path), 1, 2)
    shutil.copy(path, tmp_path / "older")
    assert await epoch_after(make(tmp_path), 3, 4, 5) == first
    shutil.copy(tmp_path / "older", path)
    async with opened(make(tmp_path)) as storage:
        assert isinstance(storage, CheckedStorage)
        assert storage.epoch.id != first[0]
        assert not storage.epoch.is_first
        (damage,) = storage.damages
        assert (damage.session_id, damage.first_seq, damage.last_seq) == ("s", 3, 5)
        assert await seqs(storage, "s") == [1, 2]
        await storage.append([stored("s", 3, "another")])  # the session continues
        assert await seqs(storage, "s") == [1, 2, 3]


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_folder_that_was_copied_back_begins_a_new_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "COPY_NS", 0)  # the test does not wait
    make, folder = ANY_STORAGE[kind], tmp_path / "home"
    folder.mkdir()
    first = await epoch_after(make(folder), 1, 2)
    shutil.copytree(folder, tmp_path / "older")
    await epoch_after(make(folder), 3)
    for path in (tmp_path / "older").iterdir():
        shutil.copy2(path, folder / path.name)  # the same files, with the same times
    second = await epoch_after(make(folder))
    assert second[0] != first[0]
    assert not second[1]


@pytest.mark.parametrize("kind", DURABLE)
async def test_a_log_without_its_mark_begins_a_new_epoch(kind: str, tmp_path: Path) -> None:
    make, path = ANY_STORAGE[kind], log_of(kind, tmp_path)
    first = await epoch_after(make(tmp_path), 1)
    path.with_name(f"{path.name}.mark").unlink()
    second = await epoch_after(make(tmp_path))
    assert (second[0] != first[0], second[1]) == (True, False)


@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize("is_closed", [True, False])
async def test_after_a_restart_of_the_system_only_a_closed_log_keeps_its_epoch(
    kind: str, is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, path = ANY_STORAGE[kind], log_of(kind, tmp_path)
    beside = path.with_name(f"{path.name}.mark")
    async with opened(make(tmp_path)) as storage:
        assert isinstance(storage, CheckedStorage)
        first = storage.epoch.id
        await storage.append(run_of("s", 1, 5))
        open_mark = beside.read_bytes()
    if not is_closed:
        with beside.open("r+b") as file:  # as it was before it was closed
            file.write(open_mark)
    monkeypatch.setattr(mark, "boot_id", lambda: "another boot")
    second, _ = await epoch_after(make(tmp_path))
    assert (second == first) == is_closed


async def test_a_log_that_was_moved_away_is_not_missed(tmp_path: Path) -> None:
    first = await epoch_after(SqliteStorage(tmp_path / "log.db"), 1, 2)
    (tmp_path / "log.db").unlink()
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        assert not storage.damages
        assert storage.epoch.id != first[0]
        assert not storage.epoch.is_first


async def test_a_log_of_an_older_format_gets_checksums_and_keeps_plain_numbers_valid(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    events = [each.data for each in run_of("s", 1, 300)]
    with closing(connect_writer(path, "normal")) as writer:
        migrate(path, writer, MIGRATIONS[:1])
        writer.execute("INSERT INTO sessions (id, session_id, last_seq) VALUES (1, 's', 300)")
        for last in range(2, 301, 2):
            data = b"\n".join(events[last - 2 : last])
            writer.execute(
                "INSERT INTO events (session, last_seq, count, data) VALUES (1, ?, 2, ?)",
                (last, data),
            )
    path.chmod(0o600)
    async with opened(SqliteStorage(path)) as storage:
        assert storage.epoch.is_first
        assert await seqs(storage, "s") == list(range(1, 301))  # while they get their checksums
        await storage.append([stored("s", 301)])
        while storage._log.is_untidy:  # noqa: SLF001 - housekeeping has no end that can be awaited
            await storage.append([stored("t", (await last_seqs(storage)).get("t", 0) + 1)])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(
            "SELECT count(*) FROM events WHERE checksum IS NULL"
        ).fetchone() == (0,)
    async with opened(SqliteStorage(path)) as storage:
        assert await seqs(storage, "s") == list(range(1, 302))
        assert not storage.damages


async def test_damage_in_a_log_of_an_older_format_is_found_too(tmp_path: Path) -> None:
    await test_a_log_of_an_older_format_gets_checksums_and_keeps_plain_numbers_valid(tmp_path)
    path = tmp_path / "log.db"
    content = bytearray(path.read_bytes())
    content[content.index(b'"seq":150,') + 6] ^= 1
    path.write_bytes(content)
    async with opened(SqliteStorage(path)) as storage:
        assert len(await storage.read("s", 0, 1000)) == 148
        with pytest.raises(Exception, match="events 149 to 150 of session s: their checksum"):
            await storage.read("s", 148, 10)

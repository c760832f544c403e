"""Backup, restore, repair and compaction: what they do, and that no kill in them loses anything."""

from __future__ import annotations

import ctypes
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from quarterdeck.errors import CommandFailed, StartRefused, StorageFailed, StorageRefused
from quarterdeck.machine.home_locks import BOTH, Role, locked_home
from quarterdeck.storage import SqliteStorage, backup
from quarterdeck.storage.backup import restore_backup, write_backup
from quarterdeck.storage.check import check_folder
from quarterdeck.storage.compaction import compact_folder
from quarterdeck.storage.database import Tables, open_database
from quarterdeck.storage.repair import repair_folder
from tests.storage import maintenance
from tests.storage.support import meta, opened, run_of, seqs, stored

Content = dict[str, list[int]]


def _things(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE things (name TEXT PRIMARY KEY, value TEXT)")


TABLES = (Tables("things", (_things,)),)
ROWS = [(f"t{number}", "v") for number in range(9)]


async def fill(home: Path, last: int = 200) -> None:
    await anyio.Path(home).mkdir(mode=0o700, exist_ok=True)
    async with opened(SqliteStorage(home / "log.db")) as storage:
        for session_id in ("s", "t"):
            await storage.append([meta(session_id), *run_of(session_id, 1, last, "x" * 200)])
    for name in ("runner.db", "hub.db"):
        async with open_database(home / name, TABLES) as database:
            await database.write(
                lambda connection: connection.executemany(
                    "INSERT OR REPLACE INTO things VALUES (?, ?)",
                    [(f"t{n}", "v") for n in range(9)],
                )
            )
    await anyio.Path(home / "hub.key").write_text("secret")


async def content(home: Path) -> tuple[Content, int]:
    """Return the numbers of all events, and the number of rows of both databases."""
    async with opened(SqliteStorage(home / "log.db")) as storage:
        assert not [each for each in storage.damages if not each.is_lost]
        metas = await storage.sessions()
        found = {each.session_id: await seqs(storage, each.session_id) for each in metas}
    rows = 0
    for name in ("runner.db", "hub.db"):
        async with open_database(home / name, TABLES) as database:
            rows += await database.read(
                lambda connection: connection.execute("SELECT count(*) FROM things").fetchone()[0]
            )
    return found, rows


def killed_at(step: int, command: str, home: Path, other: Path) -> bool:
    """Run a command in a child that is killed at a step; return whether it was."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        try:
            maintenance.main(command, home, other, step)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def every_step(command: str, prepare: Callable[[Path], Path], tmp_path: Path) -> list[Path]:
    """Kill a command at each of its steps, on a fresh folder each; return the folders."""
    folders, step = [], 0
    while True:
        folder = tmp_path / str(step)
        folder.mkdir()
        other = prepare(folder)
        folders.append(folder)
        if not killed_at(step, command, folder / "home", other):
            return folders
        step += 1


@pytest.fixture
def home(tmp_path: Path) -> Path:
    anyio.run(fill, tmp_path / "original")
    return tmp_path / "original"


# ---- backup and restore --------------------------------------------------------------------------


async def test_a_backup_is_restored_with_everything_and_a_new_epoch(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home)
    before = await content(home)
    async with opened(SqliteStorage(home / "log.db")) as storage:
        epoch = storage.epoch
    path, manifest = write_backup(home, tmp_path)
    assert (path.parent, path.stat().st_mode & 0o777) == (tmp_path, 0o600)
    assert (manifest.sessions, manifest.events) == (2, 400)
    async with opened(SqliteStorage(home / "log.db")) as storage:
        await storage.append(run_of("s", 201, 250))
    (home / "worktrees").mkdir()
    aside, _ = restore_backup(path, home)
    assert await content(home) == before
    assert (home / "hub.key").read_text() == "secret"
    assert (home / "worktrees").is_dir()  # not part of a backup, and not lost
    async with opened(SqliteStorage(home / "log.db")) as storage:
        assert storage.epoch.id != epoch.id
        assert not storage.epoch.is_first
    assert aside is not None
    assert len((await content(aside))[0]["s"]) == 250


async def test_a_backup_of_a_log_that_is_being_written_is_consistent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home, 1)
    async with (
        opened(SqliteStorage(home / "log.db")) as storage,
        anyio.create_task_group() as tasks,
    ):
        done = anyio.Event()

        async def write() -> None:
            seq = 1
            while not done.is_set():
                await storage.append(run_of("s", seq + 1, seq + 20))
                seq += 20

        tasks.start_soon(write)
        for number in range(5):
            path, _ = await anyio.to_thread.run_sync(write_backup, home, tmp_path / f"{number}.tar")
            restored = tmp_path / f"restored-{number}"
            await anyio.to_thread.run_sync(restore_backup, path, restored)
            found, rows = await content(restored)
            assert found["s"] == list(range(1, len(found["s"]) + 1))
            assert rows == 18
        done.set()


async def test_what_is_no_backup_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home)
    path, _ = write_backup(home, tmp_path / "b.tar")
    whole = path.read_bytes()
    before = await content(home)
    for number, data in enumerate(
        (b"", b"text", whole[: len(whole) // 2], whole.replace(b"x" * 50, b"y" * 50, 1))
    ):
        bad = tmp_path / f"bad-{number}"
        bad.write_bytes(data)
        with pytest.raises(CommandFailed, match=r"no backup|damaged"):
            restore_backup(bad, home)
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(home / "hub.key", "../token")
    with pytest.raises(CommandFailed, match="no backup"):
        restore_backup(evil, home)
    with pytest.raises(CommandFailed, match="there is no file"):
        restore_backup(tmp_path / "absent", home)
    assert await content(home) == before
    assert not [each async for each in anyio.Path(tmp_path).glob("*restoring*")]


@pytest.mark.parametrize("role", BOTH)
async def test_a_folder_in_use_is_neither_restored_nor_repaired_nor_compacted(
    tmp_path: Path, role: Role
) -> None:
    home = tmp_path / "home"
    await fill(home)
    path, _ = write_backup(home, tmp_path / "b.tar")
    with locked_home(home, role):
        with pytest.raises(StartRefused, match="using"):
            restore_backup(path, home)
        with pytest.raises(StartRefused, match="using"):
            repair_folder(home)
        with pytest.raises(StartRefused, match="using"):
            await compact_folder(home)


async def test_a_backup_does_not_replace_a_file_and_damaged_data_is_not_backed_up(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    await fill(home)
    write_backup(home, tmp_path / "b.tar")
    with pytest.raises(CommandFailed, match="exists; choose another name"):
        write_backup(home, tmp_path / "b.tar")
    with pytest.raises(CommandFailed, match="there is no folder"):
        write_backup(home, tmp_path / "absent" / "b.tar")
    with pytest.raises(CommandFailed, match="nothing to back up"):
        write_backup(tmp_path / "nowhere", tmp_path / "c.tar")
    spoil(home)
    with pytest.raises(CommandFailed, match=r"damaged, so no backup was written: log.db: events"):
        write_backup(home, tmp_path / "c.tar")
    assert not (tmp_path / "c.tar").exists()


@pytest.mark.slow
def test_a_backup_that_is_killed_leaves_no_half_file(home: Path, tmp_path: Path) -> None:
    def prepare(folder: Path) -> Path:
        shutil.copytree(home, folder / "home")
        return folder / "b.tar"

    for folder in every_step("backup", prepare, tmp_path):
        if (folder / "b.tar").exists():
            restore_backup(folder / "b.tar", folder / "restored")
        assert anyio.run(content, folder / "home") == EVERYTHING


@pytest.mark.slow
def test_a_restore_that_is_killed_leaves_the_old_folder_or_the_new_one(
    home: Path, tmp_path: Path
) -> None:
    path, _ = write_backup(home, tmp_path / "b.tar")

    def prepare(folder: Path) -> Path:
        shutil.copytree(home, folder / "home")
        return path

    outcomes = []
    for folder in every_step("restore", prepare, tmp_path):
        assert anyio.run(content, folder / "home") == EVERYTHING
        restore_backup(path, folder / "home")  # the next one works
        assert anyio.run(content, folder / "home") == EVERYTHING
        outcomes.append(len(list(folder.iterdir())))
    assert len(outcomes) > 5


EVERYTHING = ({"s": list(range(1, 201)), "t": list(range(1, 201))}, 18)


# ---- repair --------------------------------------------------------------------------------------


def spoil(home: Path, seq: int = 100) -> None:
    """Change one letter of an event, as a bad disk would."""
    path = home / "log.db"
    data = bytearray(path.read_bytes())
    data[data.index(b'"seq":%d,' % seq) + 7] ^= 1
    path.write_bytes(data)


async def test_a_repair_cuts_a_session_at_its_damage_and_says_what_was_lost(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    await anyio.Path(home).mkdir(mode=0o700)
    async with opened(SqliteStorage(home / "log.db")) as storage:
        for seq in range(1, 60, 6):
            await storage.append([meta("s"), *run_of("s", seq, seq + 5, "x" * 300)])
        await storage.append([meta("t"), *run_of("t", 1, 20)])
        epoch = storage.epoch.id
    spoil(home, 25)
    (report, *_) = check_folder(home)
    assert report.status == "damaged"
    assert report.problems == ["events 25 to 30 of session s: their checksum is wrong"]
    repair = repair_folder(home)
    assert repair.done[0] == (
        "log.db: events 25 to 30 of session s: their checksum is wrong;"
        " the session now ends at event 24"
    )
    assert "30 intact events of session s after that are in" in repair.done[1]
    rest = await anyio.Path(repair.done[1].rpartition(" ")[2]).read_bytes()
    assert len(rest.splitlines()) == 30
    assert check_folder(home)[0].status == "ok"
    async with opened(SqliteStorage(home / "log.db")) as storage:
        assert storage.epoch.id != epoch
        assert await seqs(storage, "s") == list(range(1, 25))
        assert await seqs(storage, "t") == list(range(1, 21))
        await storage.append([stored("s", 25)])
    assert repair_folder(home).backup == ""


async def test_a_repair_accepts_what_was_lost_and_drops_damaged_rows(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home)
    for name in ("log.db", "hub.db"):
        shutil.copy(home / name, tmp_path / name)
    async with opened(SqliteStorage(home / "log.db")) as storage:
        await storage.append(run_of("s", 201, 220))
    async with open_database(home / "hub.db", TABLES) as database:
        await database.write(lambda connection: connection.execute("DELETE FROM things"))
    for name in ("log.db", "hub.db"):
        shutil.copy(tmp_path / name, home / name)  # older ones are copied back
    with closing(sqlite3.connect(home / "runner.db")) as connection, connection:
        connection.execute("UPDATE things SET value = 'forged' WHERE name = 't3'")
    problems = {each.file: each.problems for each in check_folder(home)}
    assert problems["log.db"] == [
        "events 201 to 220 of session s: they were stored and are missing"
    ]
    assert problems["hub.db"] == ["its last 1 changes are missing"]
    assert "row 4 of things is not what was stored" in problems["runner.db"]
    repair = repair_folder(home)
    assert any("row 4 of things is lost; it was 't3'" in each for each in repair.done)
    assert all(each.status == "ok" for each in check_folder(home))
    found, rows = await content(home)
    assert (len(found["s"]), rows) == (200, 17)


async def test_a_repair_saves_what_can_be_read_whatever_is_damaged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home)
    size = (home / "log.db").stat().st_size
    for number, offset in enumerate(range(0, size, size // 12)):
        work = tmp_path / f"work-{number}"
        shutil.copytree(home, work)
        with (work / "log.db").open("r+b") as file:
            file.seek(min(offset, size - 300))
            file.write(b"\xa5" * 300)
        was_damaged = check_folder(work)[0].status == "damaged"
        repair = repair_folder(work)
        assert bool(repair.backup) == was_damaged
        if repair.backup:
            assert repair.done
            assert (Path(repair.backup) / "log.db").stat().st_size == size
        assert check_folder(work)[0].status in ("ok", "absent")
        async with opened(SqliteStorage(work / "log.db")) as storage:
            for each in await storage.sessions():
                numbers = await seqs(storage, each.session_id)
                assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.slow
def test_a_repair_that_is_killed_loses_nothing_and_is_finished_by_the_next(
    home: Path, tmp_path: Path
) -> None:
    def prepare(folder: Path) -> Path:
        shutil.copytree(home, folder / "home")
        spoil(folder / "home", 100)
        return folder

    (*killed, last) = every_step("repair", prepare, tmp_path)
    assert len(killed) > 10
    expected = anyio.run(_session_lengths, last / "home")
    for folder in killed:
        try:
            anyio.run(_session_lengths, folder / "home")
        except StorageRefused as error:
            assert "finish it: quarterdeck repair" in str(error)  # noqa: PT017
        repair_folder(folder / "home")
        assert anyio.run(_session_lengths, folder / "home") == expected
        assert all(each.status == "ok" for each in check_folder(folder / "home"))


async def _session_lengths(home: Path) -> dict[str, int]:
    async with opened(SqliteStorage(home / "log.db")) as storage:
        lengths = {}
        for each in await storage.sessions():
            try:
                lengths[each.session_id] = len(await seqs(storage, each.session_id))
            except StorageFailed:
                lengths[each.session_id] = -1
        return lengths


# ---- compaction ----------------------------------------------------------------------------------


async def test_a_log_is_small_again_after_its_sessions_were_deleted(tmp_path: Path) -> None:
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        await storage.append([meta("kept"), *run_of("kept", 1, 50)])
        for number in range(20):
            await storage.append(run_of(f"s{number}", 1, 300, "x" * 400))
        for number in range(20):
            await storage.delete_events(f"s{number}")
        before, after = await storage.compact()
        assert after < before / 10
        assert await seqs(storage, "kept") == list(range(1, 51))
        await storage.append(run_of("kept", 51, 60))
        epoch = storage.epoch
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        assert storage.epoch == epoch  # nothing went back
        assert not storage.damages
        assert await seqs(storage, "kept") == list(range(1, 61))


async def test_commits_and_reads_continue_while_a_log_is_compacted(tmp_path: Path) -> None:
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        await storage.append(run_of("old", 1, 4000, "x" * 400))
        async with anyio.create_task_group() as tasks:
            done = anyio.Event()
            written = 0

            async def write() -> None:
                nonlocal written
                while not done.is_set():
                    await storage.append(run_of("s", written + 1, written + 7))
                    written += 7
                    assert len(await storage.read("s", 0, 5)) == 5

            tasks.start_soon(write)
            for _ in range(4):
                await storage.compact()
            await storage.delete_events("old")
            await storage.compact()
            done.set()
        assert await seqs(storage, "s") == list(range(1, written + 1))
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        assert await seqs(storage, "s") == list(range(1, written + 1))
        assert not storage.damages


async def test_a_log_that_another_program_reads_is_not_compacted_and_works_on(
    tmp_path: Path,
) -> None:
    async with opened(SqliteStorage(tmp_path / "log.db")) as storage:
        await storage.append(run_of("s", 1, 10))
        with closing(sqlite3.connect(tmp_path / "log.db")) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(StorageFailed, match="another program reads it"):
                await storage.compact()
            other.execute("ROLLBACK")
        await storage.append(run_of("s", 11, 20))
        await storage.compact()
        assert await seqs(storage, "s") == list(range(1, 21))


@pytest.mark.slow
def test_a_compaction_that_is_killed_loses_nothing(home: Path, tmp_path: Path) -> None:
    def prepare(folder: Path) -> Path:
        shutil.copytree(home, folder / "home")
        return folder

    folders = every_step("compact", prepare, tmp_path)
    assert len(folders) > 10
    for folder in folders:
        assert anyio.run(content, folder / "home") == EVERYTHING
        assert not list((folder / "home").glob("*.compact*"))


async def test_a_folder_without_a_hub_is_compacted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    await fill(home)
    files = await compact_folder(home)
    assert [each.file for each in files] == ["log.db", "runner.db", "hub.db"]
    assert await content(home) == EVERYTHING


@pytest.mark.parametrize("name", ["renameat2", "renamex_np", "neither"])
def test_folders_are_exchanged_in_one_step_where_the_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls: list[str] = []

    def swap(*arguments: Any) -> int:
        calls.append(name)
        one, other = (os.fsdecode(each) for each in arguments if isinstance(each, bytes))
        os.rename(one, f"{one}.aside")  # noqa: PTH104 - as the call has them
        os.rename(other, one)  # noqa: PTH104
        os.rename(f"{one}.aside", other)  # noqa: PTH104
        return 0

    library = SimpleNamespace(**{name: swap})
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    staged, home, aside = (tmp_path / each for each in ("staged", "home", "aside"))
    for folder in (staged, home):
        folder.mkdir()
        (folder / folder.name).touch()
    vars(backup)["_exchange"](staged, home, aside)
    assert calls == ([] if name == "neither" else [name])
    assert (home / "staged").exists()
    assert (aside / "home").exists()
    assert not staged.exists()

"""Damage is found, named, and costs its session (INV-13): bits are flipped in every file of a log.

After each flip the log is what it was, or an error or `damages` names what is wrong. To try more
places: QUARTERDECK_FLIPS=20000.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import (
    DatabaseFailed,
    LogDamaged,
    StartRefused,
    StorageFailed,
    StorageRefused,
)
from quarterdeck.storage import JsonlStorage, SqliteStorage
from quarterdeck.storage.database import Tables, open_database
from tests.storage.support import last_seqs, meta, opened, run_of

FLIPS = int(os.environ.get("QUARTERDECK_FLIPS", "120"))
SESSIONS = ("s", "t", "u")
AnyLog = SqliteStorage | JsonlStorage
Log = dict[str, list[bytes]]


async def content(storage: AnyLog) -> Log:
    """Return all events; a session that raises `LogDamaged` is left out."""
    found: Log = {}
    for session_id in await last_seqs(storage):
        events: list[bytes] = []
        try:
            while page := await storage.read(session_id, len(events), 100):
                events += page
        except LogDamaged as error:
            is_named = session_id in str(error)
            if not is_named:
                raise
            continue
        found[session_id] = events
    return found


async def fill(storage: AnyLog) -> None:
    for session_id in SESSIONS:
        await storage.append([meta(session_id, "a title"), *run_of(session_id, 1, 60)])
    for seq in range(61, 100, 3):
        for session_id in SESSIONS:
            await storage.append(run_of(session_id, seq, seq + 2, "x" * 700))


async def left_by_kill(made: AnyLog, folder: Path, killed: Path) -> Log:
    """Write a log in `folder`, copy it to `killed` as `kill -9` leaves it; return its events."""
    async with opened(made):
        await fill(made)
        shutil.copytree(folder, killed)
        return await content(made)


def places(path: Path, count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Choose bits of a file: many in its first bytes, which are its structure."""
    chance, size = random.Random(seed), path.stat().st_size
    for number in range(count):
        most = 120 if number % 4 == 0 else size
        yield chance.randrange(min(most, size)), 1 << chance.randrange(8)


def flip(path: Path, offset: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


async def check_flip(make: Callable[[Path], AnyLog], folder: Path, expected: Log) -> str:
    """Open a damaged log; return what became of it."""
    storage = make(folder)
    try:
        await storage.open()
    except StorageRefused:
        return "refused"
    try:
        found = await content(storage)
        named = {each.session_id for each in storage.damages}
        lost = any(each.session_id is None for each in storage.damages)
        for session_id, events in expected.items():
            if found.get(session_id) != events:
                assert lost or session_id in named, f"{session_id} differs, and nothing says so"
        new = [each for each in found if each not in expected]
        assert not new or any(each in named for each in new) or lost
        return "damaged" if storage.damages else "equal"
    except StorageFailed:
        return "failed"
    finally:
        await storage.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.db", "log.db-wal", "log.db.mark", "log.db after closing"])
async def test_p17_inv_13_no_flipped_bit_of_a_log_goes_unnoticed(name: str, tmp_path: Path) -> None:
    folder, killed = tmp_path / "home", tmp_path / "killed"
    folder.mkdir()
    expected = await left_by_kill(SqliteStorage(folder / "log.db"), folder, killed)
    if name.endswith("closing"):
        killed, name = folder, "log.db"
    outcomes: dict[str, int] = {}
    for number, (offset, bit) in enumerate(places(killed / name, FLIPS, len(name))):
        work = tmp_path / f"work-{number}"
        shutil.copytree(killed, work)
        flip(work / name, offset, bit)
        try:
            outcome = await check_flip(lambda at: SqliteStorage(at / "log.db"), work, expected)
        except (AssertionError, sqlite3.Error) as error:
            raise AssertionError(f"bit {bit} at {offset} of {name}: {error}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(work)
    assert outcomes.get("equal", 0) < FLIPS or name == "log.db.mark", outcomes


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["log.db", "log.db-wal"])
async def test_p17_inv_13_a_truncated_file_of_a_log_is_named(
    name: str, share: float, tmp_path: Path
) -> None:
    folder, killed = tmp_path / "home", tmp_path / "killed"
    folder.mkdir()
    expected = await left_by_kill(SqliteStorage(folder / "log.db"), folder, killed)
    if name == "log.db":
        killed = folder
    os.truncate(killed / name, int((killed / name).stat().st_size * share))
    outcome = await check_flip(lambda at: SqliteStorage(at / "log.db"), killed, expected)
    assert outcome != "equal"


@pytest.mark.slow
async def test_inv_13_no_flipped_bit_of_json_lines_goes_unnoticed(tmp_path: Path) -> None:
    folder, killed = tmp_path / "home", tmp_path / "killed"
    folder.mkdir()
    expected = await left_by_kill(JsonlStorage(folder / "log.jsonl"), folder, killed)
    for number, (offset, bit) in enumerate(places(killed / "log.jsonl", FLIPS, 5)):
        work = tmp_path / f"work-{number}"
        shutil.copytree(killed, work)
        flip(work / "log.jsonl", offset, bit)
        await check_flip(lambda at: JsonlStorage(at / "log.jsonl"), work, expected)
        shutil.rmtree(work)


def _things(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE things (name TEXT PRIMARY KEY, value BLOB, at REAL)")


TABLES = (Tables("things", (_things,)),)


async def rows_of(path: Path) -> list[object]:
    async with open_database(path, TABLES) as database:
        return await database.read(
            lambda connection: connection.execute("SELECT * FROM things ORDER BY name").fetchall()
        )


async def filled_database(folder: Path, killed: Path) -> list[object]:
    await anyio.Path(folder).mkdir(mode=0o700)
    async with open_database(folder / "hub.db", TABLES) as database:
        for number in range(60):
            row = (f"thing {number}", b"x" * number, number / 3)

            def add(connection: sqlite3.Connection, row: tuple[object, ...] = row) -> None:
                connection.execute("INSERT OR REPLACE INTO things VALUES (?, ?, ?)", row)

            await database.write(add)
        await database.write(
            lambda connection: connection.execute("DELETE FROM things WHERE value = x''")
        )
        shutil.copytree(folder, killed)
    return await rows_of(folder / "hub.db")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hub.db", "hub.db-wal"])
async def test_inv_13_no_flipped_bit_of_a_database_goes_unnoticed(
    name: str, tmp_path: Path
) -> None:
    folder, killed = tmp_path / "home", tmp_path / "killed"
    expected = await filled_database(folder, killed)
    source = folder if name == "hub.db" else killed
    outcomes = {"refused": 0, "equal": 0}
    for number, (offset, bit) in enumerate(places(source / name, FLIPS, 3)):
        work = tmp_path / f"work-{number}"
        shutil.copytree(source, work)
        flip(work / name, offset, bit)
        try:
            found = await rows_of(work / "hub.db")
        except (StartRefused, DatabaseFailed):
            outcomes["refused"] += 1
        else:
            assert found == expected, f"bit {bit} at {offset} of {name}"
            outcomes["equal"] += 1
        shutil.rmtree(work)
    assert outcomes["refused"]


async def test_a_database_that_was_copied_back_is_refused(tmp_path: Path) -> None:
    folder, killed = tmp_path / "home", tmp_path / "killed"
    await filled_database(folder, killed)
    shutil.copy(folder / "hub.db", tmp_path / "older")
    async with open_database(folder / "hub.db", TABLES) as database:
        await database.write(lambda connection: connection.execute("DELETE FROM things"))
    shutil.copy(tmp_path / "older", folder / "hub.db")
    with pytest.raises(StartRefused, match=r"lacks the last change .*: quarterdeck repair"):
        await rows_of(folder / "hub.db")

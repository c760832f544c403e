"""The hub's own database: what is in it stays, and what is not ours is left alone."""

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import DatabaseFailed, StartRefused
from quarterdeck.storage.database import Database, Tables, open_database


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE things (name TEXT PRIMARY KEY)")


def _create_others(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE o (x)")


def _grow(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE things ADD COLUMN size INTEGER NOT NULL DEFAULT 7")


def _fail(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE things ADD COLUMN lost TEXT")
    connection.execute("SELECT * FROM nowhere")


THINGS = Tables("things", (_create,))
OTHERS = Tables("others", (_create_others,))


def _add(name: str) -> Callable[[sqlite3.Connection], None]:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO things (name) VALUES (?)", (name,))

    return change


async def names(database: Database) -> list[str]:
    def look(connection: sqlite3.Connection) -> list[str]:
        return [name for (name,) in connection.execute("SELECT name FROM things ORDER BY name")]

    return await database.read(look)


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with open_database(path, [THINGS]) as database:
        await database.write(_add("a"))
        assert await names(database) == ["a"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_name("hub.db-wal").exists()
    async with open_database(path, [THINGS]) as database:
        assert await names(database) == ["a"]


async def test_a_change_that_fails_is_undone_whole(tmp_path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO things VALUES ('half')")
        raise ZeroDivisionError

    async with open_database(tmp_path / "hub.db", [THINGS]) as database:
        with pytest.raises(ZeroDivisionError):
            await database.write(change)
        assert await names(database) == []
        await database.write(_add("a"))
        with pytest.raises(DatabaseFailed, match="UNIQUE"):
            await database.write(_add("a"))
        assert await names(database) == ["a"]


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async with open_database(tmp_path / "hub.db", [THINGS]) as database:
        with pytest.raises(DatabaseFailed, match="readonly"):
            await database.read(_add("a"))


async def test_changes_of_many_callers_come_one_after_the_other(tmp_path: Path) -> None:
    def increase(connection: sqlite3.Connection) -> None:
        count = connection.execute("SELECT count(*) FROM things").fetchone()[0]
        connection.execute("INSERT INTO things VALUES (?)", (f"{count:03}",))

    async with open_database(tmp_path / "hub.db", [THINGS]) as database:
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(database.write, increase)
        assert await names(database) == [f"{count:03}" for count in range(50)]


async def test_a_part_grows_and_another_one_is_added(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with open_database(path, [THINGS]) as database:
        await database.write(_add("a"))
    grown = Tables("things", (_create, _grow))
    async with open_database(path, [grown, OTHERS]) as database:
        rows = await database.read(lambda each: each.execute("SELECT * FROM things").fetchall())
        assert rows == [("a", 7)]
        assert await database.read(lambda each: each.execute("SELECT * FROM o").fetchall()) == []


async def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with open_database(path, [THINGS]) as database:
        await database.write(_add("a"))
    with pytest.raises(StartRefused, match="cannot be brought to format things 2"):
        async with open_database(path, [Tables("things", (_create, _fail))]):
            pytest.fail("it was opened")
    async with open_database(path, [Tables("things", (_create, _grow))]) as database:
        rows = await database.read(lambda each: each.execute("SELECT * FROM things").fetchall())
        assert rows == [("a", 7)]


@pytest.mark.parametrize("known", [[], [OTHERS], [THINGS]])
async def test_a_newer_one_is_refused_and_left_alone(tmp_path: Path, known: list[Tables]) -> None:
    path = tmp_path / "hub.db"
    async with open_database(path, [Tables("things", (_create, _grow))]):
        pass
    before = path.read_bytes()
    with pytest.raises(StartRefused, match=r"a newer Quarterdeck .*upgrade Quarterdeck"):
        async with open_database(path, known):
            pytest.fail("it was opened")
    assert path.read_bytes() == before


async def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(StartRefused, match="belongs to another program; choose another"):
        async with open_database(path, [THINGS]):
            pytest.fail("it was opened")
    assert path.read_bytes() == before


async def test_a_damaged_one_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    async with open_database(path, [THINGS]):
        pass
    for damage in (b"not a database at all" * 50, path.read_bytes()[:4096] + b"x" * 4096):
        path.write_bytes(damage)
        with pytest.raises(StartRefused, match=r"is damaged .*restore a backup"):
            async with open_database(path, [THINGS]):
                pytest.fail("it was opened")
        assert path.read_bytes() == damage

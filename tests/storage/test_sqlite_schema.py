from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quarterdeck.errors import StorageRefused
from quarterdeck.storage.sqlite_schema import (
    APPLICATION_ID,
    MIGRATIONS,
    Migration,
    check_file,
    connect_reader,
    connect_writer,
    migrate,
)


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")


def fail_half_way(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sessions ADD COLUMN half INTEGER")
    connection.execute("ALTER TABLE nobody ADD COLUMN whole INTEGER")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect_writer(path, "normal")) as connection:
        yield connection


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def columns(connection: sqlite3.Connection) -> list[str]:
    return [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]


def test_a_new_log_is_marked_and_at_the_newest_format(
    path: Path, writer: sqlite3.Connection
) -> None:
    migrate(path, writer)
    assert pragma(writer, "application_id") == APPLICATION_ID
    assert pragma(writer, "user_version") == len(MIGRATIONS)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_every_released_format_is_brought_up_to_date(
    path: Path, writer: sqlite3.Connection, version: int
) -> None:
    migrate(path, writer, MIGRATIONS[:version])
    writer.execute("INSERT INTO sessions (id, session_id, last_seq) VALUES (1, 's', 1)")
    writer.execute(
        "INSERT INTO events (id, session, last_seq, count, data) VALUES (1, 1, 1, 1, x'7b7d')"
    )
    newer: list[Migration] = [*MIGRATIONS, add_column]
    migrate(path, writer, newer)
    assert pragma(writer, "user_version") == len(newer)
    assert "pinned" in columns(writer)
    assert writer.execute("SELECT count(*) FROM events").fetchone() == (1,)


def test_migrating_again_does_nothing(path: Path, writer: sqlite3.Connection) -> None:
    migrate(path, writer, [*MIGRATIONS, add_column])
    migrate(path, writer, [*MIGRATIONS, add_column])
    assert columns(writer).count("pinned") == 1


def test_a_migration_that_fails_is_undone_and_those_before_it_are_kept(
    path: Path, writer: sqlite3.Connection
) -> None:
    with pytest.raises(StorageRefused, match=r"it cannot be brought to format 4 .*nobody"):
        migrate(path, writer, [*MIGRATIONS, add_column, fail_half_way])
    assert pragma(writer, "user_version") == len(MIGRATIONS) + 1
    assert columns(writer)[-1] == "pinned"


def test_a_newer_format_is_refused(path: Path, writer: sqlite3.Connection) -> None:
    migrate(path, writer, [*MIGRATIONS, add_column])
    with pytest.raises(StorageRefused, match=r"format 3, this one knows 2\); upgrade Quarterdeck"):
        check_file(path)


def test_a_log_whose_creation_was_interrupted_is_not_refused(
    path: Path, writer: sqlite3.Connection
) -> None:
    assert pragma(writer, "user_version") == 0
    check_file(path)


def test_the_writer_is_set_up_as_documented(writer: sqlite3.Connection) -> None:
    expected = {
        "page_size": 8192,
        "journal_mode": "wal",
        "synchronous": 1,
        "wal_autocheckpoint": 0,
        "journal_size_limit": 64 << 20,
        "busy_timeout": 5_000,
        "cache_size": -8192,
        "secure_delete": 1,
        "cell_size_check": 1,
        "trusted_schema": 0,
        "locking_mode": "normal",
    }
    assert {name: pragma(writer, name) for name in expected} == expected


def test_full_is_full(path: Path) -> None:
    with closing(connect_writer(path, "full")) as connection:
        assert (pragma(connection, "synchronous"), pragma(connection, "fullfsync")) == (2, 1)


def test_a_reader_cannot_write(path: Path, writer: sqlite3.Connection) -> None:
    migrate(path, writer)
    with (
        closing(connect_reader(path)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("DELETE FROM events")

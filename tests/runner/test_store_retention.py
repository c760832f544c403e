"""What runner.db forgets, and what it never does."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from quarterdeck.runner import Retention
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.runner.store import RunnerStore, tidy
from quarterdeck.storage.database import open_database

pytestmark = pytest.mark.anyio

OLD, NEW = "2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
AT = 1767312000.0  # the day after NEW


def fill(connection: sqlite3.Connection) -> None:
    for number, (state, at) in enumerate(
        [("done", OLD), ("failed", OLD), ("queued", OLD), ("running", OLD), ("done", NEW)]
    ):
        connection.execute(
            "INSERT INTO prompts (session_id, key, digest, blocks, is_urgent, state, created_at,"
            " updated_at) VALUES ('s', ?, x'', '[]', 0, ?, ?, ?)",
            (f"{state}-{number}", state, OLD, at),
        )
    decided: Sequence[tuple[str, str | None]] = (
        [("answered", OLD), ("superseded", OLD), ("answered", NEW)]
        + [("pending", None)]
        + [("answered", OLD)] * 1200
    )
    for number, (state, decided_at) in enumerate(decided):
        connection.execute(
            "INSERT INTO decisions (request_id, digest, request, state, requested_at, decided_at)"
            " VALUES (?, '', '{}', ?, ?, ?)",
            (f"perm-{number}", state, OLD, decided_at),
        )


async def test_what_is_over_is_forgotten_in_time_and_nothing_else(tmp_path: Path) -> None:
    async with open_database(tmp_path / "runner.db", RUNNER_TABLES) as database:
        await database.write(fill)
        store = RunnerStore(database)
        assert await tidy(store, Retention(prompts_days=0, decisions_days=0), time.time()) == 0
        assert await tidy(store, Retention(), AT) == 2 + 1202
        kept = await database.read(
            lambda connection: (
                connection.execute("SELECT state, updated_at FROM prompts").fetchall(),
                connection.execute("SELECT state, decided_at FROM decisions").fetchall(),
            )
        )
        assert sorted(kept[0]) == [("done", NEW), ("queued", OLD), ("running", OLD)]
        assert kept[1] == [("answered", NEW), ("pending", None)]
        assert await tidy(store, Retention(), AT) == 0

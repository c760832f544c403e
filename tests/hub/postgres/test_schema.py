"""Which databases a hub uses, creates, leaves alone."""

from __future__ import annotations

import anyio
import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub.postgres import STEPS, connect, inspect, migrate, open_postgres_store

pytestmark = pytest.mark.anyio


async def run(url: str, statement: str) -> None:
    async with connect(url) as postgres, postgres.transaction() as connection:
        await connection.script(statement)


async def test_an_empty_database_gets_its_tables_from_the_first_of_many(postgres_url: str) -> None:
    states = []

    async def prepare() -> None:
        async with connect(postgres_url) as postgres:
            states.append((await migrate(postgres)).state)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(prepare)
    assert sorted(states) == ["empty", "ready", "ready", "ready"]
    async with connect(postgres_url) as postgres:
        assert await inspect(postgres) == await migrate(postgres)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE version SET number = 0", "another program"),
        ("UPDATE version SET number = 1", "has format 1,.*quarterdeck db migrate"),
        (f"UPDATE version SET number = {len(STEPS) + 1}", "newer Quarterdeck.*upgrade"),
        ("DROP TABLE version", "another program"),
        (
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on',"
            " current_database()); END $$",
            "read-only; use the primary",
        ),
    ],
)
async def test_a_database_that_cannot_be_used_is_a_sentence(
    postgres_url: str, statement: str, sentence: str
) -> None:
    async with open_postgres_store(postgres_url):
        pass
    await run(postgres_url, statement)
    try:
        with pytest.raises(StartRefused, match=sentence):
            async with open_postgres_store(postgres_url):
                pass
    finally:
        reset = "ALTER DATABASE %I RESET default_transaction_read_only"
        await run(
            postgres_url,
            f"SET default_transaction_read_only = off; SET transaction_read_only = off;"
            f" DO $$ BEGIN EXECUTE format('{reset}', current_database()); END $$",
        )

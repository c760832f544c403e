"""Open stores for tests: the tables of runner.db and of hub.db, each in a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quarterdeck.hub.store import SqliteHubStore, open_sqlite_store
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.runner.store import RunnerStore
from quarterdeck.storage.database import open_database


@asynccontextmanager
async def runner_store(folder: Path) -> AsyncIterator[RunnerStore]:
    async with open_database(folder / "runner.db", RUNNER_TABLES) as database:
        yield RunnerStore(database)


@asynccontextmanager
async def hub_store(folder: Path) -> AsyncIterator[SqliteHubStore]:
    async with open_sqlite_store(folder) as store:
        yield store

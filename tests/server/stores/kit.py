"""Open stores for tests: the tables of runner.db and of hub.db, each in a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quarterdeck.server.database import open_database
from quarterdeck.server.hub_store import HUB_TABLES, HubStore
from quarterdeck.server.runner_store import RunnerStore
from quarterdeck.server.tables import RUNNER_TABLES


@asynccontextmanager
async def runner_store(folder: Path) -> AsyncIterator[RunnerStore]:
    async with open_database(folder / "runner.db", RUNNER_TABLES) as database:
        yield RunnerStore(database)


@asynccontextmanager
async def hub_store(folder: Path) -> AsyncIterator[HubStore]:
    async with open_database(folder / "hub.db", HUB_TABLES) as database:
        yield HubStore(database)

"""`PostgresHubStore`: the hub's own data in PostgreSQL, so that it outlives the hub's machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from quarterdeck.errors import DatabaseFailed, StartRefused
from quarterdeck.hub.postgres.connection import Postgres, connect
from quarterdeck.hub.postgres.devices import (
    PostgresDeviceKeyStore,
    PostgresDeviceStore,
    PostgresPairingStore,
)
from quarterdeck.hub.postgres.fleet import PostgresFleetStore, PostgresMachineStore
from quarterdeck.hub.postgres.log import PostgresHubLog
from quarterdeck.hub.postgres.push import PostgresPushStore
from quarterdeck.hub.postgres.schema import inspect, migrate, refusal
from quarterdeck.storage import CompactedFile
from quarterdeck.storage.reserve import Reserve
from quarterdeck.wire import background_tasks

LOCK_SECONDS: Final = 10.0
"""Longer than a hub takes to end."""


class PostgresHubStore:
    """`HubStore` in PostgreSQL."""

    def __init__(self, postgres: Postgres, reserve: Reserve | None = None) -> None:
        self.reserve = reserve
        self._postgres = postgres
        self.devices = PostgresDeviceStore(postgres)
        self.device_keys = PostgresDeviceKeyStore(postgres)
        self.pairings = PostgresPairingStore(postgres)
        self.push = PostgresPushStore(postgres)
        self.machines = PostgresMachineStore(postgres)
        self.fleet = PostgresFleetStore(postgres)
        self.log = PostgresHubLog(postgres)

    @property
    def problem(self) -> str | None:
        return self._postgres.problem

    async def compact(self) -> list[CompactedFile]:
        return []  # PostgreSQL does it by itself


@asynccontextmanager
async def open_postgres_store(
    url: str, reserve: Reserve | None = None, *, lock_seconds: float = LOCK_SECONDS
) -> AsyncIterator[PostgresHubStore]:
    """Connect to a database, and create its tables if it is empty.

    `lock_seconds`: how long to wait for another hub that is ending.

    Raises:
        StartRefused: if it cannot be reached, or is not one that this version can use.
    """
    async with connect(url) as postgres:
        try:
            found = await inspect(postgres)
            if found.state == "empty":
                await migrate(postgres)
            elif found.state != "ready":
                raise refusal(postgres.name, found)
            await postgres.own(lock_seconds)
        except DatabaseFailed as error:
            reason = f"the database {postgres.name} cannot be used ({error.reason})"
            raise StartRefused(reason, error.remedy) from error
        async with background_tasks() as tasks:
            tasks.start_soon(postgres.watch)
            yield PostgresHubStore(postgres, reserve)

"""`HubStore`: the hub's own data, as methods that are one transaction each.

It holds what belongs to people: devices, their keys and their history, pairings, push
subscriptions, other machines. What agents need while no device is connected is in runner.db.

There are two implementations: hub.db, a SQLite file in the data folder (`SqliteHubStore`), and
PostgreSQL (`hub.postgres`). `tests/hub/test_store.py` is the contract of both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from quarterdeck.hub.auth.device_keys import (
    DEVICE_KEY_TABLES,
    DeviceKeyStore,
    SqliteDeviceKeyStore,
)
from quarterdeck.hub.auth.device_store import (
    DEVICE_LOG_TABLES,
    DEVICE_TABLES,
    DeviceStore,
    SqliteDeviceStore,
)
from quarterdeck.hub.auth.pairing_store import PAIRING_TABLES, PairingStore, SqlitePairingStore
from quarterdeck.hub.fleet.machines import MACHINE_TABLES, MachineStore, SqliteMachineStore
from quarterdeck.hub.fleet.store import FLEET_TABLES, FleetStore, SqliteFleetStore
from quarterdeck.hub.log import HubLog, SqliteHubLog
from quarterdeck.hub.push.store import PUSH_TABLES, PushStore, SqlitePushStore
from quarterdeck.storage import CompactedFile
from quarterdeck.storage.database import Database, Tables, open_database
from quarterdeck.storage.reserve import Reserve

DATABASE: Final = "hub.db"
MACHINES: Final = "machines"
"""The folder beside hub.db with the copies of other machines' logs."""
MOVED: Final = ("agents", "prompts", "decisions")
"""Tables that hub.db had before runner.db existed."""


class HubStore(Protocol):
    """The hub's data, by feature. Every method raises `DatabaseFailed` if the database fails."""

    @property
    def reserve(self) -> Reserve | None:
        """Holds what must not be lost while the database cannot be written."""

    @property
    def devices(self) -> DeviceStore: ...

    @property
    def device_keys(self) -> DeviceKeyStore: ...

    @property
    def pairings(self) -> PairingStore: ...

    @property
    def push(self) -> PushStore: ...

    @property
    def machines(self) -> MachineStore: ...

    @property
    def fleet(self) -> FleetStore: ...

    @property
    def log(self) -> HubLog:
        """The copies of other machines' logs."""

    @property
    def problem(self) -> str | None:
        """Why the database cannot be used at the moment, if that is known; None: it works."""

    async def compact(self) -> list[CompactedFile]:
        """Give free space back to the disk; return the files of this store."""


# ---- hub.db ------------------------------------------------------------------------------------


def _drop_moved(connection: sqlite3.Connection) -> None:
    for name in MOVED:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute("DELETE FROM parts WHERE name = ?", (name,))


HUB_TABLES: Final = (
    DEVICE_TABLES,
    DEVICE_LOG_TABLES,
    DEVICE_KEY_TABLES,
    PAIRING_TABLES,
    *PUSH_TABLES,
    FLEET_TABLES,
    # A version that does not know this part refuses the file, instead of creating the tables again.
    Tables("split", (_drop_moved,)),
    MACHINE_TABLES,
)


class SqliteHubStore:
    """`HubStore` in hub.db."""

    problem = None  # a failure of SQLite is known when a method raises it, and no earlier

    def __init__(self, database: Database, reserve: Reserve | None = None) -> None:
        self.reserve = reserve
        self._database = database
        self.devices = SqliteDeviceStore(database)
        self.device_keys = SqliteDeviceKeyStore(database)
        self.pairings = SqlitePairingStore(database)
        self.push = SqlitePushStore(database)
        self.machines = SqliteMachineStore(database)
        self.fleet = SqliteFleetStore(database)
        self.log = SqliteHubLog(database.path.parent / MACHINES)

    async def compact(self) -> list[CompactedFile]:
        return [await self._database.compact()]


@asynccontextmanager
async def open_sqlite_store(
    folder: Path, reserve: Reserve | None = None
) -> AsyncIterator[SqliteHubStore]:
    """Open or create hub.db in a folder.

    Raises:
        StartRefused: if the file is not ours, damaged, or written by a newer version.
    """
    async with open_database(folder / DATABASE, HUB_TABLES, moved_away=MOVED) as database:
        yield SqliteHubStore(database, reserve)

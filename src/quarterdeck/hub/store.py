"""`HubStore`: everything in hub.db, as methods that are one transaction each.

hub.db holds what belongs to people: devices, their keys and their history, pairings, push
subscriptions. What agents need while no device is connected is in runner.db.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from quarterdeck.hub.auth.device_keys import DEVICE_KEY_TABLES, DeviceKeyStore
from quarterdeck.hub.auth.device_store import DEVICE_LOG_TABLES, DEVICE_TABLES, DeviceStore
from quarterdeck.hub.auth.pairing_store import PAIRING_TABLES, PairingStore
from quarterdeck.hub.push.store import PUSH_TABLES, PushStore
from quarterdeck.storage.database import Database, Tables
from quarterdeck.storage.reserve import Reserve

MOVED: Final = ("agents", "prompts", "decisions")
"""Tables that hub.db had before runner.db existed."""


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
    # A version that does not know this part refuses the file, instead of creating the tables again.
    Tables("split", (_drop_moved,)),
)


class HubStore:
    """The tables of hub.db, by feature."""

    def __init__(self, database: Database, reserve: Reserve | None = None) -> None:
        """`reserve` holds what must not be lost while the disk is full."""
        self.reserve = reserve
        self.devices = DeviceStore(database)
        self.device_keys = DeviceKeyStore(database)
        self.pairings = PairingStore(database)
        self.push = PushStore(database)

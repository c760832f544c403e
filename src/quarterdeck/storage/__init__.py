"""Logs: every event of every session, numbered, stored before it is published."""

from quarterdeck.storage.contract import (
    MOST_PAGE_BYTES,
    CompactedFile,
    ImmediateStorage,
    Lifecycle,
    SessionMeta,
    Storage,
    Stored,
)
from quarterdeck.storage.integrity import (
    CheckedStorage,
    Damage,
    LogEpoch,
    UnconfirmedStorage,
    damages_of,
    epoch_of,
)
from quarterdeck.storage.jsonl import JsonlStorage
from quarterdeck.storage.memory import MemoryStorage
from quarterdeck.storage.sqlite import SqliteStorage

__all__ = [
    "MOST_PAGE_BYTES",
    "CheckedStorage",
    "CompactedFile",
    "Damage",
    "ImmediateStorage",
    "JsonlStorage",
    "Lifecycle",
    "LogEpoch",
    "MemoryStorage",
    "SessionMeta",
    "SqliteStorage",
    "Storage",
    "Stored",
    "UnconfirmedStorage",
    "damages_of",
    "epoch_of",
]

"""The log on disk: every event of every session, numbered, stored before anybody sees it."""

from quarterdeck.storage.contract import ImmediateStorage, Lifecycle, SessionMeta, Storage, Stored
from quarterdeck.storage.jsonl import JsonlStorage
from quarterdeck.storage.memory import MemoryStorage
from quarterdeck.storage.sqlite import SqliteStorage

__all__ = [
    "ImmediateStorage",
    "JsonlStorage",
    "Lifecycle",
    "MemoryStorage",
    "SessionMeta",
    "SqliteStorage",
    "Storage",
    "Stored",
]

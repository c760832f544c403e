"""The log on disk: every event of every session, numbered, stored before anybody sees it."""

from quarterdeck.storage.base import ImmediateStorage, Storage
from quarterdeck.storage.jsonl import JsonlStorage
from quarterdeck.storage.memory import MemoryStorage
from quarterdeck.storage.records import Lifecycle, SessionMeta, Stored
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

"""Logs: every event of every session, numbered, stored before it is published."""

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

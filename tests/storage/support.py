"""What several tests of storages need: events in one line, the back ends, a disk that is full."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import UNSET

from quarterdeck.protocol import decode_event, encode_event, make_session_event
from quarterdeck.storage import (
    JsonlStorage,
    MemoryStorage,
    SessionMeta,
    SqliteStorage,
    Storage,
    Stored,
    row_sums,
)

ANY_STORAGE: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _: MemoryStorage(),
    "jsonl": lambda folder: JsonlStorage(folder / "log.jsonl"),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
    "sqlite, full": lambda folder: SqliteStorage(folder / "log.db", synchronous="full"),
}
IN_MEMORY = ("memory",)
DURABLE = [name for name in ANY_STORAGE if name not in IN_MEMORY]
AnyStorage = TypeVar("AnyStorage", bound=Storage)


def stored(session_id: str, seq: int, text: str = "hello") -> Stored:
    event = make_session_event(
        "agent-message-chunk",
        session_id,
        seq=seq,
        ts=1718000000000 + seq,
        payload={"content": {"type": "text", "text": text}},
    )
    return Stored(session_id, seq, encode_event(event))


def run_of(session_id: str, first: int, last: int, text: str = "hello") -> list[Stored]:
    return [stored(session_id, seq, text) for seq in range(first, last + 1)]


def meta(session_id: str, title: str | None = None) -> SessionMeta:
    return SessionMeta(session_id=session_id, cwd="/work", title=UNSET if title is None else title)


@asynccontextmanager
async def opened(storage: AnyStorage) -> AsyncIterator[AnyStorage]:
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


async def seqs(storage: Storage, session_id: str, *, page: int = 1_000) -> list[int]:
    """Return the numbers of all events of a session, read page by page."""
    numbers: list[int] = []
    while True:
        last = numbers[-1] if numbers else 0
        events = await storage.read(session_id, last, page)
        if not events:
            return numbers
        numbers += [decode_event(event).seq for event in events]


async def last_seqs(storage: Storage) -> dict[str, int]:
    return {meta.session_id: meta.last_seq for meta in await storage.sessions()}


@contextmanager
def full_disk(file_bytes: int) -> Iterator[None]:
    """Let no file grow beyond `file_bytes`, as if the disk were full; needs no root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def unwritable_folder(folder: Path) -> Path:
    """Return a folder in which this user cannot create a file, root included."""
    folder.chmod(0o555)
    return folder if not os.access(folder, os.W_OK) else Path("/proc/self")


@contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    """Change rows of runner.db or hub.db as if this program had stored them so."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection
        row_sums.seal(connection)

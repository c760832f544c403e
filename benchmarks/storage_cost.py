"""What storing and reading events costs, for every storage.

    PYTHONPATH=src python benchmarks/storage_cost.py [events] [folder]

Prints JSON lines. `append`: events per second, processor time of all threads per event, and how
long a caller waits for its batch. `callers`: 16 sessions that each wait for every event.
The folder should be on the disk in question; the default is the one for temporary files.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
from measure import percentiles

from quarterdeck.protocol import encode_event, make_session_event
from quarterdeck.storage import (
    JsonlStorage,
    MemoryStorage,
    SessionMeta,
    SqliteStorage,
    Storage,
    Stored,
)

STORAGES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _: MemoryStorage(),
    "jsonl": lambda folder: JsonlStorage(folder / "log.jsonl"),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
    "sqlite-full": lambda folder: SqliteStorage(folder / "log.db", synchronous="full"),
}
BATCHES = (1, 10, 100, 1_000)
MOST_BATCHES = 2_000  # enough for a median; a batch of one is slow
PAGE = 1_000
CALLERS = 16
SESSIONS = 10_000


def events(session_id: str, count: int, first: int = 1) -> list[Stored]:
    """Return events of about 300 bytes, the size of a streamed sentence."""
    payload = {"messageId": "m1", "content": {"type": "text", "text": "x" * 150}}
    return [
        Stored(
            session_id,
            seq,
            encode_event(
                make_session_event(
                    "agent-message-chunk", session_id, seq=seq, ts=1718000000000, payload=payload
                )
            ),
        )
        for seq in range(first, first + count)
    ]


def report(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


class Cost:
    """Wall-clock and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def per(self, count: int) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {
            "count": count,
            "per_second": round(count / wall),
            "cpu_us": round(cpu / count * 1e6, 2),
            "ms": round(wall * 1e3, 1),
        }


def slices(batch: list[Stored], size: int) -> Iterator[list[Stored]]:
    for first in range(0, len(batch), size):
        yield batch[first : first + size]


async def append(name: str, storage: Storage, size: int, total: int) -> None:
    batch = events(f"batches of {size}", min(total, size * MOST_BATCHES))
    waits = []
    cost = Cost()
    for part in slices(batch, size):
        begun = time.perf_counter()
        await storage.append(part)
        waits.append(time.perf_counter() - begun)
    figures = cost.per(len(batch))
    report(storage=name, what="append", batch=size, **figures, **percentiles(waits))


async def append_from_many_callers(name: str, storage: Storage) -> None:
    waits: list[float] = []

    async def call(batch: list[Stored]) -> None:
        for event in batch:
            begun = time.perf_counter()
            await storage.append([event])
            waits.append(time.perf_counter() - begun)

    prepared = [events(f"caller {number}", 250) for number in range(CALLERS)]
    cost = Cost()
    async with anyio.create_task_group() as tasks:
        for batch in prepared:
            tasks.start_soon(call, batch)
    report(
        storage=name, what="callers", callers=CALLERS, **cost.per(len(waits)), **percentiles(waits)
    )


async def read(name: str, storage: Storage) -> None:
    session_id, seq = f"batches of {BATCHES[-1]}", 0
    cost = Cost()
    while page := await storage.read(session_id, seq, PAGE):
        seq += len(page)
    report(storage=name, what="read", page=PAGE, **cost.per(seq))


async def list_sessions(name: str, make: Callable[[Path], Storage], folder: Path) -> None:
    storage = make(folder)
    await storage.open()
    metas = [
        SessionMeta(
            session_id=f"session-{number:06}",
            agent_definition_id="agent",
            cwd=f"/home/alice/project-{number}",
            mcp_servers=({"name": "files", "command": "server", "args": [], "env": []},),
            title=f"What was asked first in session {number}",
        )
        for number in range(SESSIONS)
    ]
    await storage.append([*metas, *(events(meta.session_id, 1)[0] for meta in metas)])
    await storage.close()
    cost = Cost()
    await storage.open()
    listed = await storage.sessions()
    report(storage=name, what="open and list sessions", **cost.per(len(listed)))
    await storage.close()


async def main(total: int, parent: str | None) -> None:
    for name, make in STORAGES.items():
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            storage = make(Path(folder))
            await storage.open()
            for size in BATCHES:
                await append(name, storage, size, total)
            await append_from_many_callers(name, storage)
            await read(name, storage)
            await storage.close()
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            await list_sessions(name, make, Path(folder))


if __name__ == "__main__":
    anyio.run(
        main,
        int(sys.argv[1]) if len(sys.argv) > 1 else 100_000,
        sys.argv[2] if len(sys.argv) > 2 else None,
    )

"""What the fault tests share: agents, subscribers, and a storage that can be made to fail."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.host import Host, HostOptions
from quarterdeck.machine.guard_program import living_descendants
from quarterdeck.protocol import Event, decode_event
from quarterdeck.storage import SessionMeta, SqliteStorage, Storage, Stored
from quarterdeck.testing import scripted_agent

HERE = Path(__file__).parent
PATIENCE = 100  # on a busy machine; what floods a host takes seconds of its processor


def scripted(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the definition of an agent that plays these steps in every turn."""
    scenario = {"name": "faulty", "turns": [{"steps": list(steps)}], **more}
    return definition(scripted_agent(scenario, pace=0.0))


def flooding(count: int) -> list[str]:
    """Return the command of an agent that answers a prompt with `count` updates."""
    return [sys.executable, "-I", "-S", str(HERE / "flood_agent.py"), str(count)]


def definition(command: Sequence[str]) -> dict[str, Any]:
    return {"id": "faulty", "command": command[0], "args": list(command[1:])}


class Seen:
    """Collects events; a test waits for what it needs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed: anyio.Event | None = None  # exists while a test waits

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def first(self, kind: str, **payload: Any) -> Event:
        looked_at = 0
        while True:
            for event in self.events[looked_at:]:
                if event.type == kind and payload.items() <= event.payload.items():
                    return event
            looked_at = len(self.events)
            await self._change()

    async def count(self, least: int) -> None:
        while len(self.events) < least:
            await self._change()

    async def _change(self) -> None:
        self._changed = self._changed or anyio.Event()
        await self._changed.wait()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.payload) for event in self.events if event.type == kind]

    @property
    def is_dense(self) -> bool:
        return [event.seq for event in self.events] == list(range(1, len(self.events) + 1))


@asynccontextmanager
async def running(storage: Storage | None = None, **options: Any) -> AsyncIterator[Host]:
    with anyio.fail_after(PATIENCE):
        async with Host(HostOptions(storage=storage, **options)) as host:
            yield host


@asynccontextmanager
async def prompted(
    host: Host, agent: dict[str, Any], cwd: Path
) -> AsyncIterator[tuple[str, Seen, Seen]]:
    """Start a turn in the background; yield the session and the events of it and of the host."""
    host_seen = Seen()
    host.subscribe(None, 0, host_seen)
    spawned = await host.spawn_agent(agent)
    session = await host.create_session(spawned.agent_id, cwd=str(cwd))
    seen = Seen()
    host.subscribe(session.session_id, 0, seen)

    async def prompt() -> None:
        await host.prompt(session.session_id, "go")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prompt)
        yield session.session_id, seen, host_seen
        tasks.cancel_scope.cancel()


async def agent_processes(host_seen: Seen) -> list[int]:
    """Return the guard of the first agent, the agent, and whatever that started."""
    spawned = await host_seen.first("diagnostic", code="agent/spawn")
    guard = spawned.payload["data"]["pid"]
    return [guard, *living_descendants(guard)]


async def agent_process(host_seen: Seen) -> int:
    """Return the first agent itself, without its guard."""
    (agent,) = [pid for pid in await agent_processes(host_seen) if not _is_guard(pid)]
    return agent


def _is_guard(pid: int) -> bool:
    return b"guard_program" in Path(f"/proc/{pid}/cmdline").read_bytes()


async def gone(pids: Sequence[int]) -> None:
    """Wait until none of these processes lives."""
    with anyio.fail_after(PATIENCE):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - not a child: its end cannot be awaited
            await anyio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def stored(path: Path, session_id: str) -> list[Event]:
    """Open a log that is not in use, and read all of a session."""
    log = SqliteStorage(path)
    await log.open()
    try:
        return [decode_event(data) for data in await log.read(session_id, 0, 1_000_000)]
    finally:
        await log.close()


class FailingStorage:
    """SQLite, but the next `failures` appends fail, and the next `failing_reads` reads."""

    def __init__(self, path: Path) -> None:
        self._real = SqliteStorage(path)
        self.failures = 0
        self.last_seqs: Counter[str] = Counter()
        self.failing_reads = 0
        self.largest_batch = 0

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def is_immediate(self) -> bool:
        return False

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        raise NotImplementedError

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        self.largest_batch = max(self.largest_batch, len(batch))
        if self.failures:
            self.failures -= 1
            raise StorageFailed("the log", "no space left", "make room")
        await self._real.append(batch)
        for record in batch:
            if isinstance(record, Stored):
                self.last_seqs[record.session_id] = record.seq

    async def open(self) -> None:
        await self._real.open()

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        if self.failing_reads:
            self.failing_reads -= 1
            raise StorageFailed("the log", "disk I/O error", "check the disk")
        return await self._real.read(session_id, after, limit)

    async def sessions(self) -> list[SessionMeta]:
        return await self._real.sessions()

    async def delete_events(self, session_id: str) -> None:
        await self._real.delete_events(session_id)

    async def close(self) -> None:
        await self._real.close()

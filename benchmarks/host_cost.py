"""What a host costs, from an agent's output to a subscriber's callback.

    PYTHONPATH=src python benchmarks/host_cost.py [folder]

Prints JSON lines, each measured in a process of its own: `stream` (100,000 updates of one kind to
one or a hundred subscribers), `replay` (100,000 stored events to a late subscriber) and `latency`
(one update at a time, from the agent's write to the callback). CPU time is that of the host's
process, all threads; the agent's is not in it. The folder should be on the disk in question.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from measure import Stopwatch, percentiles
from traffic import SESSION, write_traffic

from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import Event
from quarterdeck.storage import MemoryStorage, SqliteStorage, Storage

HERE = Path(__file__).parent
TRAFFIC = HERE.parent / "build/benchmarks"
STORAGES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _folder: MemoryStorage(),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
}
TURNS = 300
PEER = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import peer
peer.RESULTS[b'"session/new"'] = b'{{"sessionId":"{SESSION}"}}'
peer.main()
"""
LATENCY_AGENT = """
import json, sys, time
results = {"initialize": {"protocolVersion": 1}, "session/new": {"sessionId": "SESSION"}}
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "session/prompt":
        time.sleep(0.003)
        content = {"type": "text", "text": str(time.perf_counter())}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": "SESSION", "update": update}
        note = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        print(json.dumps(note), flush=True)
        time.sleep(0.003)
    result = results.get(request["method"], {"stopReason": "end_turn"})
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
""".replace("SESSION", SESSION)


class Counter:
    """A subscriber that does as little as one can."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _event: Event) -> None:
        self.count += 1


@asynccontextmanager
async def session(storage: Storage, *command: str) -> AsyncIterator[tuple[Host, str]]:
    async with Host(HostOptions(storage=storage)) as host:
        agent = await host.spawn_agent({"id": "peer", "command": command[0], "args": command[1:]})
        created = await host.create_session(agent.agent_id, cwd="/")
        yield host, created.session_id


def peer(kind: str) -> tuple[str, ...]:
    return (sys.executable, "-c", PEER, str(TRAFFIC / f"{kind}.ndjson"))


async def stream(storage: Storage, kind: str, subscribers: str) -> None:
    async with session(storage, *peer(kind)) as (host, session_id):
        counter = Counter()
        host.subscribe(session_id, 0, counter)
        for _ in range(int(subscribers) - 1):
            # In C, so that what is measured is the host and not a hundred callbacks.
            host.subscribe(session_id, 0, deque[Event](maxlen=1).append)
        watch = Stopwatch()
        await host.prompt(session_id, "go")
        watch.report(counter.count)


async def replay(storage: Storage, kind: str) -> None:
    async with session(storage, *peer(kind)) as (host, session_id):
        all_along, late, caught_up = Counter(), Counter(), anyio.Event()
        host.subscribe(session_id, 0, all_along)
        await host.prompt(session_id, "go")

        def count(event: Event) -> None:
            late(event)
            if event.seq == all_along.count:
                caught_up.set()

        watch = Stopwatch()
        host.subscribe(session_id, 0, count)
        await caught_up.wait()
        watch.report(late.count)


async def latency(storage: Storage) -> None:
    seconds: list[float] = []

    def arrived(event: Event) -> None:
        if event.type == "agent-message-chunk":
            seconds.append(time.perf_counter() - float(event.payload["content"]["text"]))

    async with session(storage, sys.executable, "-c", LATENCY_AGENT) as (host, session_id):
        host.subscribe(session_id, 0, arrived)
        watch = Stopwatch()
        for _ in range(TURNS):
            await host.prompt(session_id, "go")
        watch.report(len(seconds), **percentiles(seconds))


MEASURES: dict[str, Callable[..., Awaitable[None]]] = {
    "stream": stream,
    "replay": replay,
    "latency": latency,
}
RUNS: list[tuple[str, ...]] = [
    *(("stream", s, kind, n) for s in STORAGES for kind in ("mix", "chunks") for n in ("1", "100")),
    *(("replay", storage, "mix") for storage in STORAGES),
    *(("latency", storage) for storage in STORAGES),
]


def run_all(folder: Path) -> None:
    for run in RUNS:
        with tempfile.TemporaryDirectory(dir=folder) as logs:
            command = [sys.executable, __file__, logs, *run]
            line = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        names = dict(zip(("run", "storage", "traffic", "subscribers"), run, strict=False))
        print(json.dumps({**names, **json.loads(line)}), flush=True)


def main() -> None:
    folder, *run = sys.argv[1:] or [tempfile.gettempdir()]
    write_traffic(TRAFFIC)
    if not run:
        run_all(Path(folder))
        return
    what, storage, *arguments = run
    anyio.run(MEASURES[what], STORAGES[storage](Path(folder)), *arguments)


if __name__ == "__main__":
    main()

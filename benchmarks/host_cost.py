"""What a host costs, from an agent's output to a subscriber's callback.

    PYTHONPATH=src python benchmarks/host_cost.py WHAT STORAGE [TRAFFIC [SUBSCRIBERS]]

Prints one JSON line. WHAT is `stream` (100,000 updates to one or a hundred subscribers), `replay`
(100,000 stored events to a late subscriber), `latency` (one update at a time, from the agent's
write to the callback), `idle` (memory of idle sessions) or `long` (memory after a
million events). CPU time is that of the host's process, all threads; the agent's is not in it.
The log is on the disk of this folder.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from measure import Stopwatch, percentiles
from traffic import ACP2, SESSION, write_traffic

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
if b'"protocolVersion":2' in VERSION:
    peer.RESULTS[b'"initialize"'] = VERSION
    peer.RESULTS[b'"session/prompt"'] = b'{{"messageId":"prompt"}}'
peer.main()
"""
ACP2_ANSWER = (
    b'{"protocolVersion":2,"info":{"name":"p","version":"1"},"capabilities":{"session":{}}}'
)
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


IDLE_SESSIONS = 1000
IDLE_AGENT = """
import itertools, json, sys
numbers = itertools.count(1)
for line in sys.stdin:
    request = json.loads(line)
    result = {"protocolVersion": 1}
    if request["method"] == "session/new":
        result = {"sessionId": f"sess-{next(numbers)}"}
    elif request["method"] == "session/prompt":
        content = {"type": "text", "text": "a few words of an answer"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        params = {"sessionId": request["params"]["sessionId"], "update": update}
        print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}))
        result = {"stopReason": "end_turn"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


class Counter:
    """A subscriber that does as little as one can."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _event: Event) -> None:
        self.count += 1


@asynccontextmanager
async def session(storage: Storage, *command: str) -> AsyncIterator[tuple[Host, str]]:
    definition: dict[str, object] = {"id": "peer", "command": command[0], "args": command[1:]}
    if ACP2 in command[-1]:
        definition["protocol"] = 2
    async with Host(HostOptions(storage=storage)) as host:
        agent = await host.spawn_agent(definition)
        created = await host.create_session(agent.agent_id, cwd="/")
        yield host, created.session_id


def peer(kind: str) -> tuple[str, ...]:
    version = ACP2_ANSWER if kind.startswith(ACP2) else b""
    program = f"VERSION = {version!r}\n{PEER}"
    return (sys.executable, "-c", program, str(TRAFFIC / f"{kind}.ndjson"))


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


def memory_mb() -> float:
    """Return what this process has in memory now, after what is free was given back."""
    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("VmRSS")


async def idle(storage: Storage) -> None:
    """Idle sessions, after one turn of a chunk each."""
    async with session(storage, sys.executable, "-c", IDLE_AGENT) as (host, _first):
        agent_id = host.get_agents()[0].agent_id
        for _ in range(100):  # so that what is needed once is there
            await host.create_session(agent_id, cwd="/")
        before = memory_mb()
        for _ in range(IDLE_SESSIONS):
            created = await host.create_session(agent_id, cwd="/")
            await host.prompt(created.session_id, "go")
        kilobytes = (memory_mb() - before) * 1024 / IDLE_SESSIONS
        print(json.dumps({"sessions": IDLE_SESSIONS, "kb_per_session": round(kilobytes, 1)}))


async def long_session(storage: Storage, kind: str) -> None:
    """What a session of ten thousand events, then a million, leaves in memory."""
    async with session(storage, *peer(kind)) as (host, session_id):
        counter = Counter()
        host.subscribe(session_id, 0, counter)
        before, after = memory_mb(), []
        for _ in range(10):
            await host.prompt(session_id, "go")
            after.append(memory_mb() - before)
        print(json.dumps({"count": counter.count, "mb_after_first": round(after[0], 1),
                          "mb_after_last": round(after[-1], 1)}))  # fmt: skip


MEASURES: dict[str, Callable[..., Awaitable[None]]] = {
    "stream": stream,
    "replay": replay,
    "latency": latency,
    "idle": idle,
    "long": long_session,
}


def main() -> None:
    what, storage, *arguments = sys.argv[1:]
    write_traffic(TRAFFIC)
    with tempfile.TemporaryDirectory(dir=TRAFFIC) as folder:
        anyio.run(MEASURES[what], STORAGES[storage](Path(folder)), *arguments)


if __name__ == "__main__":
    main()

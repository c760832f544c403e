"""What copies of logs cost in PostgreSQL: a private cluster that syncs to the disk.

    PYTHONPATH=src python benchmarks/database_cost.py WHAT

Prints one JSON line. WHAT is
    append      events of 50 sessions, one at a time each, stored as they come
    runs        the same in runs of 16
    read        100,000 rows of one event each, read in pages of 512
CPU of PostgreSQL is that of all its processes; the client is this process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quarterdeck.hub.log import LogCursor, LogRun
from quarterdeck.hub.postgres import connect, migrate
from quarterdeck.hub.postgres.log import PostgresHubLog
from tests.postgres_server import Cluster

EVENT = (
    b'{"sessionId":"sess-1","seq":%d,"ts":1718000000000,"type":"agent-message-chunk",'
    b'"payload":{"content":{"type":"text","text":"' + b"lorem ipsum " * 16 + b'"},"messageId":"m"}}'
)
SESSIONS, EVENTS, ROWS, PAGE = 50, 20_000, 100_000, 512
SPACE = "m1"


def cpu_seconds(cluster: Cluster) -> float:
    """Return the CPU that all processes of a cluster have used, those that have ended as well."""
    assert cluster.process is not None
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == cluster.process.pid or int(folder.name) == cluster.process.pid:
            ticks += sum(map(int, fields[11:13]))
        if int(folder.name) == cluster.process.pid:
            ticks += sum(map(int, fields[13:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def open_log() -> AsyncIterator[tuple[Cluster, PostgresHubLog]]:
    cluster = Cluster.create()
    try:
        cluster.start(fsync="on", full_page_writes="on", autovacuum="on", shared_buffers="128MB")
        async with connect(cluster.url("postgres")) as postgres:
            await migrate(postgres)
            log = PostgresHubLog(postgres)
            await log.open_space(SPACE)
            yield cluster, log
    finally:
        cluster.remove()


async def append(per_run: int) -> dict[str, float]:
    async with open_log() as (cluster, log):
        times: list[float] = []

        async def write(session: str) -> None:
            head = await log.claim(SPACE, session, "hub", take=True)
            assert head is not None
            for last in range(per_run, EVENTS // SESSIONS + 1, per_run):
                events = [EVENT % seq for seq in range(last - per_run + 1, last + 1)]
                began = time.perf_counter()
                await log.append([LogRun(SPACE, session, head.epoch, last, events)])
                times.append(time.perf_counter() - began)

        before, cpu, began = cpu_seconds(cluster), time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(SESSIONS):
                tasks.start_soon(write, f"s{number}")
        wall, count = time.perf_counter() - began, len(times) * per_run
        return {
            "client_us": (time.process_time() - cpu) / count * 1e6,
            "postgres_us": (cpu_seconds(cluster) - before) / count * 1e6,
            "per_second": count / wall,
            "p50_ms": sorted(times)[len(times) // 2] * 1000,
        }


async def read() -> dict[str, float]:
    async with open_log() as (cluster, log):
        head = await log.claim(SPACE, "s", "hub", take=True)
        assert head is not None
        # Rows of one event, as a session has that was followed live: an event of two lines is
        # always alone in its row.
        events = [(EVENT % seq).replace(b",", b",\n", 1) for seq in range(1, ROWS + 1)]
        for start in range(0, ROWS, 1000):
            part = events[start : start + 1000]
            await log.append([LogRun(SPACE, "s", head.epoch, start + len(part), part)])
        before, cpu, began = cpu_seconds(cluster), time.process_time(), time.perf_counter()
        after = 0
        while True:
            (page,) = await log.read([LogCursor(SPACE, "s", after)], PAGE)
            if not page:
                break
            assert page == events[after : after + len(page)]
            after += len(page)
        assert after == ROWS
        return {
            "postgres_s": cpu_seconds(cluster) - before,
            "client_s": time.process_time() - cpu,
            "wall_s": time.perf_counter() - began,
        }


WHAT = {"append": lambda: append(1), "runs": lambda: append(16), "read": read}

if __name__ == "__main__":
    print(json.dumps(anyio.run(WHAT[sys.argv[1]])))

"""A session of hundreds of megabytes: no route needs memory in proportion to it (INV-8).

The log is written by the storage itself, which takes seconds. With QUARTERDECK_LARGE_MB=500 the
session is larger; the memory that each route took is printed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.protocol import encode_event, make_session_event
from quarterdeck.storage import SessionMeta, SqliteStorage, Stored
from tests.hub.api.kit import Client, options, running
from tests.hub.streams.serving import EventParser

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is Linux's"
    ),
]

LARGE_MB = int(os.environ.get("QUARTERDECK_LARGE_MB", "120"))
EVENT_BYTES = 200_000
ROOM_MB = 96
"""What a route may take beside the hub: bounds of caches, one large fold, copies of a page."""
READERS = 16


def event(session_id: str, seq: int) -> Stored:
    kind: str = "user-message-chunk" if seq == 1 else "tool-call-update"
    payload: dict[str, Any]
    if seq == 1:
        payload = {"content": {"type": "text", "text": "the first prompt"}}
    elif seq % 2 == 0:
        kind = "tool-call"
        payload = {"toolCallId": f"call-{seq}", "title": "Edit", "kind": "edit"}
    else:
        diff = {"type": "diff", "path": "/a.py", "oldText": "a\n", "newText": "b" * EVENT_BYTES}
        payload = {"toolCallId": f"call-{seq - 1}", "status": "completed", "content": [diff]}
    made = make_session_event(kind, session_id, seq=seq, ts=1718000000000 + seq, payload=payload)
    return Stored(session_id, seq, encode_event(made))


async def write(home: Path, session_id: str, megabytes: int) -> int:
    """Write a session into the log of a hub; return its last number."""
    storage = SqliteStorage(home / "log.db")
    await storage.open()
    meta = SessionMeta(session_id=session_id, cwd=str(home), lifecycle="closed")
    await storage.append([meta])
    count = megabytes * (1 << 20) // EVENT_BYTES * 2
    for first in range(1, count + 1, 50):
        await storage.append([event(session_id, seq) for seq in range(first, first + 50)])
    await storage.close()
    return first + 49


def peak_mb() -> float:
    """Return the most memory that this process had since `forget_peak`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def forget_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_mb()


async def follow(client: Client, path: str, last: int) -> None:
    """Read a stream to its end, and keep nothing of it."""
    parser, seen = EventParser(), 0
    async with client.http.stream("GET", path) as response:
        async for chunk in response.aiter_bytes():
            for said in parser.feed(chunk):
                if said.name == "message":
                    assert said.data["seq"] == seen + 1
                    seen += 1
            if seen == last:
                return


async def read_history(client: Client, path: str, last: int) -> None:
    seq = pages = 0
    while seq < last:
        page = await client.get(f"{path}/history?from_seq={seq}&limit=5000")
        assert [each["seq"] for each in page["events"]] == list(range(seq + 1, page["nextSeq"] + 1))
        seq, pages = page["nextSeq"], pages + 1
        assert pages <= last
    assert pages > 5  # bounded by bytes


async def read_transcript(client: Client, path: str) -> None:
    page = await client.get(f"{path}/transcript")
    for _ in range(5):
        page = await client.get(f"{path}/transcript?before={page['entries'][0]['seq']}")


async def refused_state(client: Client, path: str) -> None:
    answer = await client.http.get(path)
    assert answer.status_code == 413
    assert "page by page" in answer.json()["error"]["message"]


async def at_once(count: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(work)


async def test_no_route_needs_memory_in_proportion_to_a_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    last = await write(home, "large", LARGE_MB)
    path = "/api/sessions/large"
    async with running(options(home)) as (_hub, client):
        await client.get("/api/hub")
        routes: dict[str, Callable[[], Awaitable[Any]]] = {
            "list": lambda: client.get("/api/sessions"),
            "transcript": lambda: read_transcript(client, path),
            "state": lambda: refused_state(client, path),
            "history": lambda: read_history(client, path, last),
            "stream": lambda: follow(client, f"{path}/events", last),
            f"{READERS} streams": lambda: at_once(
                READERS, lambda: follow(client, f"{path}/events", min(last, 300))
            ),
            f"{READERS} histories": lambda: at_once(
                READERS, lambda: client.get(f"{path}/history?limit=5000")
            ),
        }
        for name, read in routes.items():
            before = forget_peak()
            await read()
            grown = peak_mb() - before
            print(f"{name}: {grown:.0f} MiB more at most, of {LARGE_MB} MiB")  # noqa: T201 - asked for
            # The client of this test holds what it received, in the same process.
            assert grown < ROOM_MB + READERS * 8, name

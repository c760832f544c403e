"""Many readers, readers that vanish, and readers that do not read (INV-2, INV-8)."""

from __future__ import annotations

import json
import random
import re
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from websockets.asyncio.client import connect

from quarterdeck.host import Host
from quarterdeck.hub import Hub, serving as serving_hub
from quarterdeck.storage import SqliteStorage
from tests.host.test_host import agent
from tests.hub.api.kit import options, scripted
from tests.hub.runners import admin_token, runner_of
from tests.hub.streams.serving import (
    Chunks,
    EventParser,
    Reader,
    bare_hub,
    events_of,
    reading,
    serving,
)
from tests.hub.streams.test_sse import opened, stored

pytestmark = pytest.mark.anyio
IDS = re.compile(rb"^id: [0-9a-z]+-(\d+)$", re.MULTILINE)
MANY, FEWER = 100_000, 40_000
Asking = Callable[..., AbstractAsyncContextManager[Reader]]


@pytest.fixture
def files() -> None:
    """Allow as many sockets as a thousand readers and their server need."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))


async def until_nobody_follows(host: Host, session_id: str) -> None:
    stream = (await host.open_log(session_id))._stream  # noqa: SLF001
    with anyio.fail_after(60):
        while stream._run_subscribers:  # noqa: SLF001, ASYNC110
            await anyio.sleep(0.01)


def flood(pieces: int) -> dict[str, Any]:
    return {"repeat": pieces, "steps": [{"say": "a few words of it"}]}


def unread_stream(port: int, session_id: str) -> socket.socket:
    """Ask for a stream with a small buffer, and read nothing."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    raw.connect(("127.0.0.1", port))
    head = f"GET {events_of(session_id)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    raw.sendall(f"{head}Authorization: Bearer view\r\n\r\n".encode())
    return raw


async def drained(raw: socket.socket) -> tuple[list[int], list[str]]:
    """Read all that is left; return numbers and names."""
    data = b""
    async with await SocketStream.from_socket(raw) as stream:
        try:
            while True:
                data += await stream.receive(1 << 20)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
    body = Chunks().feed(data.partition(b"\r\n\r\n")[2])
    said = EventParser().feed(body)
    return [each.data["seq"] for each in said if each.name == "message"], [e.name for e in said]


@asynccontextmanager
async def bare(folder: Path, pieces: int) -> AsyncIterator[tuple[Host, str, Asking]]:
    """Nothing but streams, with the other parser of HTTP."""
    async with Host({"storage": SqliteStorage(folder / "log.db")}) as host:
        session_id = await opened(host, folder, flood(pieces))
        async with serving(bare_hub(host), "h11") as port:
            yield host, session_id, partial(reading, port, events_of(session_id))


@asynccontextmanager
async def whole(folder: Path, pieces: int) -> AsyncIterator[tuple[Host, str, Asking]]:
    """A hub as it is started by people, with its guard and its queue."""
    given = options(folder / "home", demo=scripted(flood(pieces)))
    async with Hub(given) as hub, serving_hub(hub) as address:
        session = await hub.runner.create_session("demo", cwd=str(folder))
        known = {"token": await admin_token(hub)}
        known["host"] = f"127.0.0.1:{address.port}"
        path = events_of(session.session_id)
        yield runner_of(hub).host, session.session_id, partial(reading, address.port, path, **known)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("hub", "pieces"), [(bare, FEWER), (whole, MANY)])
async def test_a_phone_that_reconnects_a_hundred_times_sees_each_event_once(
    tmp_path: Path, hub: Any, pieces: int
) -> None:
    chance = random.Random(pieces)
    async with (
        hub(tmp_path, pieces) as (host, session_id, ask),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(host.prompt, session_id, "x")
        numbers: list[int] = []
        last_id, connections, is_over = "", 0, False
        while not is_over:
            connections += 1
            wanted = len(numbers) + pieces // 160 + chance.randint(0, 20)
            async with ask(last_id=last_id) as reader:
                while len(numbers) < wanted and not is_over:
                    said = await reader.some(chance.choice([7, 900, 9_000]))
                    numbers += [each.data["seq"] for each in said if each.name == "message"]
                    is_over = any(each.data.get("type") == "prompt-finished" for each in said)
                last_id = reader.parser.last_id or last_id
        assert connections >= 100
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > pieces


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_phone_on_a_websocket_that_breaks_a_hundred_times_sees_each_event_once(
    tmp_path: Path,
) -> None:
    async with Host({"storage": SqliteStorage(tmp_path / "log.db")}) as host:
        session_id = await opened(host, tmp_path, flood(FEWER))
        async with serving(bare_hub(host)) as port, anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session_id, "x")
            numbers: list[int] = []
            connections, is_over = 0, False
            while not is_over:
                connections += 1
                wanted = len(numbers) + FEWER // 160
                async with connect(
                    f"ws://127.0.0.1:{port}/api/envelope",
                    additional_headers={"Authorization": "Bearer view"},
                    proxy=None,
                    compression=None,
                ) as client:
                    last = numbers[-1] if numbers else 0
                    asked = {"subscription": "1", "sessionId": session_id, "fromSeq": last}
                    await client.send(json.dumps({"subscribe": asked}))
                    while len(numbers) < wanted and not is_over:
                        events = json.loads(await client.recv()).get("events", [])
                        numbers += [event["seq"] for event in events]
                        is_over = any(event["type"] == "prompt-finished" for event in events)
                    client.transport.abort()  # as a phone in a tunnel does
            assert connections >= 100
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) > FEWER


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_readers_of_one_session_see_each_event_once(
    tmp_path: Path, files: None
) -> None:
    async with Host({"storage": SqliteStorage(tmp_path / "log.db")}) as host:
        session_id = await opened(host, tmp_path, flood(300))
        async with serving(bare_hub(host)) as port, AsyncExitStack() as stack:
            heard: dict[int, bytearray] = {}

            async def follow(index: int, stream: SocketStream) -> None:
                data = heard[index] = bytearray()
                while b'"prompt-finished"' not in data[-70_000:]:
                    data += await stream.receive(65536)

            async with anyio.create_task_group() as tasks:
                for index in range(1000):
                    stream = await SocketStream.from_socket(unread_stream(port, session_id))
                    tasks.start_soon(follow, index, await stack.enter_async_context(stream))
                tasks.start_soon(host.prompt, session_id, "x")
            for data in heard.values():
                ids = [int(found) for found in IDS.findall(bytes(data))]
                assert ids == list(range(1, len(ids) + 1))
                assert len(ids) > 300


def memory_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_clients_that_do_not_read_slow_no_other_and_cost_little_memory(
    tmp_path: Path,
) -> None:
    async with Host({"storage": SqliteStorage(tmp_path / "log.db")}) as host:
        session_id = await opened(host, tmp_path, flood(40_000))
        async with serving(bare_hub(host)) as port, AsyncExitStack() as stack:
            stalled = [stack.enter_context(unread_stream(port, session_id)) for _ in range(50)]
            before = memory_mb()
            async with (
                reading(port, events_of(session_id)) as live,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(host.prompt, session_id, "x")
                numbers = await live.numbers(40_005)
                assert numbers == list(range(1, len(numbers) + 1))
            # With a queue for each it would be 50 times 40,000 events of 200 bytes: 400 MB.
            assert memory_mb() - before < 60
            log = len(await stored(host, session_id))
            data = bytearray()
            async with await SocketStream.from_socket(stalled.pop()) as revived:
                while b"-%d\n" % log not in data[-70_000:]:
                    data += await revived.receive(1 << 20)
            ids = [int(found) for found in IDS.findall(bytes(data))]
            assert ids == list(range(1, log + 1))


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_disconnected_and_catches_up_by_its_cursor(
    tmp_path: Path,
) -> None:
    large = {"say": "0123456789" * 2_000}
    async with Host({"storage": SqliteStorage(tmp_path / "log.db")}) as host:
        session_id = await opened(host, tmp_path, {"repeat": 800, "steps": [large]})
        async with serving(bare_hub(host), tick_seconds=0.02) as port:
            raw = unread_stream(port, session_id)
            await host.prompt(session_id, "x")
            log = len(await stored(host, session_id))
            await until_nobody_follows(host, session_id)
            numbers, names = await drained(raw)
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) < log
            assert set(names) <= {"message", "dropped", "caught-up"}
            query = f"?from_seq={len(numbers)}"
            async with reading(port, events_of(session_id, query)) as reader:
                assert await reader.numbers(log) == list(range(len(numbers) + 1, log + 1))


async def test_quiet_lines_are_kept_alive(tmp_path: Path) -> None:
    async with Host() as host, serving(bare_hub(host), tick_seconds=0.01) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        async with reading(port, events_of(session_id)) as reader:
            await reader.until("caught-up")
            with anyio.fail_after(30):
                while len(reader.parser.comments) < 3:
                    await reader.some()


async def test_a_reader_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with Host() as host, serving(bare_hub(host)) as port:
        spawned = await host.spawn_agent(agent({"say": "hi"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with reading(port, events_of(session.session_id)) as reader:
            await reader.until("caught-up")
        await until_nobody_follows(host, session.session_id)

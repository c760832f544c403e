"""The promises of `docs/understand/reliability.md` that need a host in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from quarterdeck.errors import StorageFailed, StorageRefused
from quarterdeck.host import Host, HostOptions, host as host_module
from quarterdeck.machine.guard_program import living_descendants
from quarterdeck.protocol import Event, decode_event
from quarterdeck.storage import JsonlStorage, SessionMeta, SqliteStorage, Storage, jsonl
from quarterdeck.testing import scripted_agent
from tests.host.faults.kit import HERE, PATIENCE, Seen, definition, flooding, gone, running

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and prlimit"),
]

KINDS = ("log.db", "log.jsonl")
STREAM = 100_000
ROOM = 400_000  # bytes that a disk has left
ASK: dict[str, Any] = {"ask": "edit-1", "title": "Edit", "allowed": [{"say": "done"}]}


def storage_at(path: Path) -> Storage:
    return JsonlStorage(path) if path.suffix == ".jsonl" else SqliteStorage(path)


async def stored(path: Path, session_id: str) -> list[bytes]:
    """Open a log that is not in use, and read all of a session."""
    log = storage_at(path)
    await log.open()
    try:
        return await log.read(session_id, 0, 1_000_000)
    finally:
        await log.close()


class Serving:
    """A host in a process of its own, and what it has printed so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.events: list[bytes] = []
        self.host_seen: list[str] = []
        self.printed: set[str] = set()
        self._rest = b""

    async def begin(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send(b"go\n")

    async def until(self, printed: str) -> None:
        while printed not in self.printed and printed not in self.host_seen:
            assert await self._receive(), f"it ended without {printed}"

    async def count(self, least: int) -> None:
        while len(self.events) < least:
            assert await self._receive(), "it ended too early"

    async def end(self) -> int:
        """Read to the end; return the status it exits with."""
        while await self._receive():
            pass
        return await self.process.wait()

    async def _receive(self) -> bool:
        assert self.process.stdout is not None
        try:
            data = await self.process.stdout.receive(1 << 20)
        except anyio.EndOfStream:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, _, rest = line.partition(b" ")
            if kind == b"event":
                self.events.append(rest)
            elif kind == b"diagnostic":
                self.host_seen.append(rest.decode())
            else:
                self.printed.add(kind.decode())
        return True


@asynccontextmanager
async def serving(log: Path, agent: Sequence[str]) -> AsyncIterator[Serving]:
    program = [sys.executable, str(HERE / "serving_program.py"), str(log), json.dumps(list(agent))]
    with anyio.fail_after(2 * PATIENCE):
        async with await anyio.open_process(program, stderr=None) as process:
            served = Serving(process)
            await served.until("ready")
            yield served


def playing(*steps: dict[str, Any], **more: Any) -> Sequence[str]:
    return scripted_agent({"name": "it", "turns": [{"steps": list(steps)}], **more}, pace=0.0)


def decoded(events: list[bytes]) -> list[Event]:
    return [decode_event(data) for data in events]


def is_dense(events: list[bytes]) -> bool:
    return [event.seq for event in decoded(events)] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("moment", [3, 20_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_p1_all_that_another_process_saw_of_a_killed_host_is_in_its_log(
    kind: str, moment: int, tmp_path: Path
) -> None:
    log = tmp_path / kind
    async with serving(log, flooding(STREAM)) as host:
        await host.begin()
        await host.count(moment)
        os.kill(host.process.pid, signal.SIGKILL)
        await host.end()
    kept = await stored(log, "flood")
    assert len(host.events) < STREAM, "it was killed too late"
    assert kept[: len(host.events)] == host.events
    assert is_dense(kept)


def fill_disk(host: Process, log: Path, room: int) -> None:
    """Let no file of this process grow beyond the largest of the log's by more than `room`."""
    largest = max(path.stat().st_size for path in log.parent.glob(f"{log.name}*"))
    _soft, hard = resource.prlimit(host.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(host.pid, resource.RLIMIT_FSIZE, (largest + room, hard))


def make_room(host: Process) -> None:
    _soft, hard = resource.prlimit(host.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(host.pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("kind", KINDS)
async def test_p7_a_full_disk_holds_up_the_agent_and_loses_nothing(
    kind: str, tmp_path: Path
) -> None:
    flood, log = 20_000, tmp_path / kind
    async with serving(log, flooding(flood)) as host:
        fill_disk(host.process, log, ROOM)
        await host.begin()
        await host.until("storage/write-failed")
        assert "finished" not in host.printed
        make_room(host.process)
        await host.until("finished")
        os.kill(host.process.pid, signal.SIGTERM)
        assert await host.end() == 0
    kept = await stored(log, "flood")
    assert kept == host.events
    assert is_dense(kept)
    printed = [event.payload["content"]["text"] for event in decoded(kept) if _is_message(event)]
    assert [int(text.split()[0]) for text in printed] == list(range(flood))


def _is_message(event: Event) -> bool:
    return event.type == "agent-message-chunk"


@pytest.mark.parametrize("kind", KINDS)
async def test_p7_a_host_with_a_full_disk_can_be_killed_and_its_log_is_whole(
    kind: str, tmp_path: Path
) -> None:
    log = tmp_path / kind
    async with serving(log, flooding(20_000)) as host:
        fill_disk(host.process, log, ROOM)
        await host.begin()
        await host.until("storage/write-failed")
        os.kill(host.process.pid, signal.SIGKILL)
        await host.end()
    kept = await stored(log, "flood")
    assert kept[: len(host.events)] == host.events
    assert is_dense(kept)
    async with running(storage_at(log)) as again:
        (session,) = await again.restore_sessions()
        seen = Seen()
        again.subscribe(session.session_id, 0, seen)
        await seen.first("session-status-change", status="disconnected")
    assert seen.is_dense


@pytest.mark.parametrize("syncs", [0, 1])
async def test_p8_after_a_failed_sync_nothing_more_is_shown_and_the_log_is_what_was_seen(
    syncs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "STORING_SECONDS", 0.5)
    log, seen, host_seen = tmp_path / "log.jsonl", Seen(), Seen()
    real, left = jsonl.flush_to_disk, [syncs]

    def fail(file: int) -> None:
        if not left[0]:
            raise OSError(5, "Input/output error")
        left[0] -= 1
        real(file)

    with anyio.fail_after(PATIENCE):
        async with Host(HostOptions(storage=JsonlStorage(log))) as host:
            host.subscribe(None, 0, host_seen)
            spawned = await host.spawn_agent(definition(playing({"say": "a b", "pieces": 2})))
            session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
            host.subscribe(session.session_id, 0, seen)
            async with anyio.create_task_group() as tasks:
                with monkeypatch.context() as disk:
                    disk.setattr(jsonl, "flush_to_disk", fail)
                    tasks.start_soon(host.prompt, session.session_id, "go")
                    failed = await host_seen.first("diagnostic", code="storage/write-failed")
                shown = len(seen.events)
                with pytest.raises(StorageFailed):
                    await host.options.storage.append([SessionMeta(session_id="s", cwd="/")])
                assert "check the disk, then restart" in failed.payload["message"]
                assert len(seen.events) == shown
                tasks.cancel_scope.cancel()
    monkeypatch.undo()
    kept = decoded(await stored(log, session.session_id))
    assert kept == seen.events


@pytest.mark.parametrize("kind", KINDS)
async def test_p14_a_second_host_is_refused_by_name_until_the_first_is_gone(
    kind: str, tmp_path: Path
) -> None:
    log = tmp_path / kind
    async with serving(log, playing({"stall": True})) as first:
        with pytest.raises(StorageRefused, match=f"process {first.process.pid} is using it"):
            await Host(HostOptions(storage=storage_at(log))).__aenter__()
        os.kill(first.process.pid, signal.SIGKILL)
        await first.end()
    async with running(storage_at(log)) as second:
        assert len(await second.restore_sessions()) == 1


STATES: dict[str, tuple[Sequence[str], bool, int]] = {
    "before the first prompt": (playing({"say": "never"}), False, 2),
    "in the middle of a stream": (flooding(STREAM), True, 1_000),
    "while its agent is silent": (playing({"say": "working"}, {"stall": True}), True, 5),
    "while a request is pending": (playing(ASK), True, 6),
    "while its agent is deaf": (
        playing({"say": "x"}, {"stall": True, "deaf": True}, ignore=["eof", "TERM"]),
        True,
        5,
    ),
}


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        *(("log.db", state) for state in STATES),
        ("log.jsonl", "in the middle of a stream"),
        ("log.jsonl", "while a request is pending"),
    ],
)
async def test_p16_a_host_that_gets_a_stop_signal_stores_what_it_has_and_leaves_nothing_behind(
    kind: str, state: str, tmp_path: Path
) -> None:
    agent, is_prompted, count = STATES[state]
    log = tmp_path / kind
    async with serving(log, agent) as host:
        if is_prompted:
            await host.begin()
        await host.count(count)
        descendants = living_descendants(host.process.pid)
        assert len(descendants) >= 2, "the guard and the agent"
        os.kill(host.process.pid, signal.SIGTERM)
        assert await host.end() == 0
        await gone(list(descendants))
    session_id = decode_event(host.events[0]).session_id
    assert session_id is not None
    kept = await stored(log, session_id)
    assert kept == host.events
    assert is_dense(kept)
    events = decoded(kept)
    assert events[-1].payload == {"status": "disconnected"}
    created = [event for event in events if event.type == "permission-request-created"]
    resolved = [event for event in events if event.type == "permission-request-resolved"]
    assert [event.payload["status"] for event in resolved] == ["superseded"] * len(created)
    assert len(created) == ("request" in state)

"""A log that cannot be written for a while: what is not stored is not seen, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from quarterdeck.host import Host, HostOptions
from quarterdeck.host.log import journal, stream
from quarterdeck.protocol import Event
from quarterdeck.storage import SqliteStorage
from tests.host.faults.kit import (
    PATIENCE,
    FailingStorage,
    Seen,
    definition,
    flooding,
    running,
    scripted,
    stored,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FLOOD = 8_000
ONE_READ = 4_000  # updates that fit into what is read from an agent in one go
ATTEMPTS = 4  # the first, then after 50, 200 and 500 ms: time enough for some of the flood
ENOUGH = 50  # updates, to stop reading; also a slow machine sends as many in that time


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(journal, "HIGH_WATER", ENOUGH)


async def test_what_cannot_be_stored_is_not_seen_and_is_published_in_order_afterwards(
    tmp_path: Path,
) -> None:
    log = FailingStorage(tmp_path / "log.db")
    seen, host_seen, too_early = Seen(), Seen(), list[int]()

    def check(event: Event) -> None:
        if event.seq > log.last_seqs[event.session_id or ""]:
            too_early.append(event.seq)

    async with running(log) as host:
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition(flooding(FLOOD)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, check)
        host.subscribe(session.session_id, 0, seen)
        before = len(seen.events)
        log.failures = ATTEMPTS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            await host_seen.first("diagnostic", code="storage/write-failed")
            assert len(seen.events) == before
        assert log.failures == 0
    assert too_early == []
    assert seen.is_dense
    chunks = seen.of("agent-message-chunk")
    numbers = [int(each["content"]["text"].split()[0]) for each in chunks]
    assert numbers == list(range(FLOOD))
    assert len(await stored(tmp_path / "log.db", session.session_id)) == len(seen.events)


async def test_an_agent_is_not_read_while_its_events_cannot_be_stored(tmp_path: Path) -> None:
    log = FailingStorage(tmp_path / "log.db")
    async with running(log) as host:
        spawned = await host.spawn_agent(definition(flooding(FLOOD)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        log.failures = ATTEMPTS
        await host.prompt(session.session_id, "go")
    assert ENOUGH <= log.largest_batch < ENOUGH + ONE_READ < FLOOD


async def test_a_failure_is_reported_once_however_often_it_is_retried(tmp_path: Path) -> None:
    log = FailingStorage(tmp_path / "log.db")
    host_seen = Seen()
    async with running(log) as host:
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(scripted({"say": "hello"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        log.failures = 3
        await host.prompt(session.session_id, "go")
    codes = [each["code"] for each in host_seen.of("diagnostic")]
    assert codes.count("storage/write-failed") == 1


async def test_a_host_can_be_left_while_a_subscriber_still_replays(tmp_path: Path) -> None:
    log = FailingStorage(tmp_path / "log.db")
    async with running(log) as host:
        spawned = await host.spawn_agent(definition(flooding(FLOOD)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "go")
        late = Seen()
        host.subscribe(session.session_id, 0, late)
        await late.count(1)
    assert late.is_dense


async def test_a_late_subscriber_gets_everything_once_the_log_can_be_read_again(
    tmp_path: Path,
) -> None:
    log = FailingStorage(tmp_path / "log.db")
    async with running(log) as host:
        spawned = await host.spawn_agent(definition(flooding(3_000)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "go")
        late = Seen()
        log.failing_reads = 1
        host.subscribe(session.session_id, 0, late)
        await late.count(3_000)
    assert late.is_dense


async def test_a_host_that_is_cancelled_in_the_middle_of_a_stream_stores_what_it_has(
    tmp_path: Path,
) -> None:
    log, seen = tmp_path / "log.db", Seen()
    async with anyio.create_task_group() as tasks:

        async def stream() -> None:
            async with Host(HostOptions(storage=SqliteStorage(log))) as host:
                spawned = await host.spawn_agent(definition(flooding(FLOOD)))
                session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
                host.subscribe(session.session_id, 0, seen)
                await host.prompt(session.session_id, "go")

        tasks.start_soon(stream)
        with anyio.fail_after(PATIENCE):
            await seen.count(100)
        tasks.cancel_scope.cancel()
    events = await stored(log, "flood")
    assert events[: len(seen.events)] == seen.events
    assert [each.seq for each in events] == list(range(1, len(events) + 1))

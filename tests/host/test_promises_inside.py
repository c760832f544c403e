"""The promises of `docs/understand/reliability.md` that show in one process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import anyio
import pytest

from quarterdeck.client import Client, InProcessTransport
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint, HostOptions, agent_process
from quarterdeck.host.log import stream
from quarterdeck.protocol import Event
from quarterdeck.protocol.events import UnknownEvent
from quarterdeck.storage import JsonlStorage, MemoryStorage, SessionMeta, SqliteStorage, jsonl
from tests.host.faults.kit import (
    Seen,
    agent_processes,
    definition,
    flooding,
    gone,
    prompted,
    running,
    scripted,
)
from tests.host.model.puppet import Puppet, pulled
from tests.host.sessions.test_lifecycle import Attempt, staged

pytestmark = pytest.mark.anyio

SESSIONS = 10_000
ASK = {"ask": "edit-1", "title": "Edit", "allowed": [{"say": "done"}]}


async def test_p2_what_a_subscriber_saw_was_on_the_disk_before_and_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, synced = tmp_path / "log.jsonl", [0]
    real = jsonl.flush_to_disk

    def sync(file: int) -> None:
        real(file)
        synced[0] = os.fstat(file).st_size

    monkeypatch.setattr(jsonl, "flush_to_disk", sync)
    on_disk: list[int] = []  # bytes, when each event was seen
    async with running(JsonlStorage(log)) as host:
        spawned = await host.spawn_agent(definition(flooding(2_000)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, lambda _event: on_disk.append(synced[0]))
        await host.prompt(session.session_id, "go")
    content = log.read_bytes()
    after_cut = tmp_path / "cut.jsonl"
    for seen, size in [(seq, on_disk[seq - 1]) for seq in (1, 2, 100, 1_000, len(on_disk))]:
        after_cut.write_bytes(content[:size] + content[size : size + 20])  # the rest was in caches
        copy = JsonlStorage(after_cut)
        await copy.open()
        (meta,) = await copy.sessions()
        await copy.close()
        assert meta.last_seq >= seen


@pytest.mark.slow
async def test_p3_a_subscriber_that_joins_at_any_number_in_any_moment_misses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A short log in short pages has as many seams as a long one.
    monkeypatch.setattr(stream, "TAIL", 32)
    monkeypatch.setattr(stream, "PAGE", 100)
    random, late = Random(3), list[tuple[int, Seen]]()
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        spawned = await host.spawn_agent(definition(flooding(1_000)))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        first = Seen()

        def join_now_and_then(event: Event) -> None:
            first(event)
            if event.seq % 5 == 0:
                late.append((random.randrange(event.seq + 100), Seen()))
                host.subscribe(session.session_id, *late[-1])

        host.subscribe(session.session_id, 0, join_now_and_then)
        await host.prompt(session.session_id, "go")
        for _from_seq, seen in late:
            await seen.first("prompt-finished")
    assert len(late) >= 200
    for from_seq, seen in late:
        assert seen.events == [event for event in first.events if event.seq > from_seq]


async def test_p5_an_agent_that_crashes_again_and_again_lives_once_at_a_time(
    tmp_path: Path,
) -> None:
    puppets: list[Puppet] = []
    backoff = {"initialMs": 1, "factor": 1, "maxMs": 1}

    def start(puppet: Puppet) -> None:
        assert all(each.exit_status is not None for each in puppets), "two at a time"
        puppets.append(puppet)

    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(60):
        patch.setattr(agent_process, "open_process", pulled(start))
        options = HostOptions(restart="on-crash", restart_limit=2, restart_backoff=backoff)
        async with Host(options) as host:
            host_seen = Seen()
            host.subscribe(None, 0, host_seen)
            await host.spawn_agent({"id": "it", "command": sys.executable})
            for _ in range(5):  # more than the limit: each time it was ready in between
                again = Seen()
                host.subscribe(None, host_seen.events[-1].seq, again)
                await puppets[-1].exit(1)
                await again.first("agent-updated", status="ready")
            await host.dispose_agent("agent-1")
    statuses = [each["status"] for each in host_seen.of("agent-updated")]
    restarted = ["restarting", "spawning", "initializing", "ready"]
    assert statuses == [*restarted[1:], *restarted * 5, "exited"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")
async def test_p6_nothing_that_an_agent_started_outlives_the_host(tmp_path: Path) -> None:
    parent = scripted(
        {"spawn": 99, "own_session": True}, {"spawn": 99}, {"say": "{last}"}, {"stall": True}
    )
    async with running(kill_timeout_ms=500) as host:
        async with prompted(host, parent, tmp_path) as (_session, seen, host_seen):
            await seen.first("agent-message-chunk")
            processes = await agent_processes(host_seen)
        assert len(processes) >= 4, "the guard, the agent and its two children"
    await gone(processes)


class _Counting(MemoryStorage):
    reads = 0

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:  # type: ignore[explicit-override]  # Python 3.11 has no decorator for it
        self.reads += 1
        return super().read_now(session_id, after, limit)


@pytest.mark.slow
async def test_p10_ten_thousand_sessions_are_restored_without_reading_their_events() -> None:
    log = _Counting()
    await log.open()
    await log.append([SessionMeta(session_id=f"s{n}", cwd="/") for n in range(SESSIONS)])
    async with running(log) as host:
        assert len(await host.restore_sessions()) == SESSIONS
        assert log.reads == 0


async def test_p11_of_two_clients_that_answer_at_the_same_instant_one_gets_already_answered(
    tmp_path: Path,
) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        endpoint = HostEndpoint(host)
        async with (
            Client(InProcessTransport(endpoint)) as one,
            Client(InProcessTransport(endpoint)) as two,
            prompted(host, scripted(ASK), tmp_path) as (_session, seen, host_seen),
        ):
            await host_seen.first("permission-updated")
            outcomes: list[str] = []

            async def answer(client: Client, option: str) -> None:
                outcome = {"outcome": "selected", "optionId": option}
                try:
                    await client.permissions.respond("perm-1", outcome)
                except AcpError as error:
                    outcomes.append(error.code)
                else:
                    outcomes.append(option)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer, one, "allow_once")
                tasks.start_soon(answer, two, "reject_once")
            await seen.first("prompt-finished")
    (winner,) = set(outcomes) - {"acpjs/already-answered"}
    assert len(outcomes) == 2
    (resolved,) = seen.of("permission-request-resolved")
    assert resolved["outcome"]["optionId"] == winner


async def test_p12_a_session_has_one_prompt_at_a_time_however_many_are_sent(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        await stage.create()
        turns = [Attempt(lambda: stage.host.prompt("s", "go")) for _ in range(50)]
        for turn in turns:
            tasks.start_soon(turn)
        request_id = await stage.received("session/prompt")
        await anyio.wait_all_tasks_blocked()
        assert [each["method"] for each in stage.puppet.pending.values()] == ["session/prompt"]
        stage.puppet.answer(request_id, {"stopReason": "end_turn"})
    codes = [turn.code for turn in turns]
    assert (codes.count(None), codes.count("acpjs/prompt-in-flight")) == (1, 49)


async def test_p13_a_message_without_end_is_refused_and_the_session_continues(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        seen = await stage.create()
        stage.puppet.update("s", {"sessionUpdate": "plan", "entries": []})
        await seen.first("plan")
        for _ in range(70):  # together more than a message may have
            await stage.puppet.send_raw(b"x" * (1 << 20))
        await stage.puppet.send_raw(b"\n")
        stage.puppet.update("s", {"sessionUpdate": "hologram"})
        misbehaved = await stage.host_seen.first("diagnostic", code="agent/misbehaved")
        await seen.first("unrecognized-update")
        assert len(misbehaved.payload["data"]["text"]) < 10_000
        assert stage.status() == "active"


async def test_p15_a_log_with_events_of_a_newer_version_is_read_and_shown_as_it_is(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.jsonl"
    lines = [
        b'{"kind":"session-meta","sessionId":"s","cwd":"/","lifecycle":"open","colour":"blue"}',
        b'{"sessionId":"s","seq":1,"ts":1,"type":"session-status-change","payload":{"status":"active"}}',
        b'{"sessionId":"s","seq":2,"ts":2,"type":"hologram","payload":{"depth":3},"extra":[1]}',
    ]
    log.write_bytes(b"\n".join([*lines, b""]))
    seen = Seen()
    async with running(JsonlStorage(log)) as host:
        (session,) = await host.restore_sessions()
        host.subscribe(session.session_id, 0, seen)
        await seen.first("session-status-change", status="disconnected")
    assert [event.type for event in seen.events][1] == "hologram"
    newer = seen.events[1]
    assert isinstance(newer, UnknownEvent)
    assert newer.raw["extra"] == [1]
    assert seen.is_dense
    assert b'"colour":"blue"' in log.read_bytes()

"""Agents that die, hang, flood or refuse to leave: the session says so and its log stays whole."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.storage import SqliteStorage
from tests.host.faults.kit import (
    HERE,
    PATIENCE,
    Seen,
    agent_process,
    agent_processes,
    definition,
    flooding,
    gone,
    prompted,
    running,
    scripted,
    stored,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc"),
]

ASK: dict[str, Any] = {"ask": "edit-1", "title": "Edit", "allowed": [{"say": "done"}]}
FLOOD = 40_000
SUBSCRIBERS = 50
ALLOWED_GROWTH_KB = 40_000  # the flood alone is 10 MB of text, and several times that as events
MOMENTS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "in the middle of a stream": ([{"repeat": 100_000, "steps": [{"say": "word {n}"}]}], 500),
    "in the middle of a turn": ([{"say": "working"}, {"stall": True}], 5),
    "while it waits for a permission": ([ASK], 6),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_killed_agent_leaves_a_disconnected_session_and_a_dense_log(
    moment: str, tmp_path: Path
) -> None:
    steps, count = MOMENTS[moment]
    log = tmp_path / "log.db"
    async with running(SqliteStorage(log)) as host, anyio.create_task_group() as tasks:
        seen, host_seen, failures = Seen(), Seen(), list[AcpError]()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(scripted(*steps))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        tasks.start_soon(_fails_to_prompt, host, session.session_id, failures)
        await seen.count(count)
        os.kill(await agent_process(host_seen), signal.SIGKILL)
        await seen.first("session-status-change", status="disconnected")
        exited = await host_seen.first("diagnostic", code="agent/exit")
        assert exited.payload["data"] == {"signal": "SIGKILL"}
    assert [failure.code for failure in failures] == ["acpjs/agent-exited"]
    assert seen.is_dense
    assert await stored(log, session.session_id) == seen.events
    resolved = [each["status"] for each in seen.of("permission-request-resolved")]
    assert resolved == ["superseded"] * len(seen.of("permission-request-created"))
    assert len(resolved) == ("permission" in moment)


async def _fails_to_prompt(host: Host, session_id: str, failures: list[AcpError]) -> None:
    try:
        await host.prompt(session_id, "go")
    except AcpError as error:
        failures.append(error)


async def test_an_agent_that_ignores_every_polite_request_is_killed(tmp_path: Path) -> None:
    stubborn = scripted({"say": "never"}, {"stall": True, "deaf": True}, ignore=["eof", "TERM"])
    async with running(kill_timeout_ms=200) as host:
        async with prompted(host, stubborn, tmp_path) as (_session, seen, host_seen):
            await seen.first("agent-message-chunk")
            processes = await agent_processes(host_seen)
        await host.dispose_agent("agent-1")
        await gone(processes)
        await host_seen.first("diagnostic", code="agent/kill")
        await host_seen.first("agent-removed")


async def test_half_a_line_holds_up_nothing_but_itself(tmp_path: Path) -> None:
    half = '{"jsonrpc":"2.0","method":"session/update","params":{"sess'
    hanging = scripted(
        {"say": "before"}, {"garbage": half, "newline": False}, {"stall": True, "deaf": True}
    )
    async with running(kill_timeout_ms=200) as host:
        async with prompted(host, hanging, tmp_path) as (_session, seen, host_seen):
            await seen.first("agent-message-chunk")
            other = await host.spawn_agent(scripted({"say": "fine"}, sessions={"id": "b"}))
            session = await host.create_session(other.agent_id, cwd=str(tmp_path))
            assert await host.prompt(session.session_id, "go") == {"stopReason": "end_turn"}
            processes = await agent_processes(host_seen)
        await host.dispose_agent("agent-1")
        await gone(processes)
        await seen.first("session-status-change", status="disconnected")
    assert seen.is_dense
    assert len(seen.of("agent-message-chunk")) == 1


async def test_a_flood_does_not_fill_the_memory_whether_or_not_it_is_read(
    tmp_path: Path,
) -> None:
    program = [sys.executable, str(HERE / "host_program.py"), "measure", str(tmp_path / "log.db")]
    command = [*program, json.dumps(flooding(FLOOD)), str(SUBSCRIBERS)]
    with anyio.fail_after(PATIENCE):
        finished = await anyio.run_process(command, stderr=None)
    measured = json.loads(finished.stdout)
    assert len(measured["seen"]) == 1
    assert measured["seen"][0] > FLOOD
    assert measured["grown_kb"] < ALLOWED_GROWTH_KB


async def test_of_many_answers_at_the_same_instant_one_wins(tmp_path: Path) -> None:
    requesting = scripted({**ASK, "rejected": [{"say": "refused"}]})
    outcomes: list[str] = []

    async def answer(host: Host, option: str, everyone_ready: anyio.Event) -> None:
        await everyone_ready.wait()
        try:
            await host.respond_permission("perm-1", {"outcome": "selected", "optionId": option})
        except AcpError as error:
            outcomes.append(error.code)
        else:
            outcomes.append(option)

    async with (
        running(SqliteStorage(tmp_path / "log.db")) as host,
        prompted(host, requesting, tmp_path) as (_session, seen, host_seen),
    ):
        await seen.first("permission-request-created")
        everyone_ready = anyio.Event()
        async with anyio.create_task_group() as clients:
            for n in range(20):
                option = ("allow_once", "reject_once")[n % 2]
                clients.start_soon(answer, host, option, everyone_ready)
            everyone_ready.set()
        await seen.first("prompt-finished")
    (winner,) = set(outcomes) - {"acpjs/already-answered"}
    assert outcomes.count(winner) == 1
    (resolved,) = seen.of("permission-request-resolved")
    assert resolved["outcome"] == {"outcome": "selected", "optionId": winner}
    (message,) = seen.of("agent-message-chunk")
    assert message["content"]["text"] == {"allow_once": "done", "reject_once": "refused"}[winner]
    statuses = [each["status"] for each in host_seen.of("permission-updated")]
    assert statuses == ["pending", "answered"]


async def test_a_clock_that_is_set_back_does_not_disturb_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000_000, 0, -60_000))
    monkeypatch.setattr("quarterdeck.host.log.emitter.time_ns", lambda: next(clock) * 1_000_000)
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        agent = scripted({"say": "a b c d", "pieces": 4})
        async with prompted(host, agent, tmp_path) as (session_id, seen, _host_seen):
            await seen.first("prompt-finished")
            late = Seen()
            host.subscribe(session_id, 0, late)
            await late.first("prompt-finished")
    assert seen.is_dense
    assert "".join(each["content"]["text"] for each in seen.of("agent-message-chunk")) == "a b c d"
    assert late.events == seen.events[: len(late.events)]
    times = [event.ts for event in seen.events]
    assert times == sorted(times, reverse=True)


async def test_a_flooding_agent_can_be_disposed_of(tmp_path: Path) -> None:
    log = SqliteStorage(tmp_path / "log.db")
    async with running(log, kill_timeout_ms=200) as host:
        agent = definition(flooding(100_000))
        async with prompted(host, agent, tmp_path) as (_session, seen, host_seen):
            await seen.count(100)
            processes = await agent_processes(host_seen)
        await host.dispose_agent("agent-1")
        await gone(processes)
        await seen.first("session-status-change", status="disconnected")
    assert seen.is_dense

"""Agents that end by themselves: when they are restarted, how often, and what is reported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import RestartBackoff
from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio

AT_ONCE = RestartBackoff(initial_ms=1, factor=2, max_ms=3)
ON_CRASH: dict[str, Any] = {"restart": "on-crash", "restart_backoff": AT_ONCE}
CRASH = {"crash": 1}
DIES_LATER = """
import pathlib, sys
starts = pathlib.Path(sys.argv[1])
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) > 1:
    sys.exit(3)
sys.argv = sys.argv[1:]
from quarterdeck.testing.agent import main
sys.exit(main(sys.argv[1:]))
"""


def codes(host_seen: Seen) -> list[str]:
    return [e.payload["code"] for e in host_seen.events if e.type == "diagnostic"]


def statuses(host_seen: Seen) -> list[str]:
    return [e.payload["status"] for e in host_seen.events if e.type == "agent-updated"]


async def crash(host: Any, agent_id: str, cwd: Path) -> None:
    session = await host.create_session(agent_id, cwd=str(cwd))
    with pytest.raises(AcpError) as caught:
        await host.prompt(session.session_id, "die")
    assert caught.value.code == "acpjs/agent-exited"


async def test_a_crashed_agent_is_not_restarted_by_default(tmp_path: Path) -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(CRASH))
        await crash(host, spawned.agent_id, tmp_path)
        exited = await host_seen.first("agent-updated", status="exited")
        assert exited.payload["reason"] == "crashed"
        assert exited.payload["exit"] == {"code": 1}
        assert "agent/restart-suppressed" in codes(host_seen)
        assert "agent/restart-scheduled" not in codes(host_seen)


async def test_an_unrequested_exit_with_status_0_is_a_crash(tmp_path: Path) -> None:
    async with running(**ON_CRASH) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({"crash": 0}))
        await crash(host, spawned.agent_id, tmp_path)
        await host_seen.first("diagnostic", code="agent/restart-scheduled")


async def test_every_start_that_works_forgives_the_failures_before_it() -> None:
    async with running(**ON_CRASH, restart_limit=1) as host:
        spawned = await host.spawn_agent(agent(methods={"authenticate": [CRASH]}))
        for _ in range(3):  # more often than the limit allows in a row
            host_seen = Seen()
            host.subscribe(None, last_published(host), host_seen)
            with pytest.raises(AcpError, match="exited"):
                await host.authenticate(spawned.agent_id, "x")
            ready = await host_seen.first("agent-updated", status="ready")
            assert ready.payload["restartCount"] == 0
        assert host.get_agent(spawned.agent_id) is not None


def last_published(host: Any) -> int:
    seen = Seen()
    host.subscribe(None, 0, seen)()
    return seen.events[-1].seq


async def test_failing_starts_use_the_restarts_up_with_pauses_that_grow(tmp_path: Path) -> None:
    command = agent(CRASH)
    script = tmp_path / "dies_later.py"
    script.write_text(DIES_LATER)
    arguments = ["-P", str(script), str(tmp_path / "starts"), *command["args"][3:]]
    definition = {"id": "a", "command": sys.executable, "args": arguments}
    async with running(**ON_CRASH, restart_limit=3) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition)
        await crash(host, spawned.agent_id, tmp_path)
        exited = await host_seen.first("agent-updated", status="exited")
        assert exited.payload["reason"] == "restart-exhausted"
        scheduled = [e.payload["data"] for e in host_seen.events if is_scheduled(e)]
        assert [each["attempt"] for each in scheduled] == [1, 2, 3]
        assert [each["delayMs"] for each in scheduled] == [1, 2, 3]  # doubled, but 3 at most
        assert codes(host_seen).count("agent/initialize-failed") == 3
        assert "agent/restart-exhausted" in codes(host_seen)


def is_scheduled(event: Any) -> bool:
    return bool(event.payload.get("code") == "agent/restart-scheduled")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"id": "a", "command": "/no/such/program"}, "spawn-failed"),
        ({"id": "a", "command": sys.executable, "args": ["-c", ""]}, "initialize-failed"),
    ],
)
async def test_a_first_start_that_fails_is_not_tried_again(
    definition: dict[str, Any], reason: str
) -> None:
    async with running(**ON_CRASH) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        with pytest.raises(AcpError) as caught:
            await host.spawn_agent(definition)
        assert caught.value.code == "acpjs/agent-exited"
        await host_seen.first("agent-updated", status="exited", reason=reason)
        assert f"agent/{reason}" in codes(host_seen)
        assert "agent/restart-scheduled" not in codes(host_seen)
        # It stays, and says why it ended; only `dispose_agent` removes it.
        (exited,) = host.get_agents()
        assert (exited.status, exited.reason) == ("exited", reason)


async def test_a_restart_that_waits_is_called_off_by_disposal(tmp_path: Path) -> None:
    patient = RestartBackoff(initial_ms=60_000, factor=1, max_ms=60_000)
    async with running(restart="on-crash", restart_backoff=patient) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(CRASH))
        await crash(host, spawned.agent_id, tmp_path)
        await host_seen.first("agent-updated", status="restarting")
        await host.dispose_agent(spawned.agent_id)
        assert statuses(host_seen)[-1] == "exited"
        assert host.get_agents() == []


async def test_sessions_of_an_agent_that_cannot_resume_stay_disconnected(tmp_path: Path) -> None:
    async with running(**ON_CRASH) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(CRASH))
        await crash(host, spawned.agent_id, tmp_path)
        skipped = await host_seen.first("diagnostic", code="session/recovery-skipped")
        (session,) = host.get_sessions()
        assert skipped.payload["sessionId"] == session.session_id
        assert session.status == "disconnected"

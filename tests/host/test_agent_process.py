"""Agents by their ids, what is known of them, and how they are disposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import agent_process
from tests.host.test_host import ASK, Seen, agent, running

pytestmark = pytest.mark.anyio


async def test_ids_of_agents_count_up_and_are_never_used_again() -> None:
    async with running() as host:
        first = await host.spawn_agent(agent())
        with pytest.raises(AcpError):
            await host.spawn_agent({"id": "a", "command": "/no/such/program"})
        await host.dispose_agent(first.agent_id)
        third = await host.spawn_agent(agent())
        assert (first.agent_id, third.agent_id) == ("agent-1", "agent-3")
        assert [each.agent_id for each in host.get_agents()] == ["agent-2", "agent-3"]


async def test_ways_to_sign_in_are_shown_as_the_agent_declared_them_and_not_before() -> None:
    ways: list[dict[str, Any]] = [{"id": "x", "name": "X", "_meta": {"odd": [1]}, "new": None}]
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(initialize={"authMethods": ways}))
        assert spawned.auth_methods == tuple(ways)
        early = await host_seen.first("agent-updated", status="initializing")
        assert "authMethods" not in early.payload
        assert "capabilities" not in early.payload


async def test_an_agent_that_requires_a_sign_in_refuses_with_that_error(tmp_path: Path) -> None:
    refuses = {"session/new": [{"fail": "Authentication required", "code": -32000}]}
    async with running() as host:
        spawned = await host.spawn_agent(agent(methods=refuses))
        with pytest.raises(RpcError) as caught:
            await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        assert (caught.value.code, caught.value.message) == (-32000, "Authentication required")
        assert host.get_sessions() == []


async def test_the_start_of_an_agent_is_reported_with_names_of_variables_only() -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        await host.spawn_agent(agent() | {"env": {"B": "secret", "A": "secret"}})
        spawned = await host_seen.first("diagnostic", code="agent/spawn")
        assert spawned.payload["data"]["envKeys"] == ["A", "B"]
        assert "secret" not in str(spawned.payload)


async def test_what_an_agent_writes_to_stderr_is_reported_line_by_line(tmp_path: Path) -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({"stderr": "grüße\nbye"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        await host_seen.first("diagnostic", code="agent/stderr", message="grüße")
        await host_seen.first("diagnostic", code="agent/stderr", message="bye")


async def test_disposing_an_agent_twice_or_an_unknown_one_is_harmless(tmp_path: Path) -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({"say": "hi"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.dispose_agent, spawned.agent_id)
            tasks.start_soon(host.dispose_agent, spawned.agent_id)
        await host.dispose_agent(spawned.agent_id)
        await host.dispose_agent("agent-99")
        removed = [e.payload for e in host_seen.events if e.type == "agent-removed"]
        assert removed == [{"agentId": spawned.agent_id}]
        assert host.get_agents() == []
        # Its history stays.
        (left,) = host.get_sessions()
        assert left.status == "disconnected"
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        assert "agent-message-chunk" in seen.types()


@pytest.mark.parametrize("whole_host", [False, True])
async def test_requests_of_an_agent_are_superseded_when_it_is_disposed(
    tmp_path: Path, whole_host: bool
) -> None:
    async with running() as host, anyio.create_task_group() as tasks:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))

        async def prompt() -> None:
            with pytest.raises(AcpError):
                await host.prompt(session.session_id, "x")

        tasks.start_soon(prompt)
        await host_seen.first("permission-updated", status="pending")
        await (host.dispose() if whole_host else host.dispose_agent(spawned.agent_id))
        facts = [
            (e.type, e.payload.get("status"))
            for e in host_seen.events
            if e.type in ("permission-updated", "session-updated", "agent-updated")
        ]
        assert facts[-3:] == [
            ("permission-updated", "superseded"),
            ("session-updated", "disconnected"),
            ("agent-updated", "exited"),
        ]
        assert [e.payload.get("reason") for e in host_seen.events if e.type == "agent-updated"][
            -1
        ] == "disposed"


async def test_a_host_that_was_disposed_starts_nothing_any_more() -> None:
    async with running() as host:
        await host.dispose()
        await host.dispose()
        with pytest.raises(AcpError, match="host disposed") as caught:
            await host.spawn_agent(agent())
        assert caught.value.code == "acpjs/agent-exited"


@pytest.mark.slow
async def test_a_process_that_survives_being_killed_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_process, "kill_tree", lambda _pid: None)
    async with running(kill_timeout_ms=30) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ignore=["eof"]))
        await host.dispose_agent(spawned.agent_id)
        failed = await host_seen.first("diagnostic", code="agent/process-error")
        assert "may still be running" in failed.payload["message"]
        await host_seen.first("agent-updated", status="exited", reason="disposed")

"""Agents that do not read, do not end a turn, or leave calls open: their sessions continue."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.protocol import Event
from quarterdeck.storage import MemoryStorage, Stored
from tests.host.faults.kit import (
    Seen,
    agent_process,
    agent_processes,
    definition,
    gone,
    running,
    scripted,
)

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
CAN: Json = {"sessionCapabilities": {"resume": {}}}
RESUMES: Json = {"capabilities": CAN, "methods": {"session/resume": [{"result": {}}]}}
QUICK: Json = {"restart": "on-crash", "restart_backoff": {"initialMs": 1, "factor": 1, "maxMs": 1}}


class Stage:
    """A host, an agent, a session, and all their events."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.host_seen, self.seen = Seen(), Seen()
        self.agent_id = self.session_id = ""
        self.failures: list[AcpError] = []

    async def open(self, agent: Json, cwd: Path) -> None:
        self.host.subscribe(None, 0, self.host_seen)
        self.agent_id = (await self.host.spawn_agent(agent)).agent_id
        made = await self.host.create_session(self.agent_id, cwd=str(cwd))
        self.session_id = made.session_id
        self.host.subscribe(self.session_id, 0, self.seen)

    async def prompt(self, text: str = "go") -> None:
        try:
            await self.host.prompt(self.session_id, text)
        except AcpError as error:
            self.failures.append(error)

    def status(self) -> tuple[str, str]:
        agent, session = self.host.get_agent(self.agent_id), self.host.get_session(self.session_id)
        assert agent is not None
        assert session is not None
        return agent.status, session.status

    def notices(self) -> list[Event]:
        return [
            each
            for each in self.seen.events
            if each.type == "unrecognized-update"
            and each.payload["sessionUpdate"] == "notice"
            and "quarterdeck" in (each.extensions or {})
        ]


# ---- an agent that closes its input ----------------------------------------------------------


@pytest.mark.parametrize("when", ["in the turn", "before it"])
async def test_an_agent_that_closes_its_input_is_down_and_its_prompt_fails(
    when: str, tmp_path: Path
) -> None:
    steps: list[Json] = [{"close_stdin": True}, {"say": "deaf"}, {"stall": True}]
    agent = scripted(*steps) if when == "in the turn" else scripted(new=steps[:1])
    async with running() as host:
        stage = Stage(host)
        await stage.open(agent, tmp_path)
        pids = await agent_processes(stage.host_seen)
        await stage.prompt()
        assert [error.code for error in stage.failures] == ["acpjs/agent-exited"]
        assert stage.status() == ("exited", "disconnected")
        await stage.host_seen.first("diagnostic", code="agent/input-closed")
        await gone(pids)


async def test_an_agent_that_closes_its_input_is_restarted_and_its_session_continues(
    tmp_path: Path,
) -> None:
    turns = [
        {"when": "first", "steps": [{"close_stdin": True}, {"stall": True}]},
        {"steps": [{"say": "here again"}]},
    ]
    async with running(**QUICK) as host:
        stage = Stage(host)
        await stage.open(scripted(**RESUMES, turns=turns), tmp_path)
        await stage.prompt("first")
        assert len(stage.failures) == 1
        await stage.seen.first("session-status-change", status="active", resumed=True)
        await stage.prompt("second")
        assert len(stage.failures) == 1
        assert stage.seen.of("agent-message-chunk")[-1]["content"]["text"] == "here again"


# ---- an agent that does not respond ----------------------------------------------------------

IGNORES = ({"tool": "c1", "title": "Work", "status": "in_progress"}, {"stall": True, "deaf": True})


async def test_an_ignored_cancel_is_reported_once_and_ending_the_agent_ends_the_turn(
    tmp_path: Path,
) -> None:
    turns = [{"when": "first", "steps": list(IGNORES)}, {"steps": [{"say": "next"}]}]
    async with running(**QUICK, response_timeout_ms=50) as host:
        stage = Stage(host)
        await stage.open(scripted(**RESUMES, turns=turns), tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt, "first")
            await stage.seen.first("tool-call")
            await host.cancel(stage.session_id)
            await host.cancel(stage.session_id)
            said = await stage.host_seen.first("diagnostic", code="agent/unresponsive")
            assert said.agent_id == stage.agent_id
            assert said.payload["sessionId"] == stage.session_id
            assert said.payload["data"]["seconds"] == 0.05
            (notice,) = stage.notices()
            assert notice.payload["severity"] == "warning"
            assert "End it" in notice.payload["description"]
            assert notice.extensions is not None
            assert notice.extensions["quarterdeck"]["unresponsive"]["agentId"] == stage.agent_id
            await host.end_agent(stage.agent_id, by="Anna's phone")
        assert [error.code for error in stage.failures] == ["acpjs/agent-exited"]
        expected = f"agent {stage.agent_id} exited: it was ended by Anna's phone"
        assert [error.message for error in stage.failures] == [expected]
        await stage.seen.first("session-status-change", status="active", resumed=True)
        await stage.prompt("second")
        assert stage.seen.of("agent-message-chunk")[-1]["content"]["text"] == "next"
        assert len(stage.notices()) == 1


async def test_a_cancelled_turn_that_ends_in_time_is_not_reported(tmp_path: Path) -> None:
    async with running(response_timeout_ms=50) as host:
        stage = Stage(host)
        await stage.open(
            scripted({"say": "x"}, {"wait_cancel": True}, {"stop": "cancelled"}), tmp_path
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt)
            await stage.seen.first("agent-message-chunk")
            await host.cancel(stage.session_id)
        await anyio.sleep(0.2)
        assert stage.notices() == []


async def test_an_agent_that_is_stopped_during_a_turn_is_reported_and_can_be_ended(
    tmp_path: Path,
) -> None:
    async with running(response_timeout_ms=100) as host:
        stage = Stage(host)
        await stage.open(scripted({"say": "x"}, {"wait_cancel": True}), tmp_path)
        pid = await agent_process(stage.host_seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt)
            await stage.seen.first("agent-message-chunk")
            os.kill(pid, signal.SIGSTOP)
            await host.cancel(stage.session_id)
            await stage.host_seen.first("diagnostic", code="agent/unresponsive")
            await host.end_agent(stage.agent_id)
        (error,) = stage.failures
        assert error.message == f"agent {stage.agent_id} exited: it was ended on request"
        assert stage.status() == ("exited", "disconnected")
        await gone([pid])


async def test_an_agent_that_never_reads_again_is_reported_without_a_cancel(
    tmp_path: Path,
) -> None:
    program = tmp_path / "deaf.py"
    program.write_text(
        "import json, sys, time\n"
        "for answer in ({'protocolVersion': 1}, {'sessionId': 's'}):\n"
        "    asked = json.loads(sys.stdin.readline())\n"
        "    said = {'jsonrpc': '2.0', 'id': asked['id'], 'result': answer}\n"
        "    print(json.dumps(said), flush=True)\n"
        "time.sleep(3600)\n"
    )
    async with running(response_timeout_ms=100) as host:
        stage = Stage(host)
        await stage.open(definition([sys.executable, "-u", str(program)]), tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt, "x" * 3_000_000)
            said = await stage.host_seen.first("diagnostic", code="agent/unresponsive")
            assert said.payload["data"]["reason"] == "input-unread"
            await host.cancel(stage.session_id)  # returns, although there is no room
            await host.end_agent(stage.agent_id)
        assert stage.status() == ("exited", "disconnected")


async def test_an_agent_that_is_not_running_cannot_be_ended(tmp_path: Path) -> None:
    async with running() as host:
        stage = Stage(host)
        await stage.open(scripted({"crash": 3}), tmp_path)
        await stage.prompt()
        with pytest.raises(AcpError, match="is not ready"):
            await host.end_agent(stage.agent_id)
        with pytest.raises(AcpError, match="is unknown"):
            await host.end_agent("agent-99")


# ---- calls that are left open ----------------------------------------------------------


def closed(seen: Seen) -> list[tuple[str, str]]:
    """Return the calls that the host has closed, and why."""
    return [
        (each.payload["toolCallId"], each.extensions["quarterdeck"]["closed"])
        for each in seen.events
        if each.type == "tool-call-update"
        and each.extensions is not None
        and "closed" in each.extensions.get("quarterdeck", {})
    ]


OPEN: list[Json] = [
    {"tool": "c1", "title": "Pending"},
    {"tool": "c2", "title": "Running", "status": "in_progress"},
    {"tool": "c3", "title": "Done", "status": "completed"},
    {
        "update": {
            "sessionUpdate": "tool_call",
            "toolCallId": "c4",
            "title": "Cancelled",
            "status": "cancelled",
        }
    },
    {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c5", "title": "Unannounced"}},
]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({"stop": "end_turn"}, "end_turn"),
        ({"stop": "refusal"}, "refusal"),
        ({"fail": "broken"}, "end_turn"),
        ({"crash": 1}, "disconnected"),
    ],
)
async def test_calls_that_a_turn_leaves_open_are_closed_with_it(
    ending: Json, reason: str, tmp_path: Path
) -> None:
    async with running() as host:
        stage = Stage(host)
        await stage.open(scripted(*OPEN, ending), tmp_path)
        await stage.prompt()
        assert closed(stage.seen) == [("c1", reason), ("c2", reason), ("c5", reason)]
        ends = [each.type for each in stage.seen.events][-2:]
        last = "prompt-finished" if reason != "disconnected" else "tool-call-update"
        assert ends == [last, "session-status-change"]


@pytest.mark.parametrize("ending", ["close_session", "delete_session"])
async def test_calls_that_are_open_when_their_session_ends_are_closed(
    ending: str, tmp_path: Path
) -> None:
    async with running() as host:
        stage = Stage(host)
        await stage.open(scripted(*OPEN, {"wait_cancel": True}), tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt)
            await stage.seen.first("tool-call", title="Unannounced")
            ids = [stage.agent_id] * (ending == "delete_session")
            await getattr(host, ending)(*ids, stage.session_id)
        reason = ending.removesuffix("_session") + "d"
        assert closed(stage.seen) == [(name, reason) for name in ("c1", "c2", "c5")]


async def test_calls_that_a_killed_host_left_open_are_closed_by_the_next(tmp_path: Path) -> None:
    storage = MemoryStorage()
    stored: list[Any] = []
    async with running(storage) as host:
        stage = Stage(host)
        await stage.open(scripted(*OPEN, {"wait_cancel": True}), tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.prompt)
            await stage.seen.first("tool-call", title="Unannounced")
            await host.wait_stored()
            stored = await storage.read(stage.session_id, 0, 1000)
            tasks.cancel_scope.cancel()
    killed = MemoryStorage()
    await killed.open()
    await _copy(storage, killed, stage.session_id, len(stored))
    async with running(killed) as host:
        await host.restore_sessions()
        seen = Seen()
        host.subscribe(stage.session_id, 0, seen)
        await seen.first("session-status-change", status="disconnected")
        assert closed(seen) == [(name, "restart") for name in ("c1", "c2", "c5")]
    async with running(killed) as host:
        await host.restore_sessions()
        again = Seen()
        host.subscribe(stage.session_id, 0, again)
        await again.first("session-status-change", status="disconnected")
        assert len(closed(again)) == 3, "once"


async def _copy(one: MemoryStorage, other: MemoryStorage, session_id: str, count: int) -> None:
    """Copy the first events of a session, as a host that is killed leaves them."""
    await one.open()
    (meta,) = await one.sessions()
    events = await one.read(session_id, 0, count)
    stored = [Stored(session_id, n, data) for n, data in enumerate(events, 1)]
    await other.append([replace(meta, last_seq=count), *stored])
    await other.close()


async def test_an_end_that_the_agent_sends_late_replaces_ours(tmp_path: Path) -> None:
    late = {"late": [{"finish": "c1"}]}
    async with running() as host:
        stage = Stage(host)
        await stage.open(scripted({"tool": "c1", "title": "T"}, late), tmp_path)
        await stage.prompt()
        last = await stage.seen.first("tool-call-update", status="completed")
        assert last.extensions is None
        assert closed(stage.seen) == [("c1", "end_turn")]

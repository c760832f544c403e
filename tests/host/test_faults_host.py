"""`kill -9` of the host: its log continues, and nothing it started survives."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from quarterdeck.machine.guard_program import living_descendants
from quarterdeck.storage import SqliteStorage
from quarterdeck.testing import scripted_agent
from tests.host.faults.kit import HERE, PATIENCE, Seen, gone, running

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc"),
]


@asynccontextmanager
async def host_process(log: Path, agent: Sequence[str]) -> AsyncIterator[Process]:
    program = [sys.executable, str(HERE / "host_program.py"), "print", str(log)]
    with anyio.fail_after(PATIENCE):
        async with await anyio.open_process(
            [*program, json.dumps(list(agent))], stderr=None
        ) as process:
            yield process


async def test_the_log_continues_where_the_killed_host_left_it(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    stalling = scripted_agent({"name": "x", "turns": [{"steps": [{"stall": True}]}]})
    async with host_process(log, stalling) as process:
        await _lines(process, 4)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    async with running(SqliteStorage(log)) as host:
        (session,) = await host.restore_sessions()
        assert session.status == "disconnected"
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await seen.first("session-status-change", status="disconnected")
    assert seen.is_dense


async def test_nothing_that_a_killed_host_started_lives_on(tmp_path: Path) -> None:
    scenario: dict[str, Any] = {
        "name": "parent",
        "ignore": ["eof", "TERM"],
        "turns": [
            {
                "steps": [
                    {"spawn": 99, "own_session": True},
                    {"spawn": 99},
                    {"say": "{last}"},
                    {"stall": True, "deaf": True},
                ]
            }
        ],
    }
    async with host_process(tmp_path / "log.db", scripted_agent(scenario)) as process:
        await _lines(process, 5)
        descendants = living_descendants(process.pid)
        assert len(descendants) >= 4, "the guard, the agent and its two children"
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await gone(list(descendants))


async def _lines(process: Process, count: int) -> None:
    assert process.stdout is not None
    printed = b""
    while printed.count(b"\n") < count:
        printed += await process.stdout.receive()

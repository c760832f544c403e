"""Files and terminals by handlers that a program brings along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.machine.terminals import DefaultTerminalHandler
from quarterdeck.testing import scripted_agent
from tests.host.test_host import Seen, agent, running, texts

pytestmark = pytest.mark.anyio

SAY_LAST = {"say": "{last}"}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"request": method, "params": params}


class ReadOnlyFiles:
    """Files that are not on this machine; nothing can be written."""

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        *,
        line: int | None,
        limit: int | None,
        roots: Sequence[str],
    ) -> str:
        return f"{session_id} {path} {line} {limit} {list(roots)}"


async def output_of(host: Any, definition: dict[str, Any], cwd: Path) -> str:
    spawned = await host.spawn_agent(definition)
    session = await host.create_session(spawned.agent_id, cwd=str(cwd))
    seen = Seen()
    host.subscribe(session.session_id, 0, seen)
    await host.prompt(session.session_id, "x")
    return "".join(texts(seen.events))


async def test_files_are_served_by_the_handler_that_was_brought_along_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("not this")
    read = request("fs/read_text_file", path=str(tmp_path / "real"), line=2, limit=3)
    write = request("fs/write_text_file", path=str(tmp_path / "new"), content="x")
    async with running(fs=ReadOnlyFiles()) as host:
        answer = await output_of(host, agent(read, SAY_LAST, write, SAY_LAST), tmp_path)
    assert f"sess-1 {tmp_path}/real 2 3 ['{tmp_path}']" in answer
    assert "-32601" in answer  # a method that the handler lacks is not served
    assert not (tmp_path / "new").exists()


async def test_without_a_handler_there_are_no_terminals(tmp_path: Path) -> None:
    create = request("terminal/create", command="echo", args=["hi"])
    async with running() as host:
        assert "-32601" in await output_of(host, agent(create, SAY_LAST), tmp_path)


@pytest.mark.parametrize("method", ["output", "wait_for_exit", "kill", "release"])
async def test_a_terminal_answers_to_no_other_session_of_the_same_agent(
    method: str, tmp_path: Path
) -> None:
    create = request("terminal/create", command="sleep", args=["60"])
    async with running(terminal=DefaultTerminalHandler()) as host:
        other = request(f"terminal/{method}", terminalId="{prompt}")
        turns = [
            {"when": "create", "steps": [create, {"say": "{last.terminalId}"}]},
            {"steps": [other, SAY_LAST]},
        ]
        command = scripted_agent({"name": "two", "turns": turns}, pace=0)
        spawned = await host.spawn_agent(
            {"id": "s", "command": command[0], "args": list(command[1:])}
        )
        answers = []
        terminal_id = "create"
        for _ in range(2):
            session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
            seen = Seen()
            host.subscribe(session.session_id, 0, seen)
            await host.prompt(session.session_id, terminal_id)
            terminal_id = "".join(texts(seen.events))
            answers.append(terminal_id)
        assert "-32602" in answers[1]
        assert "belongs to another session" in answers[1]


async def test_an_unknown_terminal_is_refused(tmp_path: Path) -> None:
    output = request("terminal/output", terminalId="made-up")
    odd = request("terminal/kill", terminalId=["made-up"])
    async with running(terminal=DefaultTerminalHandler()) as host:
        answer = await output_of(host, agent(output, SAY_LAST, odd, SAY_LAST), tmp_path)
    assert answer.count("-32602") == 2
    assert "unknown terminal made-up" in answer


@pytest.mark.parametrize("ending", ["close", "delete", "crash"])
async def test_the_terminals_of_a_session_end_with_it(ending: str, tmp_path: Path) -> None:
    cleaned: list[str] = []
    ended = anyio.Event()

    class Recorded(DefaultTerminalHandler):
        async def cleanup_session(self, session_id: str) -> None:  # type: ignore[explicit-override]
            await super().cleanup_session(session_id)
            cleaned.append(session_id)
            ended.set()

    create = request("terminal/create", command="sleep", args=["60"])
    crash = [{"late": [{"crash": 1}]}] if ending == "crash" else []
    async with running(terminal=Recorded()) as host:
        spawned = await host.spawn_agent(agent(create, *crash))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
        if ending == "close":
            await host.close_session(session.session_id)
        elif ending == "delete":
            await host.delete_session(spawned.agent_id, session.session_id)
        await ended.wait()
        assert cleaned == [session.session_id]


async def test_a_handler_that_cannot_clean_up_is_reported_and_the_session_ends(
    tmp_path: Path,
) -> None:
    class Broken(DefaultTerminalHandler):
        async def cleanup_session(self, session_id: str) -> None:  # type: ignore[explicit-override]
            raise ValueError(f"cannot end {session_id}")

    async with running(terminal=Broken()) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent())
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.close_session(session.session_id)
        await host_seen.first("diagnostic", code="session/cleanup-failed")
        await host_seen.first("session-updated", status="closed")

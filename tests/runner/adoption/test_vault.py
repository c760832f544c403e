"""The past of every program is imported once, also over crashes, and kept when it is deleted."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from quarterdeck.protocol import Event
from quarterdeck.runner import Runner
from quarterdeck.runner.adoption import follower as following
from quarterdeck.testing.foreign import ClaudeProgram, CodexProgram, ForeignProgram
from quarterdeck.testing.opencode_program import OpenCodeProgram
from tests.runner.adoption.kit import holds, log_of, prompts, running, until
from tests.taping.tapes import environment

pytestmark = pytest.mark.anyio

FOLDERS = {"claude": "claude", "codex": ".codex", "opencode": ".local/share/opencode"}
"""Where each program keeps its sessions, in the home of its user."""
PROGRAMS: dict[str, Callable[[Path], ForeignProgram]] = {
    "claude": lambda folder: ClaudeProgram(folder, cwd="/project"),
    "codex": lambda folder: CodexProgram(folder, cwd="/project"),
    "opencode": lambda folder: OpenCodeProgram(folder / "opencode.db", cwd="/project"),
}
KILLED = """
import sys
from pathlib import Path
import anyio
from tests.runner.adoption.kit import running
from quarterdeck.agents.adapters import line_file
from quarterdeck.agents.adapters.opencode import reader
line_file.CHUNK, reader.CHUNK, reader._MOST_EVENTS = 500, 500, 2

async def main() -> None:
    async with running(Path(sys.argv[1])) as runner:
        await runner.adopt_program(sys.argv[2], past=True)
        while not await runner.list_sessions():
            await anyio.sleep(0.001)
        print("begun", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.02)


@pytest.fixture(params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(folder: Path, name: str, turns: int) -> ForeignProgram:
    program = PROGRAMS[name](folder / FOLDERS[name])
    for number in range(turns):
        program.prompt(f"prompt {number}")
        program.call("ls", "a file")
        program.answer(f"answer {number}")
    return program


async def imported(runner: Runner, name: str, session_id: str, last: str) -> list[Event]:
    """Wait until the past is read; return the log of a session."""
    await runner.adopt_program(name, past=True)
    await until(runner, session_id, last, "prompt-finished")
    follower = runner.adoption.followers[name]
    await holds(lambda: not follower.waiting_bytes)
    return await log_of(runner, session_id)


async def test_a_session_is_imported_on_request_once(tmp_path: Path, name: str) -> None:
    program = written(tmp_path, name, 2)
    async with running(tmp_path) as runner:
        await runner.adopt_session(name, program.session_id)
        events = await log_of(runner, program.session_id)
        assert prompts(events) == ["prompt 0", "prompt 1"]
        await runner.adopt_session(name, program.session_id)  # again: nothing is added
        assert await log_of(runner, program.session_id) == events


async def test_what_its_program_deletes_is_kept_here(tmp_path: Path, name: str) -> None:
    program = written(tmp_path, name, 2)
    async with running(tmp_path) as runner:
        before = await imported(runner, name, program.session_id, "answer 1")
        shutil.rmtree(tmp_path / FOLDERS[name])
        follower = runner.adoption.followers[name]
        follower.look_now()
        await holds(lambda: not follower.found)
        assert await log_of(runner, program.session_id) == before
    async with running(tmp_path) as runner:
        (listed,) = await runner.list_sessions()
        assert (listed.session_id, listed.agent) == (program.session_id, name)
        assert await log_of(runner, program.session_id) == before


async def test_an_import_that_is_killed_continues_and_doubles_nothing(
    tmp_path: Path, name: str
) -> None:
    program = written(tmp_path, name, 8)
    words = [sys.executable, "-c", KILLED, str(tmp_path), name]
    environ = environment(Path(__file__).parents[3])
    process = await anyio.to_thread.run_sync(
        lambda: subprocess.Popen(words, stdout=subprocess.PIPE, env=environ)
    )
    assert process.stdout is not None
    assert await anyio.to_thread.run_sync(process.stdout.readline) == b"begun\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    async with running(tmp_path) as runner:
        events = await imported(runner, name, program.session_id, "answer 7")
        assert [each.seq for each in events] == list(range(1, len(events) + 1))
        assert prompts(events) == [f"prompt {number}" for number in range(8)]
        calls = [each.payload["toolCallId"] for each in events if each.type == "tool-call"]
        assert len(calls) == 8
        assert [each.type for each in events].count("prompt-finished") == 8

"""Sessions of another program are recorded once, as every other session, and stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.protocol import Event
from quarterdeck.runner import Runner
from quarterdeck.runner.adoption import follower as following
from quarterdeck.runner.adoption.follower import ProgramFollower
from quarterdeck.runner.adoption.service import ForeignState
from quarterdeck.testing.foreign import ClaudeProgram
from quarterdeck.views.context import Cursor, ForeignSession, SessionReader
from tests.hub.api.kit import scripted
from tests.runner.adoption.kit import log_of, program, prompts, running, until
from tests.taping.tapes import environment

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.02)


async def adopted(runner: Runner, session_id: str, *, past: bool = True) -> list[Event]:
    await runner.adopt_program("claude", past=past)
    follower = runner.adoption.followers["claude"]
    while True:
        if session_id in follower.sessions and not follower.waiting_bytes:
            return await log_of(runner, session_id)
        await anyio.sleep(0.02)


async def followed(runner: Runner, *programs: ClaudeProgram) -> ProgramFollower:
    """Follow the past; return when the sessions of these programs were found."""
    await runner.adopt_program("claude", past=True)
    follower = runner.adoption.followers["claude"]
    while True:
        if {each.session_id for each in programs} <= follower.sessions.keys():
            return follower
        await anyio.sleep(0.02)


def numbered(events: list[Event]) -> None:
    assert [each.seq for each in events] == list(range(1, len(events) + 1))


async def test_a_session_is_listed_and_shown_with_its_own_times(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("please look")
    claude.call("ls", "a.py")
    claude.answer("there is one file")
    async with running(tmp_path) as runner:
        events = await adopted(runner, claude.session_id)
        numbered(events)
        assert prompts(events) == ["please look"]
        assert {each.ts // 1_000_000_000 for each in events[1:]} == {1_700}
        source = (events[-1].extensions or {})["quarterdeck"]["source"]
        assert source == {"adapter": "claude", "cursor": {"offset": claude.path.stat().st_size}}
        (listed,) = await runner.list_sessions()
        assert (listed.title, listed.agent, listed.cwd) == ("please look", "claude", claude.cwd)
        assert listed.status == "disconnected"
        assert listed.last_at == "2023-11-14T22:13:25Z"


async def test_what_is_appended_is_recorded_once_across_restarts(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    async with running(tmp_path) as runner:
        await adopted(runner, claude.session_id)
        claude.answer("two")
        await until(runner, claude.session_id, "two")
    claude.prompt("three")
    async with running(tmp_path) as runner:
        await until(runner, claude.session_id, "three")
        claude.prompt("four")
        events = await until(runner, claude.session_id, "four")
        numbered(events)
        assert prompts(events) == ["one", "three", "four"]
        assert sum(each.type == "agent-message-chunk" for each in events) == 1


async def test_what_claude_writes_before_what_it_follows_is_recorded_after_it(
    tmp_path: Path,
) -> None:
    claude = program(tmp_path)
    said = {"role": "assistant", "content": [{"type": "text", "text": "the answer"}]}
    claude.write({"type": "assistant", "message": said, "parentUuid": "line-3"})
    async with running(tmp_path) as runner:
        await followed(runner, claude)
        claude.prompt("the prompt")
        events = await until(runner, claude.session_id, "the answer")
        chunks = [each.type for each in events if each.type.endswith("-chunk")]
        assert chunks == ["user-message-chunk", "agent-message-chunk"]
        claude.write({"type": "assistant", "message": {**said, "id": "m"}, "parentUuid": "gone"})
        while True:  # it is recorded although what it follows never comes
            events = await log_of(runner, claude.session_id)
            if sum(each.type == "agent-message-chunk" for each in events) == 2:
                break
            await anyio.sleep(0.02)
        numbered(events)


async def test_a_session_that_could_not_be_read_is_tried_again_soon(tmp_path: Path) -> None:
    claude = program(tmp_path)
    found = ForeignSession(id=claude.session_id, cwd=claude.cwd, path=str(claude.path))
    async with running(tmp_path) as runner:
        await runner.adopt_program("claude")
        with pytest.raises(AcpError, match="No such file"):
            await runner.adoption.followers["claude"].read_now(found)
        claude.prompt("here I am")
        assert prompts(await until(runner, claude.session_id, "here I am")) == ["here I am"]


async def test_the_past_is_imported_although_a_session_cannot_be_read(tmp_path: Path) -> None:
    claude, deleted, strange = (program(tmp_path, number) for number in (1, 2, 3))
    for each in (claude, deleted, strange):
        each.prompt("one")
    strange.path.write_text(strange.path.read_text().replace(strange.cwd, "/a\\u0000b"))
    async with running(tmp_path) as runner:
        follower = await followed(runner, claude, deleted, strange)
        await adopted(runner, claude.session_id)
        await runner.delete_session(deleted.session_id)
        deleted.prompt("two")
        while True:
            if follower.sessions[deleted.session_id].problem and not follower.waiting_bytes:
                break
            await anyio.sleep(0.02)
        assert "null" in follower.sessions[strange.session_id].problem


async def test_one_session_never_stops_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = program(tmp_path, 1), program(tmp_path, 2)
    bad.prompt("one")
    good.prompt("one")
    async with running(tmp_path) as runner:
        adapter = runner.adoption.adapters["claude"]
        opened = adapter.open_reader

        def open_reader(session: ForeignSession, after: Cursor | None, at: int) -> SessionReader:
            if session.id == bad.session_id:
                raise KeyError("a fault of an adapter")
            return opened(session, after, at)

        monkeypatch.setattr(adapter, "open_reader", open_reader)
        follower = await followed(runner, bad, good)
        good.prompt("two")
        assert prompts(await until(runner, good.session_id, "two")) == ["one", "two"]
        while True:
            if problem := follower.sessions[bad.session_id].problem:
                break
            await anyio.sleep(0.02)
        assert "a fault of an adapter" in problem


@pytest.mark.parametrize("name", ["9" * 30, "0", "\N{ARABIC-INDIC DIGIT THREE}" * 30])
async def test_a_file_with_the_number_of_no_process_is_ignored(tmp_path: Path, name: str) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    folder = tmp_path / "claude" / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text("{}")
    async with running(tmp_path) as runner:
        assert prompts(await adopted(runner, claude.session_id)) == ["one"]


async def test_positions_are_found_in_the_log_alone(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    async with running(tmp_path) as runner:
        before = await adopted(runner, claude.session_id)
    async with running(tmp_path) as runner:
        await runner.release_program("claude")
        await runner.database.write(
            lambda connection: connection.execute("DELETE FROM foreign_positions")
        )
        claude.prompt("two")
        await runner.adopt_program("claude", past=True)
        events = await until(runner, claude.session_id, "two")
        assert events[: len(before)] == before
        assert prompts(events) == ["one", "two"]


async def test_only_what_changes_is_followed_unless_the_past_is_wanted(tmp_path: Path) -> None:
    old, new = program(tmp_path, 1), program(tmp_path, 2)
    old.prompt("old")
    os.utime(old.path, (1_700_000_000, 1_700_000_000))
    async with running(tmp_path) as runner:
        shown = await runner.adopt_program("claude")
        assert (shown.mode, shown.integration_method) == ("live", "file-watch")
        new.prompt("new")
        await until(runner, new.session_id, "new")
        assert runner.find_session(old.session_id) is None
        found = await runner.foreign_sessions("claude")
        assert [(each.session.id, each.is_adopted) for each in found] == [
            (new.session_id, True),
            (old.session_id, False),
        ]
        shown_session = await runner.adopt_session("claude", old.session_id)
        assert shown_session.title == "old"
        old.prompt("again")
        await until(runner, old.session_id, "again")
        with pytest.raises(RequestRejected):
            await runner.adopt_session("claude", "unknown")
        with pytest.raises(RequestRejected):
            await runner.adopt_program("unknown")


async def test_a_program_that_is_released_is_not_followed_but_its_sessions_stay(
    tmp_path: Path,
) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    async with running(tmp_path) as runner:
        before = await adopted(runner, claude.session_id)
        await runner.release_program("claude")
        claude.prompt("two")
        assert await log_of(runner, claude.session_id) == before
    async with running(tmp_path) as runner:
        assert not runner.adoption.followers
        assert await log_of(runner, claude.session_id) == before
        events = await adopted(runner, claude.session_id)
        assert prompts(events) == ["one", "two"]


async def test_a_session_that_was_deleted_here_stays_deleted(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    async with running(tmp_path) as runner:
        await adopted(runner, claude.session_id)
        await runner.delete_session(claude.session_id)
        claude.prompt("two")
        with pytest.raises(AcpError):
            await runner.adopt_session("claude", claude.session_id)
    async with running(tmp_path) as runner:
        with pytest.raises(AcpError):
            await runner.adopt_session("claude", claude.session_id)
        assert runner.find_session(claude.session_id) is None


async def test_a_transcript_that_was_replaced_starts_its_session_over(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("one")
    claude.answer("a long answer that is gone")
    async with running(tmp_path) as runner:
        await adopted(runner, claude.session_id)
        claude.path.write_bytes(b"")
        claude.prompt("two")
        events = await until(runner, claude.session_id, "two")
        numbered(events)
        resets = [each.seq for each in events if each.type == "session-reset"]
        assert len(resets) == 1
        assert prompts(events[resets[0] :]) == ["two"]


async def test_sub_agents_are_sessions_of_their_parent(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("go")
    claude.sub_agent("a1", claude.start_call("Agent", {"description": "Look", "prompt": "?"}))
    async with running(tmp_path) as runner:
        await adopted(runner, "agent-a1")
        child = runner.session("agent-a1")
        assert (child.parent_session_id, child.title) == (claude.session_id, "Look")


async def until_open(runner: Runner, session_id: str, *, is_open: bool) -> None:
    while True:
        foreign = runner.session(session_id).foreign
        if isinstance(foreign, ForeignState) and foreign.is_running is is_open:
            return
        await anyio.sleep(0.02)


async def test_a_session_that_is_open_in_a_terminal_is_continued_there(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("go")
    agent = scripted({"say": "from the hub"})
    async with running(tmp_path, agents={"claude": agent}) as runner:
        await adopted(runner, claude.session_id)
        open_file = claude.run("busy")
        await until_open(runner, claude.session_id, is_open=True)
        with pytest.raises(RequestRejected, match="is open in Claude Code"):
            await runner.ensure_active(claude.session_id)
        open_file.unlink()
        await until_open(runner, claude.session_id, is_open=False)
        assert (await runner.ensure_active(claude.session_id)).status == "active"


async def test_what_an_agent_of_this_host_records_is_not_recorded_twice(tmp_path: Path) -> None:
    claude = program(tmp_path)
    claude.prompt("in the terminal")
    agent = scripted({"say": "through ACP"})
    async with running(tmp_path, agents={"claude": agent}) as runner:
        await adopted(runner, claude.session_id)
        key, block = "k", {"type": "text", "text": "from the page"}
        await runner.add_prompt(claude.session_id, key, [block])
        assert (await runner.wait_prompt(claude.session_id, key)).state == "done"
        claude.prompt("from the page")  # its ACP agent writes the same file
        claude.answer("through ACP")
        agent_id = runner.session(claude.session_id).agent_id
        assert isinstance(agent_id, str)
        await runner.stop_agent(agent_id)
        await runner.host.wait_stored()
    async with running(tmp_path, agents={"claude": agent}) as runner:
        await anyio.sleep(0.2)
        events = await log_of(runner, claude.session_id)
        said = [each for each in events if each.type == "agent-message-chunk"]
        assert len(said) == 1
        assert "from the page" in prompts(events)[-1]
        assert len([each for each in prompts(events) if "page" in each]) == 1


KILLED = """
import sys
from pathlib import Path
import anyio
from tests.runner.adoption.kit import running
from quarterdeck.agents.adapters import line_file
line_file.CHUNK = 2_000

async def main() -> None:
    async with running(Path(sys.argv[1])) as runner:
        await runner.adopt_program("claude", past=True)
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.slow
async def test_nothing_is_lost_or_doubled_by_kill_9(tmp_path: Path) -> None:
    claude = program(tmp_path)
    for number in range(400):
        claude.prompt(f"prompt {number}")
        claude.call("ls", "x" * 300)
        claude.answer(f"answer {number}")
    expected = [f"prompt {number}" for number in range(400)]
    environ = environment(Path(__file__).parents[3])
    for seconds in (0.02, 0.05, 0.1):
        process = await anyio.to_thread.run_sync(
            lambda: subprocess.Popen(
                [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, env=environ
            )
        )
        assert process.stdout is not None
        assert await anyio.to_thread.run_sync(process.stdout.readline) == b"ready\n"
        await anyio.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    async with running(tmp_path) as runner:
        events = await adopted(runner, claude.session_id)
        numbered(events)
        assert prompts(events) == expected
        assert sum(each.type == "agent-message-chunk" for each in events) == 400

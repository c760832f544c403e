"""Awkward peers, part 4: how a child process starts, ends and uses its pipes.

| no | the peer | defined outcome |
| --- | --- | --- |
| 51 | exits in mid-request | the call fails, naming exit status and last words |
| 52 | is killed by a signal | the call fails, naming the signal |
| 53 | closes its input and lives on | later calls fail at once, the earlier one is answered |
| 54 | writes 1 MB or 50 MB to standard error | nothing waits; the last 100 lines are kept |

Also: no newline on standard error, split characters, closed output, children left behind, signals
ignored, and commands that cannot be started.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import AgentNotFound, ConnectionClosed
from quarterdeck.wire import ConnectionOptions, ReportKind, open_connection, open_process
from tests.wire.awkward.helpers import PATIENCE, Step, awkward_peer, line, peer_command, update

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_a_peer_that_exits_fails_its_calls_with_status_and_last_words() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(ConnectionClosed) as caught:
                await peer.do(["complain", "first\nlicence expired\n"], ["exit", 3])
            with pytest.raises(ConnectionClosed) as again:
                await peer.connection.call("echo")
    assert str(caught.value) == (
        f"do was not answered: {Path(sys.executable).name} exited with status 3; "
        "its last words: licence expired"
    )
    assert "exited with status 3" in str(again.value)


async def test_last_words_without_a_newline_or_whole_character_are_kept() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE), pytest.raises(ConnectionClosed, match="last words: ouch�"):
            await peer.do(["complain", "ouch"], ["complain", "hex:e282"], ["exit", 1])


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
async def test_a_peer_that_a_signal_ends_fails_its_calls_with_its_name(name: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE), pytest.raises(ConnectionClosed, match=f"ended by {name}"):
            await peer.do(["die", name])


async def test_what_a_peer_said_before_it_exited_is_handled_first() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE), pytest.raises(ConnectionClosed):
            await peer.do(["flood", 3000, update("last")], ["exit", 0])
        assert len(peer.notifications) == 3000


async def test_a_peer_that_closes_its_input_fails_later_calls_and_may_answer_earlier_ones() -> None:
    go_on, results = anyio.Event(), []

    async def early() -> None:
        going_deaf: list[Step] = [["close", 0], ["write", line(method="deaf")]]
        dawdling: list[Step] = [["flood", 200_000, "\n"], ["answer", "still here"], ["hang"]]
        results.append(await peer.do(*going_deaf, *dawdling))

    async with awkward_peer(
        on_notification=lambda _method, _params: go_on.set(), stop_seconds=0.1
    ) as peer:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(early)
                await go_on.wait()
                for _ in range(3):
                    with pytest.raises(ConnectionClosed, match="no longer reads its input"):
                        await peer.connection.call("echo")
                with pytest.raises(ConnectionClosed):
                    await peer.connection.notify("echo")
    assert results == ["still here"]


async def test_a_call_that_waits_in_our_own_hands_fails_when_the_input_is_closed() -> None:
    """The pipe is full, the peer never read it and closes it: who waits to write must learn."""
    problems: list[str] = []

    async def prompt() -> None:
        try:
            await peer.connection.call("prompt", {"text": "x" * 200_000})
        except ConnectionClosed as problem:
            problems.append(str(problem))

    steps: list[Step] = [["flood", 50_000, "\n"], ["close", 0], ["hang"]]
    async with awkward_peer(*steps, stop_seconds=0.1) as peer:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(prompt)
    assert len(problems) == 5


@pytest.mark.parametrize("size", [1_000_000, 50_000_000])
async def test_a_flood_on_standard_error_blocks_nothing(size: int) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["complain", "x" * 99 + "\n", size // 100])
            assert await peer.connection.call("echo") == {}
        assert list(peer.process.last_stderr) == ["x" * 99] * 100


async def test_standard_error_without_a_newline_is_kept_in_pieces() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["complain", "é", 1_000_000])
            with pytest.raises(ConnectionClosed):
                await peer.do(["exit", 0])
        kept = list(peer.process.last_stderr)
    assert len(kept) == 100
    assert set("".join(kept)) == {"é"}
    assert max(map(len, kept)) == 2000


async def test_lines_of_standard_error_are_handed_on_even_if_a_handler_raises() -> None:
    lines: list[str] = []

    def note(text: str) -> None:
        lines.append(text)
        if text == "two":
            raise ValueError("no more of this")

    steps = [["complain", "one\r\ntwo\n\nthr"], ["complain", "hex:c3"], ["complain", "hex:a90a"]]
    with anyio.fail_after(PATIENCE):
        async with (
            open_process(peer_command(*steps, ["exit", 0]), on_stderr=note) as process,
            open_connection(process) as connection,
        ):
            await connection.wait_closed()
    assert lines == ["one", "two", "thré"]


async def test_a_peer_that_closes_its_output_but_lives_fails_its_calls() -> None:
    async with awkward_peer(stop_seconds=0.1) as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(ConnectionClosed, match="closed its output but still runs"):
                await peer.do(["close", 1], ["hang"])


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Make a FIFO and hold its reading end: its end shows that no process holds the other."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, descriptor
    os.close(descriptor)


@pytest.mark.parametrize("leader", ["lives", "exits"])
async def test_children_in_the_group_of_the_peer_end_with_it(
    leader: str, fifo: tuple[Path, int]
) -> None:
    path, descriptor = fifo
    with anyio.fail_after(PATIENCE):
        async with awkward_peer() as peer:
            await peer.do(["leave-child", "in the group", str(path)])
            if leader == "exits":
                # The child holds the pipes, so there is no end of the output to wait for.
                with pytest.raises(ConnectionClosed, match="exited with status 5"):
                    await peer.do(["exit", 5])
        await anyio.wait_readable(descriptor)
    assert os.read(descriptor, 1) == b""


async def test_a_child_that_left_the_group_delays_nothing(fifo: tuple[Path, int]) -> None:
    path, descriptor = fifo
    with anyio.fail_after(PATIENCE):
        async with awkward_peer() as peer:
            child: int = await peer.do(["leave-child", "in its own session", str(path)])
            with pytest.raises(ConnectionClosed, match="exited with status 5"):
                await peer.do(["exit", 5])
        os.kill(child, signal.SIGKILL)  # no signal to the group reaches it: pinned, not wished for
        await anyio.wait_readable(descriptor)


async def test_a_peer_that_ignores_the_end_of_its_input_and_sigterm_is_killed() -> None:
    with anyio.fail_after(PATIENCE):
        steps = [["ignore", "SIGTERM"], ["write", line(method="ready")], ["hang"]]
        ready = anyio.Event()
        async with awkward_peer(
            *steps, on_notification=lambda _method, _params: ready.set(), stop_seconds=0.1
        ) as peer:
            await ready.wait()
    assert peer.process.exit_status == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["missing", "on no path", "directory", "not executable", "nul"])
async def test_a_command_that_cannot_be_started_is_named_with_the_reason(
    kind: str, tmp_path: Path
) -> None:
    plain_file = tmp_path / "notes.txt"
    plain_file.write_text("not a program")
    command, reason = {
        "missing": (str(tmp_path / "nothing"), "No such file or directory"),
        "on no path": ("no-such-program-anywhere", "No such file or directory"),
        "directory": (str(tmp_path), "Permission denied"),
        "not executable": (str(plain_file), "Permission denied"),
        "nul": ("a\0b", "embedded null byte"),
    }[kind]
    with anyio.fail_after(PATIENCE), pytest.raises(AgentNotFound) as caught:
        async with open_process([command]):
            pass
    assert str(caught.value).startswith(f"cannot start {command!r}: {reason}")


async def test_a_file_that_is_no_program_is_named_with_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "agent"
    script.write_bytes(b"\x00\x01\x02")
    script.chmod(0o755)
    with anyio.fail_after(PATIENCE), pytest.raises(AgentNotFound, match="Exec format error"):
        async with open_process([str(script)]):
            pass


async def test_a_working_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with anyio.fail_after(PATIENCE), pytest.raises(AgentNotFound) as caught:
        async with open_process([sys.executable], cwd=folder):
            pass
    assert f"its working directory {str(folder)!r}: No such file" in str(caught.value)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_failed_starts_leave_no_descriptors_behind(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(AgentNotFound):
            async with open_process([str(tmp_path)]):
                pass
    assert open_descriptors() == before


async def test_leaving_is_bounded_while_the_peer_reads_nothing() -> None:
    problems: list[ConnectionClosed] = []

    async def prompt() -> None:
        try:
            await connection.call("prompt", {"text": "x" * 500_000})
        except ConnectionClosed as problem:
            problems.append(problem)

    options = ConnectionOptions(close_seconds=0.1, answers_garbage=False)
    with anyio.fail_after(PATIENCE):
        async with (
            anyio.create_task_group() as tasks,
            awkward_peer(["hang"], options=options, stop_seconds=0.1) as peer,
        ):
            connection = peer.connection
            for _ in range(20):
                tasks.start_soon(prompt)
            await anyio.wait_all_tasks_blocked()
    assert len(problems) == 20
    # A machine that is slow to deliver the first signal gets the second one.
    assert peer.process.exit_status in (-signal.SIGTERM, -signal.SIGKILL)


async def test_a_refused_start_of_noise_on_both_pipes_is_survived() -> None:
    """The worst greeting: text, a bar without newline, half a line of JSON, then business."""
    steps = [
        ["complain", "loading\rloading.\r"],
        ["write", "Welcome!\n[####    ] 50%\r[########] 100%\n{\n"],
    ]
    async with awkward_peer(*steps) as peer:
        with anyio.fail_after(PATIENCE):
            assert await peer.connection.call("echo", {"ok": True}) == {"ok": True}
    assert peer.kinds == [ReportKind.NOISE, ReportKind.MALFORMED, ReportKind.MALFORMED]

"""The default terminal handler, with real processes: they are its subject."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.acp.schema import CreateTerminalRequest, EnvVariable
from quarterdeck.errors import RpcError
from quarterdeck.machine.terminals import DefaultTerminalHandler

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")]

PATIENCE = 60


def python(code: str, *args: str, **fields: Any) -> CreateTerminalRequest:
    command = ("-I", "-S", "-c", code, *args)
    return CreateTerminalRequest(session_id="s", command=sys.executable, args=command, **fields)


def shell(line: str, **fields: Any) -> CreateTerminalRequest:
    return CreateTerminalRequest(session_id="s", command="sh", args=("-c", line), **fields)


class Bench:
    """A handler and everything it emitted."""

    def __init__(self, handler: DefaultTerminalHandler) -> None:
        self.handler = handler
        self.events: list[tuple[str, dict[str, Any]]] = []

        def emit(session_id: str, payload: dict[str, Any]) -> None:
            self.events.append((session_id, payload))

        handler.send_output_to(emit)

    @property
    def deltas(self) -> list[str]:
        return [payload["delta"] for _, payload in self.events if "delta" in payload]

    async def run(self, request: CreateTerminalRequest) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run a command to its end; return what `terminal_output` and `wait` say."""
        terminal_id = await self.handler.create_terminal("s", request)
        end = await self.handler.wait_for_terminal_exit("s", terminal_id)
        return await self.handler.terminal_output("s", terminal_id), end

    async def output(self, terminal_id: str, is_enough: Callable[[str], bool]) -> str:
        while True:
            text = (await self.handler.terminal_output("s", terminal_id))["output"]
            if is_enough(text):
                return str(text)
            await anyio.sleep(0.01)

    async def refusal(self, request: CreateTerminalRequest) -> tuple[int, str]:
        with pytest.raises(RpcError) as caught:
            await self.handler.create_terminal("s", request)
        return caught.value.code, str(caught.value.data)


@asynccontextmanager
async def bench(**options: Any) -> AsyncIterator[Bench]:
    with anyio.fail_after(PATIENCE):
        async with DefaultTerminalHandler(**options) as handler:
            yield Bench(handler)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


async def gone(pids: Sequence[int]) -> None:
    with anyio.fail_after(PATIENCE):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - nothing reports it
            await anyio.sleep(0.01)


FAMILY = """
import os, subprocess, sys, time
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
sleep = [sys.executable, "-I", "-S", "-c", code]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
print(os.getpid(), *(child.pid for child in children), flush=True)
time.sleep(99)
"""


async def start_family(on: Bench) -> tuple[str, list[int]]:
    """Start a command with a child in its group and one in a session of its own."""
    terminal_id = await on.handler.create_terminal("s", python(FAMILY))
    text = await on.output(terminal_id, lambda text: text.endswith("\n"))
    return terminal_id, [int(pid) for pid in text.split()]


async def test_output_of_both_streams_is_kept_in_order_and_the_exit_code_told() -> None:
    async with bench() as it:
        output, end = await it.run(shell("echo one; echo two >&2; echo three; exit 3"))
    assert output == {
        "output": "one\ntwo\nthree\n",
        "truncated": False,
        "exitStatus": {"exitCode": 3},
    }
    assert end == {"exitCode": 3}
    assert "".join(it.deltas) == "one\ntwo\nthree\n"
    assert it.events[-1][1]["exit"] == {"exitCode": 3}


async def test_a_command_that_a_signal_ends_reports_its_name() -> None:
    async with bench() as it:
        _, end = await it.run(shell("kill -TERM $$"))
    assert end == {"signal": "SIGTERM"}


async def test_a_running_command_has_output_and_no_exit_status() -> None:
    async with bench() as it:
        terminal_id = await it.handler.create_terminal("s", shell("echo hi; sleep 99"))
        await it.output(terminal_id, lambda text: text == "hi\n")
        assert await it.handler.terminal_output("s", terminal_id) == {
            "output": "hi\n",
            "truncated": False,
        }


async def test_the_tail_is_kept_and_never_starts_within_a_character() -> None:
    async with bench() as it:
        code = "import os\nfor _ in range(99): os.write(1, 'xäß€😀'.encode())"
        output, _ = await it.run(python(code, output_byte_limit=25))
    text = ("xäß€😀" * 99).encode()
    assert output["truncated"] is True
    assert text.endswith(output["output"].encode())
    assert 25 - 3 <= len(output["output"].encode()) <= 25


async def test_characters_that_arrive_in_pieces_are_whole() -> None:
    async with bench() as it:
        code = (
            "import os, time\n"
            "for byte in 'ä€😀'.encode() + b'\\xff': os.write(1, bytes([byte])); time.sleep(.002)"
        )
        output, _ = await it.run(python(code))
    assert output["output"] == "ä€😀�"
    assert "".join(it.deltas) == "ä€😀�"


@pytest.mark.parametrize(("limit", "kept"), [(None, 1 << 20), (0, 0), (-5, 0), (1 << 40, 3 << 20)])
async def test_output_is_bounded_whatever_limit_is_requested(limit: int | None, kept: int) -> None:
    async with bench() as it:
        code = "import os\nfor _ in range(48): os.write(1, b'x' * 65536)"
        output, _ = await it.run(python(code, output_byte_limit=limit))
    assert len(output["output"]) == kept
    assert output["truncated"] is (kept < 3 << 20)


async def test_many_small_writes_become_few_events() -> None:
    async with bench() as it:
        await it.run(python("import os\nfor _ in range(20000): os.write(1, b'x')"))
    assert "".join(it.deltas) == "x" * 20000
    assert len(it.deltas) < 1000


async def test_a_flood_costs_a_bounded_number_of_events_and_reports_what_is_left_out() -> None:
    async with bench() as it:
        code = "import os\nfor _ in range(400): os.write(1, b'x' * 65536)"
        output, _ = await it.run(python(code, output_byte_limit=1000))
    assert output["output"] == "x" * 1000
    assert sum(map(len, it.deltas)) < 20_000_000 < 400 * 65536
    assert any("characters left out]" in delta for delta in it.deltas)
    assert max(map(len, it.deltas)) <= 32 * 1024


async def test_environment_and_folder_are_those_of_the_request(tmp_path: Path) -> None:
    variables = (EnvVariable(name="ADDED", value="a"), EnvVariable(name="HELD", value="new"))
    environ = {"HELD": "old", "KEPT": "k", "PATH": os.environ["PATH"]}
    async with bench(environ=environ) as it:
        line = "echo $ADDED $HELD $KEPT; pwd; wc -c < /dev/stdin"
        output, _ = await it.run(shell(line, env=variables, cwd=str(tmp_path)))
    assert output["output"] == f"a new k\n{tmp_path}\n0\n"


async def test_the_environment_is_in_no_list_of_processes() -> None:
    async with bench() as it:
        secret = EnvVariable(name="TOKEN", value="hunter2")
        output, _ = await it.run(shell("cat /proc/[0-9]*/cmdline", env=(secret,)))
    assert "guard_program.py" in output["output"]
    assert "hunter2" not in output["output"]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (CreateTerminalRequest(session_id="s", command="no-such"), "no such program"),
        (CreateTerminalRequest(session_id="s", command="/no/such"), "no such file"),
        (CreateTerminalRequest(session_id="s", command="/etc/passwd"), "it is not a program"),
        (CreateTerminalRequest(session_id="s", command=" "), "no such program"),
        (CreateTerminalRequest(session_id="s", command="echo a | wc", args=("x",)), "no such"),
        (CreateTerminalRequest(session_id="s", command=""), "no such program"),
        (shell("true", cwd="/no/such"), "cwd must be"),
        (shell("true", cwd="relative"), "cwd must be"),
        (shell("nul\0"), "not valid"),
        (shell("x" * 3_000_000), "Argument list too long"),
    ],
)
async def test_what_cannot_be_started_is_refused_with_a_reason(
    request_: CreateTerminalRequest, sentence: str
) -> None:
    async with bench() as it:
        code, message = await it.refusal(request_)
    assert code == -32602
    assert sentence in message
    assert it.events == []


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("echo a  b | tr a-z A-Z", "A B\n"),
        ("/bin/echo one two", "one two\n"),
        ("NAME=x;echo $NAME", "x\n"),
    ],
)
async def test_a_command_line_is_run_by_a_shell(line: str, output: str) -> None:
    async with bench() as it:
        answer, _ = await it.run(CreateTerminalRequest(session_id="s", command=line))
    assert answer["output"] == output


async def test_a_program_whose_name_looks_like_a_command_line_is_run_as_that_program(
    tmp_path: Path,
) -> None:
    program = tmp_path / "echo wrong; true"
    program.write_text("#!/bin/sh\necho right\n")
    program.chmod(0o755)
    async with bench() as it:
        answer, _ = await it.run(CreateTerminalRequest(session_id="s", command=str(program)))
    assert answer["output"] == "right\n"


async def test_a_command_line_is_refused_where_no_shell_is_allowed() -> None:
    line = CreateTerminalRequest(session_id="s", command="echo a | wc")
    async with bench(shell=None) as it:
        code, message = await it.refusal(line)
    assert (code, "no such program" in message) == (-32602, True)


async def test_a_killed_terminal_stays_and_its_whole_family_ends() -> None:
    async with bench() as it:
        terminal_id, pids = await start_family(it)
        await it.handler.kill_terminal("s", terminal_id)
        assert await it.handler.wait_for_terminal_exit("s", terminal_id) == {"signal": "SIGKILL"}
        await gone(pids)
        output = await it.handler.terminal_output("s", terminal_id)
        assert output["exitStatus"] == {"signal": "SIGKILL"}
        assert output["output"].split() == [str(pid) for pid in pids]
        await it.handler.kill_terminal("s", terminal_id)  # again: nothing happens


async def test_a_released_terminal_is_forgotten_and_silent() -> None:
    async with bench() as it:
        terminal_id, pids = await start_family(it)
        results: list[dict[str, Any]] = []

        async def wait() -> None:
            results.append(await it.handler.wait_for_terminal_exit("s", terminal_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await it.handler.release_terminal("s", terminal_id)
            message = len(it.events)
        assert results == [{"signal": "SIGKILL"}]
        await gone(pids)
        for call in (it.handler.terminal_output, it.handler.kill_terminal):
            with pytest.raises(RpcError) as caught:
                await call("s", terminal_id)
            assert (caught.value.code, caught.value.data) == (-32602, "unknown terminal")
        assert it.events[-1][1] == {"terminalId": terminal_id, "exit": {"signal": "SIGKILL"}}
        assert len(it.events) == message


async def test_a_session_is_cleaned_up_alone() -> None:
    async with bench() as it:
        _, pids = await start_family(it)
        other = await it.handler.create_terminal("other", shell("sleep 99"))
        await it.handler.cleanup_session("s")
        await gone(pids)
        assert "exitStatus" not in await it.handler.terminal_output("other", other)
        with pytest.raises(RpcError):
            await it.handler.terminal_output("s", other)


async def test_leaving_the_handler_ends_everything() -> None:
    async with bench() as it:
        _, pids = await start_family(it)
    await gone(pids)
    code, sentence = await it.refusal(shell("true"))
    assert (code, sentence) == (-32603, "the terminal handler is not open")


async def test_cancelling_the_handler_ends_everything() -> None:
    with anyio.CancelScope() as scope:
        async with bench() as it:
            _, pids = await start_family(it)
            scope.cancel()
            await anyio.sleep_forever()
    await gone(pids)


async def test_what_a_command_leaves_in_the_background_does_not_hold_up_its_exit() -> None:
    async with bench() as it:
        output, end = await it.run(shell("sleep 99 & echo $!"))
        await gone([int(output["output"])])
    assert end == {"exitCode": 0}


async def test_a_failing_callback_does_not_stop_the_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with bench() as it:

        def fail(_session_id: str, _payload: dict[str, Any]) -> None:
            raise ValueError("mine")

        it.handler.send_output_to(fail)
        output, _ = await it.run(shell("echo still here"))
    assert output["output"] == "still here\n"
    assert "callback for terminal output failed" in caplog.text


async def test_ended_terminals_make_room_and_running_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quarterdeck.machine.terminals._MAX_TERMINALS", 2)
    async with bench() as it:
        ended = await it.handler.create_terminal("s", shell("true"))
        await it.handler.wait_for_terminal_exit("s", ended)
        await it.handler.create_terminal("s", shell("sleep 99"))
        await it.handler.create_terminal("s", shell("sleep 99"))
        code, sentence = await it.refusal(shell("true"))
        assert (code, "release one" in sentence) == (-32602, True)
        await it.handler.create_terminal("another", shell("true"))
        with pytest.raises(RpcError):
            await it.handler.terminal_output("s", ended)

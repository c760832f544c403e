"""The process guard, with real processes: whatever dies, nothing below it survives."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import AgentNotFound
from quarterdeck.machine import UNCONFINED, ConfinedStart, guard_program, processes
from quarterdeck.machine.processes import guarded_command, guarded_env, kill_tree
from quarterdeck.wire import background_tasks, open_process

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")]

PATIENCE = 60
PYTHON = (sys.executable, "-I", "-S", "-c")

# An agent as awkward as can be: it ignores SIGTERM and the end of its input, and has a shell child,
# a grandchild in a session of its own, and a daemon that forked twice. It prints all their pids.
AWKWARD_AGENT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
nap = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(99)"]
shell = subprocess.Popen(["sh", "-c", "sleep 99; true"])
own_session = subprocess.Popen(nap, start_new_session=True)
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.execv(nap[0], nap)
    os._exit(0)
os.wait3(0)
daemon = os.read(read, 20).decode()
print(os.getpid(), shell.pid, own_session.pid, daemon, flush=True)
time.sleep(99)
"""

# Stands in for the host: starts its argument, hands on its first line of output, and waits.
HOST = """
import json, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from quarterdeck.machine.processes import guarded_command
command = guarded_command(json.loads(sys.argv[2]))
guard = subprocess.Popen(command, stdin=-1, stdout=-1, start_new_session=True)
print(guard.pid, guard.stdout.readline().decode(), flush=True)
time.sleep(99)
"""


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def gone(pids: Sequence[int]) -> None:
    with anyio.fail_after(PATIENCE):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - nothing reports it
            await anyio.sleep(0.01)


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command with pipes in a group of its own; it is killed at the end."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        assert process.returncode is not None


def read_pids(process: subprocess.Popen[bytes]) -> list[int]:
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert pids, "it did not start"
    assert all(map(is_alive, pids))
    return pids


def run(*command: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        guarded_command(command), input=text, capture_output=True, timeout=PATIENCE, check=False
    )


# Nothing survives.


async def test_nothing_survives_a_host_that_is_killed() -> None:
    source = str(Path(processes.__file__).parents[2])
    agent = json.dumps([*PYTHON, AWKWARD_AGENT])
    with started(sys.executable, "-c", HOST, source, agent) as host:
        outer, *family = read_pids(host)
        inner = parent(family[0])
        assert parent(inner) == outer
        assert len(family) == 4
        host.kill()
        host.wait()
        await gone([outer, inner, *family])


@pytest.mark.parametrize("victim", ["outer", "inner", "agent", "group"])
async def test_nothing_survives_whichever_process_is_killed(victim: str) -> None:
    with started(*guarded_command([*PYTHON, AWKWARD_AGENT])) as outer:
        family = read_pids(outer)
        inner = parent(family[0])
        if victim == "group":  # what the owner of a child process does last
            os.killpg(outer.pid, signal.SIGKILL)
        else:
            os.kill(
                {"outer": outer.pid, "inner": inner, "agent": family[0]}[victim], signal.SIGKILL
            )
        await gone([inner, *family])
        assert outer.wait(PATIENCE) == -signal.SIGKILL


async def test_a_transport_that_is_closed_leaves_nothing_behind() -> None:
    received = bytearray()
    command = guarded_command([*PYTHON, AWKWARD_AGENT])
    with anyio.fail_after(PATIENCE):
        async with open_process(command, stop_seconds=0.2) as agent, background_tasks() as tasks:
            complete = anyio.Event()

            def take(data: bytes) -> None:
                received.extend(data)
                if received.endswith(b"\n"):
                    complete.set()

            tasks.start_soon(agent.pump, take)
            await complete.wait()
        await gone([int(pid) for pid in received.split()])


async def test_what_a_command_leaves_behind_ends_after_it() -> None:
    code = AWKWARD_AGENT.replace("time.sleep(99)\n", "sys.exit(5)\n")
    with started(*guarded_command([*PYTHON, code])) as outer:
        assert outer.stdout is not None
        family = [int(pid) for pid in outer.stdout.readline().split()]
        assert outer.wait(PATIENCE) == 5
        assert not any(map(is_alive, family))  # it ends only when all is done


async def test_what_comes_back_again_and_again_is_ended_too() -> None:
    phoenix = "while :; do sh -c 'sleep 0.001; :' & done"  # forks as fast as it can
    code = f"import subprocess; p = subprocess.Popen(['timeout', '20', 'sh', '-c', {phoenix!r}]);"
    code += "print(p.pid, flush=True); p.wait()"
    with started(*guarded_command([*PYTHON, code])) as outer:
        pids = read_pids(outer)
        inner = parent(parent(pids[0]))
        outer.kill()
        await gone([inner, *pids])
        assert guard_program.living_descendants(inner) == []


def test_a_guard_whose_owner_is_gone_already_starts_nothing(tmp_path: Path) -> None:
    command = guarded_command(["touch", str(tmp_path / "ran")])
    position = command.index(str(os.getpid()))
    command[position] = "1"
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == 0
    assert not (tmp_path / "ran").exists()


async def test_a_tree_is_killed_without_a_guard_too() -> None:
    code = AWKWARD_AGENT.replace(
        "if os.fork() == 0:\n    os.setsid()", "if False:\n    os.setsid()"
    )
    code = code.replace("os.wait3(0)", "os.write(write, str(shell.pid).encode())")
    with started(*PYTHON, code) as agent:
        family = read_pids(agent)
        kill_tree(agent.pid)
        assert agent.wait(PATIENCE) == -signal.SIGKILL
        await gone(family)
        kill_tree(agent.pid)  # again: nothing happens


# The command notices nothing.


@pytest.mark.parametrize("status", [0, 7, 255])
def test_the_exit_status_is_passed_on(status: int) -> None:
    assert run("sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGPIPE"])
def test_the_signal_that_ended_it_is_passed_on(name: str) -> None:
    number = signal.Signals[name]
    assert run("sh", "-c", f"kill -{number.value} $$").returncode == -number


def test_input_output_and_errors_are_passed_through() -> None:
    done = run("sh", "-c", "cat; echo problem >&2", text=b"first\nlast")
    assert (done.stdout, done.stderr) == (b"first\nlast", b"problem\n")


def test_output_ends_when_the_command_closes_it_although_it_still_runs() -> None:
    with started(*guarded_command(["sh", "-c", "exec >&- 2>&- <&-; sleep 99"])) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
        assert process.poll() is None


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("to_group", [False, True], ids=["process", "group"])
def test_a_signal_reaches_the_command_once(name: str, to_group: bool) -> None:
    code = f"""
import signal, sys, time
count = 0
def count_it(*_):
    global count
    count += 1
signal.signal(signal.{name}, count_it)
print("ready", flush=True)
while not count:
    time.sleep(.005)
time.sleep(.1)
sys.exit(40 + count)
"""
    with started(*guarded_command([*PYTHON, code])) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        send = os.killpg if to_group else os.kill
        send(process.pid, signal.Signals[name])
        assert process.wait(PATIENCE) == 41


def test_signals_are_handled_as_without_a_guard() -> None:
    command = ["grep", "^Sig[BIC]", "/proc/self/status"]
    plain = subprocess.run(command, capture_output=True, check=True)
    assert run(*command).stdout == plain.stdout


def test_no_descriptor_is_left_open() -> None:
    command = ["sh", "-c", "ls /proc/$$/fd"]
    plain = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, check=True)
    assert run(*command).stdout == plain.stdout


def test_a_hundred_megabytes_pass_at_full_speed() -> None:
    code = "import os\nfor _ in range(1600): os.write(1, bytes(65536))"
    done = run(*PYTHON, code)
    assert (len(done.stdout), done.returncode) == (1600 * 65536, 0)


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_environment_is_passed_on_as_it_is(locale: dict[str, str]) -> None:
    env = {"TOKEN": "hunter2", "PATH": os.environ["PATH"], **locale}
    done = subprocess.run(
        guarded_command(["env", "-0"]), env=env, capture_output=True, text=True, check=True
    )
    assert dict(line.split("=", 1) for line in done.stdout.split("\0") if line) == env


def test_the_environment_is_in_no_list_of_processes() -> None:
    env = {"TOKEN": "hunter2", "PATH": os.environ["PATH"]}
    command = guarded_command(["sh", "-c", "cat /proc/[0-9]*/cmdline"])
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert b"guard_program.py" in done.stdout
    assert b"hunter2" not in done.stdout


# It can be found, and started quickly.


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("no-such-program", "no such program"),
        ("/no/such", "no such file"),
        ("/etc/passwd", "it is not a program"),
        ("/etc", "it is not a program"),
    ],
)
def test_a_missing_program_is_reported_before_the_start(program: str, reason: str) -> None:
    with pytest.raises(AgentNotFound) as caught:
        guarded_command([program])
    assert caught.value.reason == reason


def test_a_program_is_looked_for_where_it_will_be_started(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho found")
    tool.chmod(0o755)
    command = guarded_command(["./tool"], cwd=tmp_path)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"found\n"
    env = {"PATH": f"{tmp_path}:{os.defpath}"}
    command = guarded_command(["tool"], env=env)
    done = subprocess.run(command, env=env, capture_output=True, check=True)
    assert done.stdout == b"found\n"


def test_a_program_that_vanishes_is_named_on_standard_error(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/no/such/interpreter\n")
    tool.chmod(0o755)
    done = run(str(tool))
    assert done.returncode == 127
    assert done.stderr.decode() == f"cannot start {str(tool)!r}: No such file or directory\n"


def test_the_guard_needs_next_to_nothing_to_start() -> None:
    tree = ast.parse(Path(guard_program.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= {"os", "select", "sys", "time", "signal", "_signal", "ctypes"}


@pytest.mark.parametrize(
    "start", [UNCONFINED, ConfinedStart(prefix=("env",)), ConfinedStart(options=("--keep=/none",))]
)
def test_no_variable_of_a_command_is_one_of_its_guard(tmp_path: Path, start: ConfinedStart) -> None:
    """LD_PRELOAD would be code that runs before the guard has marked anything."""
    given = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / "loaded"), "WORD": "one"}
    code = "import os; print(os.getpid(), dict(os.environ))"
    done = subprocess.run(
        guarded_command([*PYTHON, code], start=start),
        env=guarded_env(given, start),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    pid, _, printed = done.stdout.partition(" ")
    seen = ast.literal_eval(printed)
    seen.pop("LC_CTYPE", None)  # Python sets it for itself
    loaded = [path.name for path in tmp_path.iterdir()]
    if start.prefix:  # a program in front of the command, which is not confined either
        assert (seen, loaded) == ({"WORD": "one"}, [])
    else:
        assert (seen, loaded) == (given, [f"loaded.{pid}"])

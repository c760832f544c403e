"""The process guard on a machine like macOS: no subreaper, no pidfd, no prctl, no /proc."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.machine import guard_program, processes
from quarterdeck.machine.processes import guarded_command, guarded_env
from tests.fake_macos.kit import mac_python
from tests.machine.test_processes import (
    AWKWARD_AGENT,
    HOST,
    PATIENCE,
    PYTHON,
    gone,
    is_alive,
    parent,
    read_pids,
    run,
    started,
)

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")]

# A program of the system, whose environment macOS hides, in a group of its own: when its parent has
# ended, only what a guard saw before finds it.
LOOKING_GUARD = """
import subprocess, sys
from quarterdeck.machine.guard_program import _Family
code = "import subprocess; print(subprocess.Popen(['sleep', '99'], start_new_session=True).pid)"
code += "; import sys; sys.stdout.flush(); sys.stdin.read()"
pipe = subprocess.PIPE
parent = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe)
orphan = parent.stdout.readline().decode().strip()
family = _Family(0, "no mark")
if sys.argv[1] == "look":
    family.look()
parent.stdin.close()
parent.wait()
family.end(0)
print(orphan, flush=True)
"""


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    python = mac_python(tmp_path)
    monkeypatch.setattr(processes, "_PYTHON", python)
    return python


async def test_nothing_survives_a_host_that_is_killed(mac: str) -> None:
    source = str(Path(processes.__file__).parents[2])
    agent = json.dumps([*PYTHON, AWKWARD_AGENT])
    with started(mac, "-c", HOST, source, agent) as host:
        outer, *family = read_pids(host)
        inner = parent(family[0])
        assert parent(inner) == outer
        assert len(family) == 4
        host.kill()
        host.wait()
        await gone([outer, inner, *family])


@pytest.mark.parametrize("victim", ["outer", "inner", "agent", "group"])
async def test_nothing_survives_whichever_process_is_killed(mac: str, victim: str) -> None:
    with started(*guarded_command([*PYTHON, AWKWARD_AGENT])) as outer:
        family = read_pids(outer)
        inner = parent(family[0])
        if victim == "group":
            os.killpg(outer.pid, signal.SIGKILL)
        else:
            os.kill(
                {"outer": outer.pid, "inner": inner, "agent": family[0]}[victim], signal.SIGKILL
            )
        await gone([inner, *family])
        assert outer.wait(PATIENCE) == -signal.SIGKILL


async def test_what_a_command_leaves_behind_ends_after_it(mac: str) -> None:
    code = AWKWARD_AGENT.replace("time.sleep(99)\n", "sys.exit(5)\n")
    with started(*guarded_command([*PYTHON, code])) as outer:
        assert outer.stdout is not None
        family = [int(pid) for pid in outer.stdout.readline().split()]
        assert outer.wait(PATIENCE) == 5
        assert not any(map(is_alive, family))


@pytest.mark.parametrize("was_seen", [True, False])
def test_a_program_that_hides_its_environment_ends_if_it_was_seen(mac: str, was_seen: bool) -> None:
    command = [mac, "-c", LOOKING_GUARD, "look" if was_seen else "do not"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    orphan = int(done.stdout)
    assert is_alive(orphan) != was_seen  # else it is what the top of the guard says is not found
    if not was_seen:
        os.kill(orphan, signal.SIGKILL)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_the_signal_that_ended_it_is_passed_on(mac: str, name: str) -> None:
    number = signal.Signals[name]
    assert run("sh", "-c", f"kill -{number.value} $$").returncode == -number


def test_input_output_and_errors_are_passed_through(mac: str) -> None:
    done = run("sh", "-c", "cat; echo problem >&2; exit 7", text=b"first\nlast")
    assert (done.stdout, done.stderr, done.returncode) == (b"first\nlast", b"problem\n", 7)


def test_no_descriptor_is_left_open(mac: str) -> None:
    command = ["sh", "-c", "ls /proc/$$/fd"]
    plain = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, check=True)
    assert run(*command).stdout == plain.stdout


def test_the_environment_has_one_variable_more(mac: str) -> None:
    env = {"TOKEN": "hunter2", "PATH": os.environ["PATH"]}
    command = guarded_command(["env", "-0"])
    done = subprocess.run(command, env=guarded_env(env), capture_output=True, text=True, check=True)
    seen = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert seen.pop(vars(guard_program)["_MARK_VARIABLE"])
    assert seen == env


def test_a_guard_whose_owner_is_gone_already_starts_nothing(mac: str, tmp_path: Path) -> None:
    command = guarded_command(["touch", str(tmp_path / "ran")])
    command[command.index(str(os.getpid()))] = "1"
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == 0
    assert not (tmp_path / "ran").exists()

"""Process 1 of a container: a process namespace of its own, as a container engine makes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.kit import ASK, SECONDS, Console, agent_toml
from tests.hub.local_owner import owner_call

pytestmark = pytest.mark.slow

NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--")


@contextmanager
def first_process(
    *command: str, environ: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a command as process 1; yield what stands for it here, and its process id here."""
    with subprocess.Popen(
        [*NAMESPACE, *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text().split():
            time.sleep(0.01)  # until it has forked
        pid = int(children.read_text().split()[0]) if process.poll() is None else 0
        try:
            yield process, pid
        finally:
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)


ORPHAN = """
import os, pathlib, sys, time
from quarterdeck.cli.init_process import run_as_init
status = run_as_init()
if status is not None:
    sys.exit(status)
reading, writing = os.pipe()
if (child := os.fork()) == 0:
    if (orphan := os.fork()) != 0:
        os.write(writing, str(orphan).encode())
    os._exit(0)
os.waitpid(child, 0)
orphan = pathlib.Path("/proc", os.read(reading, 20).decode())
while orphan.exists():  # a zombie, until process 1 reaps it
    time.sleep(0.01)
sys.exit(7)
"""


def test_orphans_are_reaped_and_the_status_is_the_commands() -> None:
    with first_process(sys.executable, "-c", ORPHAN) as (process, _):
        _, complaints = process.communicate(timeout=SECONDS)
    assert (process.returncode, complaints) == (7, "")


def test_a_container_that_is_stopped_ends_the_hub_and_then_the_runner(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("asks", ASK, load=[]))
    command = (sys.executable, "-m", "quarterdeck", "up", "--port", "0", "--json")
    with first_process(*command, environ=console.environ) as (process, pid):
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        assert facts["pid"] != 1
        made = owner_call(
            console.home, "POST", "/api/sessions", {"agent": "asks", "cwd": str(console.work)}
        )
        path = f"/api/sessions/{made['sessionId']}/prompts"
        prompt = [{"type": "text", "text": "go"}]
        owner_call(console.home, "POST", path, {"key": "first", "prompt": prompt})
        while not owner_call(console.home, "GET", "/api/permissions")["permissions"]:
            time.sleep(0.02)
        os.kill(pid, signal.SIGTERM)  # as `docker stop` does
        _, notes = process.communicate(timeout=SECONDS)
    assert (process.returncode, "Traceback" in notes) == (0, False), notes
    assert "stopped; agents end with the container" in notes
    assert "the runner ends" in (console.home / "runner.log").read_text(encoding="utf-8")
    assert not (console.home / "runner.json").exists()
    with console.hub() as hub:
        sessions = hub.call("GET", "/api/sessions")["sessions"]
        assert [each["status"] for each in sessions] == ["disconnected"]


def test_a_command_that_is_killed_ends_the_container() -> None:
    code = (
        "import os, signal, sys; from quarterdeck.cli.init_process import run_as_init;"
        "status = run_as_init(); sys.exit(status) if status is not None else None;"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    with first_process(sys.executable, "-c", code) as (process, _):
        process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGKILL

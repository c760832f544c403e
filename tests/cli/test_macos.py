"""Commands on a machine like macOS: no /proc, and nothing that only Linux has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.machine import guarded_command, living_descendants, processes
from tests.fake_macos.kit import mac_python
from tests.machine.test_processes import gone

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the fake library reads /proc"),
]

SECONDS = 60


class Mac:
    """A user of such a machine."""

    def __init__(self, folder: Path) -> None:
        self.python = mac_python(folder)
        # Longer than the path of a Unix socket may be.
        self.home = folder / ("data" * 25) / "quarterdeck"
        self.work = folder / "work"
        self.work.mkdir()
        self.environ = {
            **{name: text for name, text in os.environ.items() if name != "NO_COLOR"},
            "HOME": str(folder),
            "QUARTERDECK_HOME": str(self.home),
            "QUARTERDECK_HUB_CONFIG": str(folder / "hub.toml"),
            "COLUMNS": "200",
        }
        (folder / "hub.toml").write_text("")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run_python("-m", "quarterdeck", *words)

    def run_python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.execute([self.python, *words])

    def execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environ,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    @contextmanager
    def up(self) -> Iterator[Mapping[str, Any]]:
        command = [self.python, "-m", "quarterdeck", "up", "--port", "0", "--json"]
        with subprocess.Popen(
            command, env=self.environ, cwd=self.work, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            facts: Mapping[str, Any] = json.loads(process.stdout.readline())
            try:
                yield facts
            finally:
                self.run("down")
                process.wait(SECONDS)

    def facts(self, role: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.home / f"{role}.json").read_text())
        return found


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    return Mac(tmp_path)


IMPORT_ALL = """
import importlib, pkgutil, quarterdeck
alone = ("landlock_program", "workspace_program", "__main__")  # not part of the package
for each in pkgutil.walk_packages(quarterdeck.__path__, "quarterdeck."):
    if not each.name.endswith(alone):
        importlib.import_module(each.name)
import os, select, socket, sys
assert not any(hasattr(os, name) for name in ("pidfd_open", "O_PATH", "fdatasync"))
assert not hasattr(select, "epoll") and not hasattr(socket, "SO_PEERCRED")
assert sys.platform == "darwin" and not os.path.exists("/proc")
from quarterdeck.machine.free_memory import resident_bytes
from quarterdeck.storage.mark import boot_id
assert resident_bytes() > 1_000_000
print(boot_id())
"""


def test_every_module_is_imported(mac: Mac) -> None:
    done = mac.run_python("-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert done.stdout == boot  # as kern.bootsessionuuid of the fake library


def test_doctor_says_what_is_advisory(mac: Mac) -> None:
    assert mac.run("--version").stdout.startswith("quarterdeck ")
    done = mac.run("doctor", "--json")
    assert done.returncode == 0, done.stderr
    checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    assert checks["callers"]["status"] == "warn"
    assert "approvals are advisory" in checks["callers"]["found"]
    assert checks["confinement"]["status"] == "warn"
    assert "advisory" in checks["confinement"]["found"]


def test_the_demo_runs_to_its_end(mac: Mac) -> None:
    done = mac.run("demo", "--fast")
    assert done.returncode == 0, done.stderr
    assert "both tests pass" in " ".join(done.stdout.split())


HOST = """
import anyio
from quarterdeck.host import AgentDefinition, Host, HostOptions
from quarterdeck.storage import JsonlStorage
from quarterdeck.testing import scripted_agent

async def main():
    command, *arguments = scripted_agent({"name": "x", "turns": [{"steps": [{"say": "hi"}]}]})
    async with Host(HostOptions(storage=JsonlStorage("log"))) as host:
        agent = await host.spawn_agent(
            AgentDefinition(id="a", command=command, args=tuple(arguments))
        )
        session = await host.create_session(agent.agent_id, cwd="/")
        seen = []
        host.subscribe(session.session_id, 0, lambda event: seen.append(event.type))
        await host.prompt(session.session_id, "hello")
        print(*seen)

anyio.run(main)
"""


def test_a_host_runs_a_scripted_agent(mac: Mac) -> None:
    done = mac.run_python("-c", HOST)
    assert done.returncode == 0, done.stderr
    assert "agent-message-chunk" in done.stdout


CALL = """
import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


async def test_a_hub_works_and_no_agent_can_use_it(
    mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PYTHON", mac.python)
    with mac.up() as facts:
        assert mac.run("status").returncode == 0
        done = mac.run("run", "demo", "hello")
        assert "You said: hello" in done.stdout, done.stderr
        made = json.loads(mac.run("devices", "token", "--scope", "approve", "--json").stdout)
        call = [sys.executable, "-c", CALL, f"{facts['url']}/api/sessions", made["token"]]
        ways = {"socket": [mac.python, "-m", "quarterdeck", "sessions"], "port": call}
        for way, command in ways.items():
            own = mac.execute(command)
            assert own.returncode == 0, way
            assert "403" not in own.stdout
            of_agent = mac.execute(guarded_command(command))
            assert "403" in of_agent.stdout or "an agent's process" in of_agent.stderr, way
        assert "refused" in mac.run("devices", "log").stdout
        runner = mac.facts("runner")["pid"]
        agents = living_descendants(runner)
        assert agents
        os.kill(runner, 9)
        await gone(agents)
    assert not (mac.home / "hub.sock").exists()

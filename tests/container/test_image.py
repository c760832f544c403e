"""The image as podman builds and runs it.

    sudo apt-get install podman runc debootstrap
    python3 dev.py test -m container tests/container

Runs as root, and takes minutes. The base image is Debian, made by debootstrap, so that no image
registry is needed; `QUARTERDECK_CONTAINER_BASE=python:3.13-slim-bookworm` takes the Dockerfile's.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck._version import __version__

pytestmark = [pytest.mark.container, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
BASE = "localhost/quarterdeck-base"
IMAGE = "localhost/quarterdeck-test"
CERTIFICATES = "/etc/ssl/certs"
# Fewer than the engine's defaults, which a machine that is a container itself may not give.
LIMITS = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
SAFE = ("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
READY_SECONDS = 60


class Engine:
    """podman with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._options = (
            *(f"--root={folder}/storage", f"--runroot={folder}/run"),
            *("--cgroup-manager=cgroupfs", "--runtime=runc"),
        )
        self.folder = folder

    def run(self, *arguments: str, is_checked: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["podman", *self._options, *arguments], capture_output=True, text=True, check=False
        )
        assert not is_checked or done.returncode == 0, done.stdout + done.stderr
        return done

    def make_base(self) -> str:
        """Return a base image: Debian with Python."""
        if named := os.environ.get("QUARTERDECK_CONTAINER_BASE"):
            return named
        tree = self.folder / "debian"
        packages = "--include=python3,python3-venv,ca-certificates"
        source = "http://deb.debian.org/debian"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(tree), source]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        archive = self.folder / "debian.tar"
        subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
        self.run("import", str(archive), BASE)
        return BASE

    def build(self, base: str) -> None:
        # Where TLS ends at a proxy of the company, pip and npm need its certificate.
        settings = self.folder / "npmrc"
        settings.write_text(f"cafile={CERTIFICATES}/ca-certificates.crt\n", encoding="utf-8")
        mounts = (
            f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",
            f"--volume={settings}:{Path('/root', '.npmrc')}:ro",
        )
        options = ("--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}", *mounts)
        self.run("build", *options, f"--tag={IMAGE}", str(ROOT))

    def start(self, name: str) -> None:
        volumes = ("--volume=data:/data", "--volume=home:/deck")
        self.run("run", "--detach", f"--name={name}", *LIMITS, *SAFE, *volumes, IMAGE)
        self.wait_until_healthy(name)

    def wait_until_healthy(self, name: str) -> None:
        """Wait as a container engine does, with the health check of the image."""
        deadline = time.monotonic() + READY_SECONDS
        while self.run("healthcheck", "run", name, is_checked=False).returncode:
            assert time.monotonic() < deadline, self.run("logs", name).stdout
            time.sleep(0.5)

    def inside(self, name: str, *command: str) -> str:
        return self.run("exec", name, *command).stdout


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.build(made.make_base())
    yield made
    made.run("rm", "--force", "--all", "--time=5", is_checked=False)
    made.run("rmi", "--all", "--force", is_checked=False)


def test_the_image_runs_a_hub_and_a_runner_without_root_and_keeps_its_data(engine: Engine) -> None:
    engine.start("first")
    assert engine.inside("first", "id", "--user") == "1000\n"
    assert engine.inside("first", "quarterdeck", "--version") == f"quarterdeck {__version__}\n"
    assert "You said: hello" in engine.inside("first", "quarterdeck", "run", "demo", "hello")
    page = "from quarterdeck.hub.page.files import page_files; assert '/index.html' in page_files()"
    engine.inside("first", "/opt/quarterdeck/bin/python", "-c", page)
    assert "code" in engine.inside("first", "quarterdeck", "devices", "pair")

    def status() -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads(
            engine.inside("first", "quarterdeck", "status", "--json")
        )
        return found

    before = status()
    engine.inside("first", "quarterdeck", "restart")
    engine.inside("first", "quarterdeck", "restart", "--runner")
    assert status()["runner"]["pid"] != before["runner"]["pid"]
    engine.inside("first", "sh", "-c", "kill -9 $(cat /data/runner.lock)")
    engine.wait_until_healthy("first")
    states = engine.inside("first", "ps", "-eo", "stat=").split()
    assert not [each for each in states if each.startswith("Z")]

    engine.run("stop", "--time=30", "first")
    stopped = json.loads(engine.run("inspect", "first").stdout)[0]["State"]
    assert stopped["ExitCode"] == 0
    engine.run("rm", "first")
    engine.start("second")
    assert "hello" in engine.inside("second", "quarterdeck", "sessions")
    assert "the runner ends" in engine.inside("second", "cat", "/data/runner.log")
    advice = engine.run("exec", "second", "quarterdeck", "upgrade").stderr
    assert "this is a container" in advice
    # Killed as a whole, as when the computer is switched off.
    engine.run("kill", "--signal=KILL", "second")
    engine.run("start", "second")
    engine.wait_until_healthy("second")
    assert "hello" in engine.inside("second", "quarterdeck", "sessions")

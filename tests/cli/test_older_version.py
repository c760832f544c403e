"""A hub works with the runner of an older version, and a runner with the hub of an older one.

The older version is the wheel of the first commit that has the link. Whatever the link gets, both
directions must pass with it; when a protocol is dropped, a newer commit takes its place.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.cli.kit import ASK, COMMAND, SECONDS, Console, agent_toml
from tests.hub.local_owner import owner_call
from tests.taping.tapes import environment

pytestmark = pytest.mark.slow

FIRST_FILE = "src/quarterdeck/runner/link/handshake.py"
"""The commit that added this file is the older version: link protocol 1."""
ROOT = Path(__file__).parents[2]
Role = Literal["runner", "hub"]


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the older version; return the folder that it was unpacked to."""
    folder = tmp_path_factory.mktemp("older")
    added = _git("log", "--diff-filter=A", "--format=%H", "--", FIRST_FILE).split()
    archive = _git("archive", added[-1].decode())
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    (folder / "web/node_modules").symlink_to(ROOT / "web/node_modules")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-qq"]
    subprocess.run([*pip, "--wheel-dir", "dist", "."], cwd=folder, check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder / "installed")
    return folder / "installed"


@contextmanager
def process(console: Console, source: Path | None, *arguments: str) -> Iterator[str]:
    """Run a command of a version, by default this one; yield the first line that it prints.

    It is ended with the block.
    """
    own = {name: text for name, text in console.environ.items() if os.environ.get(name) != text}
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env={**environment(*([] if source is None else [source])), **own},
        cwd=console.work,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        try:
            yield started.stdout.readline()
        finally:
            started.terminate()
            started.communicate(timeout=SECONDS)


@pytest.mark.parametrize("role", ["runner", "hub"])
def test_a_turn_runs_with_one_older_side_and_goes_on_with_another_hub(
    tmp_path: Path, older: Path, role: Role
) -> None:
    console = Console(tmp_path, agent_toml("asks", ASK, load=[]))
    runner, hub = (older, None) if role == "runner" else (None, older)
    up = ("up", "--port", "0", "--json")
    with process(console, runner, "runner", "--ready-fd", "1") as line:
        assert line == "ready\n"
        with process(console, hub, *up) as facts:
            assert json.loads(facts)["url"]
            session_id = begin(console)
            (pending,) = wait_for(console, "/api/permissions", "permissions")
        # Another hub of the same version takes over in the middle of the turn.
        with process(console, hub, *up) as facts:
            assert json.loads(facts)["url"]
            (again,) = wait_for(console, "/api/permissions", "permissions")
            assert again["requestId"] == pending["requestId"]
            allow(console, again)
            path = f"/api/sessions/{session_id}/prompts/first"
            while (entry := owner_call(console.home, "GET", path))["state"] == "running":
                pass
            assert entry["state"] == "done"
            path = f"/api/sessions/{session_id}/history?limit=1000"
            events = owner_call(console.home, "GET", path)["events"]
            assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
            listed = owner_call(console.home, "GET", "/api/sessions")["sessions"]
            assert [each["sessionId"] for each in listed] == [session_id]


def begin(console: Console) -> str:
    body = {"agent": "asks", "cwd": str(console.work)}
    session_id = str(owner_call(console.home, "POST", "/api/sessions", body)["sessionId"])
    prompt = {"key": "first", "prompt": "go"}
    owner_call(console.home, "POST", f"/api/sessions/{session_id}/prompts", prompt)
    return session_id


def wait_for(console: Console, path: str, name: str) -> list[dict[str, Any]]:
    while not (found := owner_call(console.home, "GET", path)[name]):
        pass
    listed: list[dict[str, Any]] = found
    return listed


def allow(console: Console, request: dict[str, Any]) -> None:
    option = next(each["optionId"] for each in request["options"] if each["kind"] == "allow_once")
    path = f"/api/permissions/{request['requestId']}/answer"
    owner_call(console.home, "POST", path, {"digest": request["digest"], "optionId": option})

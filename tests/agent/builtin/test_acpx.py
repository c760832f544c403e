"""acpx, a third-party client, runs the commands that docs/embed/builtin-agent.md shows for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.official import check_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # many processes of node and Python

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "embed" / "builtin-agent.md"
ACPX = ROOT / ".peers" / "node_modules" / ".bin"
PATIENCE = 30.0  # seconds; every wait ends far earlier unless something hangs

# Stands before the agent and keeps what every process of it is sent and sends.
RECORDED = """#!/bin/sh
tee "$RECORDINGS/$$.in" | "$PYTHON" -m quarterdeck "$@" | tee "$RECORDINGS/$$.out"
"""


def shown(language: str) -> list[str]:
    """Return the blocks of the chapter on acpx in a language."""
    text = DOCUMENT.read_text(encoding="utf-8")
    chapter = text.partition("## In a shell, with acpx\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", chapter, re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with the line that it shows of the output, if any."""
    parts = [part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, output.strip()) for command, _, output in parts]


class Shell:
    """A home and a folder of their own, where `acpx` and `quarterdeck` are commands."""

    def __init__(self, folder: Path) -> None:
        self.has_closed = False
        self.project = folder / "project"
        self.recordings = folder / "recordings"
        programs = folder / "bin"
        for each in (self.project, self.recordings, programs, folder / ".acpx"):
            each.mkdir()
        (programs / "quarterdeck").write_text(RECORDED)
        (programs / "quarterdeck").chmod(0o700)
        (settings,) = shown("json")
        (folder / ".acpx" / "config.json").write_text(settings)
        path = (programs, ACPX, Path(sys.executable).parent, os.environ["PATH"])
        self._env = {
            **os.environ,
            "HOME": str(folder),
            "PATH": os.pathsep.join(map(str, path)),
            "NODE_COMPILE_CACHE": str(ROOT / ".peers" / "compiled"),  # a fifth of each start
            "PYTHON": sys.executable,
            "RECORDINGS": str(self.recordings),
            "QUARTERDECK_SESSIONS": str(folder / "sessions"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def run(self, command: str) -> tuple[int, str]:
        self.has_closed = command.endswith("sessions close")
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.project,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def recorded(self, way: str) -> list[list[Json]]:
        """Return the whole messages that went `in` or `out`, process by process."""
        return [
            [json.loads(line) for line in path.read_bytes().splitlines(True) if line[-1:] == b"\n"]
            for path in sorted(self.recordings.glob(f"*.{way}"))
        ]

    def wait_for_prompt(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(
            message.get("method") == "session/prompt" and text in json.dumps(message)
            for messages in self.recorded("in")
            for message in messages
        ):
            assert time.monotonic() < deadline, "the prompt has not reached the agent"
            time.sleep(0.05)

    def stop_reasons(self) -> list[str]:
        messages = (message for output in self.recorded("out") for message in output)
        results = (message.get("result") or {} for message in messages)
        return [result["stopReason"] for result in results if "stopReason" in result]

    def check_recordings(self) -> None:
        """Hold all that the agent sent against ACP's schema."""
        sent = self.recorded("out")
        assert all(sent)
        for messages, received in zip(sent, self.recorded("in"), strict=True):
            called = {
                each["id"]: each["method"] for each in received if {"id", "method"} <= {*each}
            }
            check_all(messages, called)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def closing(shell: Shell) -> Iterator[None]:
    """End a session that the test has not come to close: acpx keeps an agent for minutes."""
    yield
    if not shell.has_closed:
        shell.run("acpx quarterdeck sessions close")


def test_one_prompt_is_answered_allowed_and_refused_as_the_document_says(shell: Shell) -> None:
    statuses = []
    for command, output in commands(shown("text")[0]):
        status, printed = shell.run(command)
        assert output in printed, command
        statuses.append(status)
    assert statuses == [0, 0, 5]
    assert (shell.project / "notes.txt").read_text() == "Hello."
    assert not (shell.project / "more.txt").exists()
    shell.check_recordings()


@pytest.mark.usefixtures("closing")
def test_a_session_is_opened_steered_and_cancelled_as_the_document_says(shell: Shell) -> None:
    for command, output in commands(shown("text")[1]):
        status, printed = shell.run(command)
        assert status == 0, printed
        assert output in printed, command
        if "/wait" in command:
            shell.wait_for_prompt("/wait")
    assert shell.stop_reasons() == ["end_turn", "end_turn", "cancelled", "end_turn"]
    assert not (shell.project / "more.txt").exists()
    methods = [each.get("method") for messages in shell.recorded("in") for each in messages]
    assert {"session/new", "session/resume", "session/set_mode", "session/cancel"} <= {*methods}
    shell.check_recordings()

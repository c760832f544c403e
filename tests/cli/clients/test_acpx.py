"""acpx, a third-party client, on `quarterdeck proxy`: its sessions are the hub's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.agent.builtin.test_acpx import ACPX
from tests.cli.kit import COMMAND, SECONDS, Console

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # many processes of node and Python


def _write(name: str) -> str:
    return f'/tool write {{"path": "{name}", "content": "written"}}'


def test_prompts_are_answered_allowed_and_rejected(tmp_path: Path) -> None:
    desk = Console(tmp_path)
    path = os.pathsep.join([str(ACPX), str(Path(COMMAND[0]).parent), desk.environ["PATH"]])

    def acpx(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            ["acpx", "--agent", "quarterdeck proxy demo", *arguments],
            env={**desk.environ, "PATH": path},
            cwd=desk.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    with desk.hub():
        status, printed = acpx("exec", "/say Hello there.")
        assert (status, "Hello there." in printed) == (0, True), printed
        assert acpx("--approve-all", "exec", _write("allowed.txt"))[0] == 0
        assert acpx("--deny-all", "exec", _write("refused.txt"))[0] == 5
        status, printed = acpx("sessions", "new")
        assert status == 0, printed
        session_id = printed.partition("session cwd (")[2].partition(")")[0]
        assert "In a session." in acpx("prompt", "/say In a session.")[1]
        assert acpx("set-mode", "read-only")[0] == 0
        assert session_id in acpx("sessions", "list")[1]
        assert acpx("sessions", "close")[0] == 0
        listed = {each["sessionId"] for each in desk.json("sessions", "--all")["sessions"]}
    assert session_id in listed
    assert [each.name for each in desk.work.iterdir()] == ["allowed.txt"]

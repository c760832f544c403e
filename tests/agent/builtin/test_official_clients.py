"""The built-in agent as a child process of clients that the official SDKs are made into."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.builtin.official_clients import Report, python, typescript

pytestmark = pytest.mark.slow

Converse = Callable[..., Awaitable[Report]]
AGENT = (sys.executable, "-m", "quarterdeck", "acp", "--model", "demo")
GREETING = "/think Somebody is there.\n/say Hello there."


def writing(name: str) -> str:
    return f'/tool write {{"path": "{name}", "content": "written\\n"}}'


@pytest.fixture(params=[typescript, python], ids=["TypeScript", "Python"])
def converse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Converse:
    """Return a function that connects one process of the agent to the SDK's client in a folder."""
    monkeypatch.setenv("QUARTERDECK_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()

    async def run(*steps: dict[str, Any], load: str | None = None) -> Report:
        order = {"command": AGENT, "folder": str(folder), "load": load, "steps": steps}
        report: Report = await request.param(order)
        report.check()
        return report

    return run


async def test_a_whole_session_and_what_another_process_shows_of_it(
    converse: Converse, tmp_path: Path
) -> None:
    prompts = [
        GREETING,
        writing("allowed.txt"),
        writing("rejected.txt"),
        "/say begun\n/tool list {}\n/wait 600",
        "/say again",
        writing("never.txt"),
    ]
    before = await converse(
        {"prompt": prompts[0]},
        {"prompt": prompts[1], "answer": "allow_once"},
        {"prompt": prompts[2], "answer": "reject_once"},
        {"prompt": prompts[3], "cancelAfter": "begun"},
        {"prompt": prompts[4]},
        {"mode": "read-only"},
        {"prompt": prompts[5]},
    )
    check_permission(before, tmp_path / "project")
    check_cancel_and_mode(before, tmp_path / "project")
    session_id = before.answers[1]["sessionId"]
    after = await converse({"prompt": "/recall"}, load=session_id)
    recalled = f"I remember {len(prompts)} prompts; the first was: {GREETING}\n"
    assert after.text("user_message_chunk") == "".join(prompts)
    assert after.text() == before.text() + recalled
    assert after.text("agent_thought_chunk") == before.text("agent_thought_chunk")
    assert after.tool_calls() == before.tool_calls()
    assert after.answers[1]["modes"]["currentModeId"] == "read-only"


def check_permission(report: Report, project: Path) -> None:
    """A file is written only if the user allows it."""
    assert report.text().startswith("Hello there.\nDone.\nDone.\nbegun")
    assert report.text("agent_thought_chunk") == "Somebody is there.\n"
    assert [each["title"] for each in report.permissions] == [
        "Create allowed.txt",
        "Create rejected.txt",
    ]
    assert [each["status"] for each in report.tool_calls()[:2]] == ["completed", "failed"]
    assert (project / "allowed.txt").read_text() == "written\n"
    assert not (project / "rejected.txt").exists()


def check_cancel_and_mode(report: Report, project: Path) -> None:
    """The turn after a cancelled one continues; a mode takes tools away that are not in it."""
    stops = [each["stopReason"] for each in report.answers if "stopReason" in each]
    assert stops == ["end_turn"] * 3 + ["cancelled"] + ["end_turn"] * 2
    assert "again\n" in report.text()
    modes = report.answers[1]["modes"]
    assert modes["currentModeId"] == "full"
    assert {"full", "read-only"} <= {each["id"] for each in modes["availableModes"]}
    assert report.tool_calls()[-1]["status"] == "failed"
    assert not (project / "never.txt").exists()

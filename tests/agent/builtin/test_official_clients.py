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
    """Return what has one process of the agent converse with the SDK's client in a folder."""
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


async def test_a_file_is_written_only_if_the_user_allows_it(
    converse: Converse, tmp_path: Path
) -> None:
    report = await converse(
        {"prompt": GREETING},
        {"prompt": writing("allowed.txt"), "answer": "allow_once"},
        {"prompt": writing("rejected.txt"), "answer": "reject_once"},
    )
    assert [each["stopReason"] for each in report.answers[2:]] == ["end_turn"] * 3
    assert report.text() == "Hello there.\nDone.\nDone.\n"
    assert report.text("agent_thought_chunk") == "Somebody is there.\n"
    assert [each["title"] for each in report.questions] == [
        "Create allowed.txt",
        "Create rejected.txt",
    ]
    assert [each["status"] for each in report.tool_calls()] == ["completed", "failed"]
    assert (tmp_path / "project" / "allowed.txt").read_text() == "written\n"
    assert not (tmp_path / "project" / "rejected.txt").exists()


async def test_a_turn_is_cancelled_and_the_next_one_goes_on(converse: Converse) -> None:
    report = await converse(
        {"prompt": "/say begun\n/tool list {}\n/wait 600", "cancelAfter": "begun"},
        {"prompt": "/say again"},
    )
    assert [each["stopReason"] for each in report.answers[2:]] == ["cancelled", "end_turn"]
    assert report.text().endswith("again\n")


async def test_a_mode_takes_the_tools_away_that_are_not_in_it(
    converse: Converse, tmp_path: Path
) -> None:
    report = await converse({"mode": "read-only"}, {"prompt": writing("never.txt")})
    created = report.answers[1]
    assert created["modes"]["currentModeId"] == "full"
    assert {"full", "read-only"} <= {each["id"] for each in created["modes"]["availableModes"]}
    assert report.questions == []
    assert [each["status"] for each in report.tool_calls()] == ["failed"]
    assert not (tmp_path / "project" / "never.txt").exists()


async def test_another_process_shows_the_session_again_and_goes_on_with_it(
    converse: Converse,
) -> None:
    prompts = [GREETING, writing("allowed.txt"), writing("rejected.txt")]
    before = await converse(
        {"prompt": prompts[0]},
        {"prompt": prompts[1], "answer": "allow_once"},
        {"prompt": prompts[2], "answer": "reject_once"},
        {"mode": "read-only"},
    )
    session_id = before.answers[1]["sessionId"]
    after = await converse(load=session_id)
    assert after.text("user_message_chunk") == "".join(prompts)
    assert after.text() == before.text()
    assert after.text("agent_thought_chunk") == before.text("agent_thought_chunk")
    assert after.tool_calls() == before.tool_calls()
    assert after.answers[1]["modes"]["currentModeId"] == "read-only"
    later = await converse({"prompt": "/recall"}, load=session_id)
    assert later.text().endswith(f"I remember 3 prompts; the first was: {GREETING}\n")

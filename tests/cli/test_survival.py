"""Agents do not notice the end of a hub, and clients lose and repeat nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quarterdeck.testing import scripted_agent
from tests.cli.kit import ASK, Console, RunningHub
from tests.cli.survival import Survival, kill_hub

pytestmark = pytest.mark.slow

WORDS = {"repeat": 25, "steps": [{"say": "a word "}, {"pause": 0.01}]}


def console_of(folder: Path) -> Console:
    steps = [WORDS, ASK, WORDS]
    scenario = {"name": "busy", "turns": [{"steps": steps}], "sessions": {"id": "s-{n}"}}
    program, *arguments = scripted_agent(scenario)
    command = f"command = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
    return Console(folder, f"[agents.busy]\n{command}")


def test_forty_kills_of_the_hub_lose_and_repeat_nothing(tmp_path: Path) -> None:
    Survival(console_of(tmp_path), "busy").run(12, kill_hub, 40, "go")


def test_twenty_upgrades_of_the_hub_lose_and_repeat_nothing(tmp_path: Path) -> None:
    console = console_of(tmp_path)

    def upgrade(_hub: RunningHub) -> bool:
        done = console.run("restart")
        assert done.returncode == 0, done.stderr
        return True

    Survival(console, "busy").run(12, upgrade, 20, "go")

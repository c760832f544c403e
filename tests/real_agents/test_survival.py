"""Real agents do not notice that their hub is killed or replaced in the middle of their turns.

`python3 dev.py test -m real_agents -k survival` runs these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Console, RunningHub
from tests.cli.survival import Survival, kill_hub
from tests.real_agents.agents import AGENTS, RealAgent, agents_folder
from tests.real_agents.model_server import model_server

pytestmark = [pytest.mark.real_agents, pytest.mark.timeout(300)]

NAMES = ("claude", "codex", "goose", "opencode")
PROMPT = "[tell 40]"


@pytest.fixture(params=[each for each in AGENTS if each.name in NAMES], ids=lambda each: each.label)
def agent(request: pytest.FixtureRequest) -> RealAgent:
    chosen: RealAgent = request.param
    return chosen


@pytest.fixture
def desk(agent: RealAgent, tmp_path: Path) -> Iterator[Console]:
    with model_server() as url:
        settled = Console(tmp_path, agent.configuration(agents_folder(), url))
        agent.settle(tmp_path, url)
        yield settled


def test_survival_of_forty_kills_of_the_hub(agent: RealAgent, desk: Console) -> None:
    Survival(desk, agent.name).run(20, kill_hub, 40, PROMPT)


def test_survival_of_twenty_upgrades_of_the_hub(agent: RealAgent, desk: Console) -> None:
    def upgrade(_hub: RunningHub) -> bool:
        done = desk.run("restart")
        assert done.returncode == 0, done.stderr
        return True

    Survival(desk, agent.name).run(20, upgrade, 20, PROMPT)

"""Any sequence of what clients and agents may do, against a small model of what should happen.

The same lives every time. Others, more and longer ones, by hand: `QUARTERDECK_MODEL=1000:200
python3 dev.py test tests/host/test_model.py` leads a thousand lives of two hundred steps.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from quarterdeck.host import agent_process
from quarterdeck.host.log import stream
from quarterdeck.host.sessions import recovery
from tests.host.model.puppet import pulled
from tests.host.model.steps import STEPS, Choose, Steps
from tests.host.model.world import World

DEEP = os.environ.get("QUARTERDECK_MODEL")
LIVES, STEP_COUNT = map(int, (DEEP or "12:100").split(":"))
SMALL_PAGE = 7  # so that short logs have left the memory too


def live(choose: Choose, *, is_durable: bool) -> None:
    """Lead a whole life, step by step."""
    world = World(is_durable=is_durable, restart=choose("restart policy", ("never", "on-crash")))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            await world.enter(tasks)
            steps = Steps(world, tasks, choose)
            for _ in range(STEP_COUNT):
                name = choose("step", [each for each in STEPS if steps.is_possible(each)])
                step: Callable[[], Awaitable[None]] = getattr(steps, name)
                await step()
                await world.check()
            await world.leave(is_killed=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_process, "open_process", pulled(world.started))
        patch.setattr(stream, "TAIL", SMALL_PAGE)
        patch.setattr(stream, "PAGE", SMALL_PAGE)
        patch.setattr(recovery, "FIRST_LIMIT", SMALL_PAGE)
        patch.setattr(recovery, "next_limit", lambda _page: SMALL_PAGE)
        anyio.run(main)


@pytest.mark.slow
@pytest.mark.timeout(30 + LIVES * STEP_COUNT / 20)
@pytest.mark.parametrize("is_durable", [False, True], ids=["in memory", "durable"])
@settings(
    max_examples=LIVES // 3,
    derandomize=DEEP is None,
    suppress_health_check=[HealthCheck.data_too_large],
)
@given(data=st.data())
def test_sessions_behave_as_the_model(is_durable: bool, data: st.DataObject) -> None:
    def choose(label: str, options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options), label=label)

    live(choose, is_durable=is_durable)


class Chooser:
    """Chooses by chance, the same every time for the same seed, and remembers."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.chosen: list[str] = []

    def __call__(self, label: str, options: Sequence[Any]) -> Any:
        chosen = self._random.choice(options)
        self.chosen.append(f"{label}: {chosen}")
        return chosen


@pytest.mark.slow
@pytest.mark.timeout(30 + LIVES * STEP_COUNT / 20)
@pytest.mark.parametrize("is_durable", [False, True], ids=["in memory", "durable"])
def test_long_runs_behave_as_the_model(is_durable: bool) -> None:
    """Hypothesis likes short and simple lives, which find less than these."""
    first = LIVES if is_durable else 0  # other lives, not the same ones again
    for seed in range(first, first + LIVES):
        chooser = Chooser(seed)
        try:
            live(chooser, is_durable=is_durable)
        except BaseException as error:
            error.add_note(f"life {seed}: {'; '.join(chooser.chosen)}")
            raise

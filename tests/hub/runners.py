"""The runner inside a hub of this process, for tests that look behind `RunnerApi`."""

from __future__ import annotations

from quarterdeck.hub import Hub
from quarterdeck.runner import Runner


def runner_of(hub: Hub) -> Runner:
    assert isinstance(hub.runner, Runner)
    return hub.runner

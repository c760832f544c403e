"""The runner inside a hub of this process, for tests that look behind `RunnerApi`."""

from __future__ import annotations

from quarterdeck.hub import Hub
from quarterdeck.runner import Runner


async def admin_token(hub: Hub) -> str:
    """Return the token of a program that may do everything."""
    _, token = await hub.auth.devices.create("a test", "admin")
    return token


def runner_of(hub: Hub) -> Runner:
    assert isinstance(hub.fleet.local, Runner)
    return hub.fleet.local

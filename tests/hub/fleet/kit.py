"""A hub, and other machines that join it: each has a runner and a data folder of its own."""

# ruff: noqa: ASYNC110 - a link has no event for tests

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub
from quarterdeck.hub.fleet.machine_runner import MachineRunner
from quarterdeck.runner import Runner, RunnerOptions
from quarterdeck.runner.link import LinkServer, LinkSocket
from quarterdeck.wire import IndependentTasks, background_tasks
from tests.runner.link.dialling import dial


async def until(is_true: Callable[[], Any], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not is_true():
            await anyio.sleep(0.002)


class OtherMachine:
    """The runner of another machine, and its link to a hub."""

    def __init__(self, machine_id: str, runner: Runner, server: LinkServer) -> None:
        self.id = machine_id
        self.runner = runner
        self.server = server
        self.link: LinkSocket | None = None

    async def join(self, hub: Hub, name: str = "") -> None:
        """Become a machine of a hub, and connect."""
        await hub.fleet.add(self.id, name or f"machine {self.id}")
        await self.connect(hub)

    async def connect(self, hub: Hub) -> None:
        self.link = await dial(self.server, hub.fleet.accepting(self.id))
        await until(lambda: on_hub(hub, self.id).connection.is_ready)

    async def cut(self, hub: Hub) -> None:
        assert self.link is not None
        self.link.abort("cut")
        await until(lambda: not hub.fleet.state_of(self.id).is_connected)

    def hub_id(self, inner: str) -> str:
        return f"{self.id}~{inner}"


def on_hub(hub: Hub, machine_id: str) -> MachineRunner:
    machine = hub.fleet.on(machine_id)
    assert isinstance(machine, MachineRunner)
    return machine


@asynccontextmanager
async def other_machine(
    home: Path, machine_id: str = "m00000001", **agents: AgentSettings
) -> AsyncIterator[OtherMachine]:
    options = RunnerOptions(home=home, agents=agents, hub_seconds=0.0)
    async with Runner(options) as runner, background_tasks() as tasks:
        server = LinkServer(runner, IndependentTasks(tasks))
        try:
            yield OtherMachine(machine_id, runner, server)
        finally:
            server.end()

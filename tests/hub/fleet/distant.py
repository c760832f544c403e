"""A hub whose only machine is another one: everything has the hub's ids and crosses a link."""

# ruff: noqa: ASYNC110 - a link has no event for tests

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from typing_extensions import override

from quarterdeck.hub.fleet.fleet import Fleet
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.hub.fleet.machine_runner import MachineRunner
from quarterdeck.hub.fleet.store import FleetStore
from quarterdeck.hub.fleet.translated import ID_PARAMETERS, TranslatedRunner
from quarterdeck.hub.log import HubLog
from quarterdeck.runner import RunnerApi
from quarterdeck.runner.link import LinkServer, LinkSocket
from quarterdeck.wire import IndependentTasks, background_tasks
from tests.runner.link.dialling import dial

MACHINE = "m00000001"


async def until_ready(fleet: Fleet, machine_id: str = MACHINE) -> None:
    machine = fleet.on(machine_id)
    assert isinstance(machine, MachineRunner)
    with anyio.fail_after(10):
        while not machine.connection.is_ready:
            await anyio.sleep(0.001)


class DistantFleet(Fleet):
    """Shows the runner of the hub's own machine as if it were another one."""

    server: LinkServer
    link: LinkSocket

    @override
    @asynccontextmanager
    async def open(self, store: FleetStore, log: HubLog) -> AsyncIterator[None]:
        async with background_tasks() as tasks, super().open(store, log):
            self.server = LinkServer(self.local, IndependentTasks(tasks))
            await self.add(MACHINE, "distant")
            await self.connect()
            try:
                yield
            finally:
                self.server.end()

    async def connect(self) -> None:
        self.link = await dial(self.server, self.accepting(MACHINE))
        await until_ready(self)

    async def cut(self) -> None:
        """Cut the machine off."""
        self.link.abort("cut")
        with anyio.fail_after(5):
            while self.state_of(MACHINE).is_connected:
                await anyio.sleep(0.001)

    @property
    def distant(self) -> MachineRunner:
        machine = self.on(MACHINE)
        assert isinstance(machine, MachineRunner)
        return machine

    @override
    def _all(self) -> list[TranslatedRunner]:
        return self.others()

    @override
    def runner_of(self, hub_id: str) -> RunnerApi:
        is_request = hub_id.startswith(("perm-", "elic-"))  # known ones are the machine's
        if machine_of(hub_id).machine_id != LOCAL or is_request:
            return super().runner_of(hub_id)
        by_name: Any = _ByName(self.distant)
        return by_name  # type: ignore[no-any-return]

    @override
    def subscribe_news(self, on_news: Any) -> Any:
        key = object()
        self._news[key] = on_news
        return lambda: self._news.pop(key, None) and None

    @override
    def subscribe_heads(self, on_head: Any) -> Any:
        key = object()
        self._heads[key] = on_head
        return lambda: self._heads.pop(key, None) and None

    @override
    async def list_sessions(self) -> Any:
        return await self.distant.list_sessions()


class _ByName:
    """A machine that takes names and ids as they are there."""

    def __init__(self, machine: MachineRunner) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._machine, name)
        signature = inspect.signature(getattr(RunnerApi, name))

        def call(*arguments: Any, **keywords: Any) -> Any:
            given = signature.bind(self, *arguments, **keywords).arguments
            del given["self"]
            for key in set(ID_PARAMETERS) & given.keys():
                if isinstance(given[key], str):
                    given[key] = self._machine.ids.outer(given[key])
            return found(**given)

        return call

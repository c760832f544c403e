"""A runner that dials the hub: it is away, comes, is cut off and comes back."""

# ruff: noqa: ASYNC110 - a link has no event for tests

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import RequestRejected
from quarterdeck.runner import Runner, RunnerOptions, SessionUpdated
from quarterdeck.runner.link import DialledConnection, LinkServer, RemoteRunner
from quarterdeck.wire import IndependentTasks, background_tasks
from tests.runner.link.dialling import dial

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def machine(home: Path) -> AsyncIterator[tuple[LinkServer, RemoteRunner, DialledConnection]]:
    connection = DialledConnection("laptop")
    async with (
        Runner(RunnerOptions(home=home / "data", hub_seconds=0.0)) as runner,
        connection.open(),
        background_tasks() as tasks,
    ):
        independent = IndependentTasks(tasks)
        server = LinkServer(runner, independent)
        yield server, RemoteRunner(connection, independent), connection


async def until(connection: DialledConnection, is_connected: bool) -> None:
    with anyio.fail_after(5):
        while connection.is_connected != is_connected:
            await anyio.sleep(0.001)


async def test_a_machine_is_away_comes_and_goes(tmp_path: Path) -> None:
    async with machine(tmp_path) as (server, remote, connection):
        assert not remote.health().is_connected
        assert remote.sessions() == []
        with pytest.raises(
            RequestRejected, match="laptop cannot be reached: it has been away since"
        ):
            await remote.create_session("demo", cwd="/")
        link = await dial(server, connection.accept)
        await until(connection, is_connected=True)
        session = await remote.create_session("demo", cwd=str(tmp_path))
        link.close("cut")
        await until(connection, is_connected=False)
        assert not remote.health().is_connected
        assert [each.session_id for each in remote.sessions()] == [session.session_id]


async def test_a_call_waits_for_a_machine_that_was_lost_a_moment_ago(tmp_path: Path) -> None:
    async with machine(tmp_path) as (server, remote, connection):
        link = await dial(server, connection.accept)
        await until(connection, is_connected=True)
        link.close("cut")
        await until(connection, is_connected=False)
        async with anyio.create_task_group() as tasks:

            async def come_back() -> None:
                await anyio.sleep(0.05)
                await dial(server, connection.accept)

            tasks.start_soon(come_back)
            assert await remote.knows_agent("demo")


async def test_a_second_link_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async with machine(tmp_path) as (server, remote, connection):
        first = await dial(server, connection.accept)
        await until(connection, is_connected=True)
        news: list[str] = []
        remote.subscribe_news(
            lambda each: news.append(each.session_id) if isinstance(each, SessionUpdated) else None
        )
        before = connection.socket
        await dial(server, connection.accept)
        with anyio.fail_after(5):
            while connection.socket is before or first.is_open:
                await anyio.sleep(0.001)
        session = await remote.create_session("demo", cwd=str(tmp_path))
        assert connection.is_connected
        assert session.session_id in news


async def test_a_runner_of_another_version_is_not_taken_for_one_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine(tmp_path) as (server, _, connection):
        message = "the runner speaks link protocols 8 to 9, this version 1 to 1"
        monkeypatch.setattr(
            "quarterdeck.runner.link.server.HubConnection._refusal", lambda *_: message
        )
        link = await dial(server, connection.accept)
        with anyio.fail_after(5):
            while link.is_open:
                await anyio.sleep(0.001)
        assert connection.problem == message
        assert not connection.is_connected

"""Machines that lost their data, promise too much, or come back at a bad moment."""

# ruff: noqa: ASYNC110 - a copy has no event for tests

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.hub.fleet.machine_runner import LOST
from quarterdeck.hub.fleet.store import SqliteFleetStore
from quarterdeck.runner.link.messages import Heads
from tests.hub.api.kit import options, running
from tests.hub.fleet.kit import on_hub, other_machine, until
from tests.hub.fleet.test_away import SAY, begin, stored


async def test_the_copy_of_a_machine_that_lost_its_data_is_kept(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with running(given) as (hub, client):
        async with other_machine(tmp_path / "one", mine=SAY) as laptop:
            await laptop.join(hub)
            session = await begin(client, laptop, tmp_path)
            await client.prompt(session, "k")
            await client.ended(session, "k")
            expected = await client.events(session)
            await laptop.cut(hub)
            await anyio.sleep(1.2)  # until the state of the machine is stored
        async with other_machine(tmp_path / "another", mine=SAY) as laptop:
            await laptop.connect(hub)
            (listed,) = (await client.get("/api/sessions"))["sessions"]
            assert (listed["sessionId"], listed["damage"]) == (session, LOST)
            assert await client.events(session) == expected
            again = await begin(client, laptop, tmp_path)
            assert again == session  # the agent has chosen the same id
            await client.prompt(again, "k9")
            await until(lambda: laptop.runner.last_seq(session.split("~")[1]) > len(expected) - 2)
            assert await client.events(session) == expected  # two logs are never mixed
            await laptop.cut(hub)
    async with running(given) as (hub, client):
        await hub.fleet.add(laptop.id, "laptop")
        assert await client.events(session) == expected


async def test_a_machine_cannot_fill_the_disk_with_numbers(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        inner = session.split("~", 1)[1]
        machine = on_hub(hub, laptop.id)
        await until(lambda: machine.replica.head(inner) == laptop.runner.last_seq(inner))
        before = machine.replica.head(inner)
        socket = machine.connection.socket
        assert socket is not None
        machine.connection.on_message(socket, Heads(heads={inner: 10**12}), b"")
        with anyio.move_on_after(0.5):
            while machine.replica.head(inner) == before:
                await anyio.sleep(0.01)
        assert machine.replica.head(inner) == before


async def test_a_prompt_that_was_cancelled_does_not_run_when_its_machine_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await laptop.cut(hub)
        await client.prompt(session, "k1")
        remove, removing, is_back = SqliteFleetStore.remove, anyio.Event(), anyio.Event()

        async def slowly(self: SqliteFleetStore, command_id: int) -> None:
            removing.set()
            await is_back.wait()
            await remove(self, command_id)

        monkeypatch.setattr(SqliteFleetStore, "remove", slowly)
        answers: list[Any] = []

        async def cancel() -> None:
            path = f"/api/sessions/{session}/prompts/k1"
            answers.append(await client.call("DELETE", path))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            await removing.wait()
            await laptop.connect(hub)
            await anyio.sleep(0.1)
            is_back.set()
        assert answers[0]["state"] == "cancelled"
        await client.prompt(session, "k2")
        await client.ended(session, "k2")
        log = await stored(laptop, session)
        assert [event["type"] for event in log].count("prompt-finished") == 1

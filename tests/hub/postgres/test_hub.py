"""A whole hub whose data is in PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub import Hub, HubOptions
from tests.hub.api.kit import client_of, paired, running
from tests.hub.fleet.kit import other_machine
from tests.hub.fleet.test_away import SAY, begin, stored
from tests.hub.postgres.outages import way_to

pytestmark = pytest.mark.anyio


def options(home: Path, url: str) -> HubOptions:
    return HubOptions(
        home=home, port=0, database="${DB}", environ={"DB": url, "HOME": str(home.parent)}
    )


async def test_devices_survive_the_loss_of_the_data_directory(
    tmp_path: Path, postgres_url: str
) -> None:
    async with running(options(tmp_path / "one", postgres_url)) as (_, owner):
        token = await paired(owner, "view")
        assert await owner.get("/healthz") == {"status": "ok"}
    assert not (tmp_path / "one/hub.db").exists()
    async with running(options(tmp_path / "two", postgres_url)) as (hub, owner):
        url = str(owner.http.base_url)
        async with client_of(hub.options.home, url, token) as device:
            assert (await device.get("/api/device"))["scope"] == "view"


async def test_a_hub_without_its_database_is_degraded_and_takes_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    async with (
        way_to(postgres_url) as way,
        running(options(tmp_path / "home", way.url)) as (hub, owner),
    ):
        token = await paired(owner, "view")
        way.cut()
        refused = await owner.post("/api/pairings", {"scope": "view"}, status=503)
        assert "could not be stored" in refused["error"]["message"]
        await owner.until("/healthz", lambda health: health["status"] == "degraded")
        facts = await owner.get("/api/hub")
        assert facts["databaseProblem"] == hub.store.problem
        # Devices that are known can still look.
        url = str(owner.http.base_url)
        async with client_of(hub.options.home, url, token) as device:
            await device.get("/api/sessions")
        await way.open()
        await owner.until("/healthz", lambda health: health["status"] == "ok")
        await paired(owner, "view")


async def test_logs_of_other_machines_are_in_the_database_and_catch_up_after_an_outage(
    tmp_path: Path, postgres_url: str
) -> None:
    async with (
        way_to(postgres_url) as way,
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        async with running(options(tmp_path / "one", way.url)) as (hub, client):
            await laptop.join(hub)
            session = await begin(client, laptop, tmp_path)
            await client.prompt(session, "before")
            await client.ended(session, "before")
            way.cut()
            # The machine works on without the hub's database.
            inner = session.split("~")[1]
            await laptop.runner.add_prompt(inner, "meanwhile", [{"type": "text", "text": "go"}])
            while True:
                expected = await stored(laptop, session)
                if [each["type"] for each in expected].count("prompt-finished") == 2:
                    break
                await anyio.sleep(0.02)
            await way.open()
            await client.until("/healthz", lambda health: health["status"] == "ok")
            # No event comes any more that could set off another attempt.
            history = f"/api/sessions/{session}/history?limit=5000"
            await client.until(history, lambda answer: answer["events"] == expected)
            await laptop.cut(hub)
        assert not (tmp_path / "one/machines").exists()
    async with running(options(tmp_path / "two", postgres_url)) as (hub, client):
        await hub.fleet.add(laptop.id, "laptop")  # it is away
        assert await client.events(session) == expected


async def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    given = options(tmp_path / "home", "")
    with pytest.raises(StartRefused, match="needs the variable DB, which is not set"):
        async with Hub(replace(given, database="postgresql://hub:${DB}@db.example/q")):
            await anyio.lowlevel.checkpoint()

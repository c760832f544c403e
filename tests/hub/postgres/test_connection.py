"""A hub's database that is away: nothing is acknowledged, and the hub is well again by itself."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from quarterdeck.errors import DatabaseFailed, StartRefused
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.postgres import open_postgres_store
from quarterdeck.hub.postgres.connection import storable
from tests.hub.postgres.outages import way_to

pytestmark = pytest.mark.anyio

AT = "2026-01-01T00:00:00.000Z"


def device(name: str) -> Device:
    return Device(id=name, name=name, scope="view", created_at=AT)


async def until(is_true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while True:
            if is_true():
                return
            await anyio.sleep(0.02)


async def test_a_database_that_is_away_is_reported_and_used_again(postgres_url: str) -> None:
    async with way_to(postgres_url) as way, open_postgres_store(way.url) as store:
        await store.devices.add(device("before"), b"1")
        assert store.problem is None
        way.cut()
        with pytest.raises(DatabaseFailed, match="reconnects by itself"):
            await store.devices.add(device("lost"), b"2")
        await until(lambda: store.problem is not None)
        await way.open()
        await until(lambda: store.problem is None)
        await store.devices.add(device("after"), b"3")
        loaded = await store.devices.load(b"owner", AT)
        names = [each.id for _, _, each in loaded.devices]
        assert names == ["before", "after", "owner"]


async def test_a_second_hub_is_refused_and_a_crashed_one_makes_room(postgres_url: str) -> None:
    async with way_to(postgres_url) as way, open_postgres_store(way.url) as first:
        with pytest.raises(StartRefused, match="another hub uses it"):
            async with open_postgres_store(postgres_url, lock_seconds=0):
                pass
        way.cut()  # the first one is gone from the network, and does not know it yet
        async with open_postgres_store(postgres_url) as second:
            await way.open()
            await until(lambda: first.problem == "another hub uses it")
            with pytest.raises(DatabaseFailed, match="another hub uses it"):
                await first.devices.add(device("late"), b"1")
            await second.devices.add(device("second"), b"2")
        await until(lambda: first.problem is None)
        await first.devices.add(device("first"), b"3")


async def test_an_unreachable_database_is_a_sentence(postgres_url: str) -> None:
    async with way_to(postgres_url) as way:
        way.cut()
        with pytest.raises(StartRefused, match=r"cannot be reached .*check that PostgreSQL runs"):
            async with open_postgres_store(way.url):
                pass
    url = "postgresql://someone:secret@/no?host=/nowhere&password=secret"
    with pytest.raises(StartRefused) as refused:
        async with open_postgres_store(url):
            pass
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain", "plain"), ("a\0b", "a␀b"), ("\ud800x", "?x"), ("\U0001f6e5", "\U0001f6e5"), (3, 3)],
)
def test_text_is_stored_as_far_as_postgres_can(text: object, stored: object) -> None:
    assert storable(text) == stored

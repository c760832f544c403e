"""A clock that jumps ends no device; one that stays there does."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.auth.device_store import add_device
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.hub.auth.trusted_time import SETTLE_SECONDS, TrustedTime
from quarterdeck.hub.store import HUB_TABLES, SqliteHubStore
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage.database import Database, open_database

pytestmark = pytest.mark.anyio

DAY = 86_400.0
BEGIN = 1_800_000_000.0


class Clocks:
    """The time of day, which can be set, and a steady clock, which cannot."""

    def __init__(self) -> None:
        self.wall = BEGIN
        self.steady_seconds = 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady_seconds += seconds

    def now(self) -> float:
        return self.wall

    def steady(self) -> float:
        return self.steady_seconds


def test_time_passes_as_the_clock_says() -> None:
    clocks = Clocks()
    trusted = TrustedTime(clocks.now, clocks.steady)
    for _ in range(200):
        clocks.pass_time(DAY)
        clocks.wall += 30  # corrected by a time server
        assert trusted.now() == clocks.wall
    assert trusted.is_settled


@pytest.mark.parametrize("days", [200, -200, 0.1])
def test_a_jump_is_accepted_only_after_it_has_held(days: float) -> None:
    clocks = Clocks()
    trusted = TrustedTime(clocks.now, clocks.steady)
    clocks.pass_time(2 * SETTLE_SECONDS)
    right = trusted.now()
    clocks.wall += days * DAY
    assert trusted.now() == right
    assert not trusted.is_settled
    clocks.pass_time(SETTLE_SECONDS / 2)
    assert trusted.now() == pytest.approx(right + SETTLE_SECONDS / 2)
    clocks.wall -= days * DAY  # it was wrong for a moment
    assert trusted.now() == clocks.wall
    clocks.wall += days * DAY
    trusted.now()
    clocks.pass_time(SETTLE_SECONDS)
    assert trusted.now() == clocks.wall
    assert trusted.is_settled


def test_the_first_minutes_of_a_process_are_not_settled() -> None:
    clocks = Clocks()
    trusted = TrustedTime(clocks.now, clocks.steady)
    assert not trusted.is_settled
    clocks.pass_time(SETTLE_SECONDS)
    assert trusted.is_settled


async def loaded(database: Database, clocks: Clocks) -> Devices:
    store = SqliteHubStore(database)
    devices = Devices(store.devices, store.device_keys, now=clocks.now, steady=clocks.steady)
    await devices.load()
    await devices.sweep()
    return devices


async def test_a_clock_that_is_ahead_for_a_moment_loses_no_device(tmp_path: Path) -> None:
    clocks, token = Clocks(), make_token()
    phone = Device(id="dev_1", name="phone", scope="approve", created_at=iso_seconds(BEGIN))
    tablet = Device(
        id="dev_2",
        name="tablet",
        scope="view",
        created_at=iso_seconds(BEGIN),
        expires_at=iso_seconds(BEGIN + 30 * DAY),
    )
    async with open_database(tmp_path / "hub.db", HUB_TABLES) as database:
        await database.write(lambda writer: add_device(writer, phone, digest(token)))
        await database.write(lambda writer: add_device(writer, tablet, digest("tablet's")))
        devices = await loaded(database, clocks)
        clocks.pass_time(2 * SETTLE_SECONDS)
        clocks.wall += 200 * DAY
        await devices.sweep()
        assert await devices.authenticate(token) is not None
        clocks.wall -= 200 * DAY
        await devices.sweep()
        assert await devices.authenticate(token) is not None
        assert await devices.authenticate("tablet's") is not None
        # The same at a start.
        clocks.wall += 200 * DAY
        devices = await loaded(database, clocks)
        assert await devices.authenticate("tablet's") is None  # rejected, and not ended
        clocks.wall -= 200 * DAY
        devices = await loaded(database, clocks)
        assert await devices.authenticate(token) is not None
        assert await devices.authenticate("tablet's") is not None
        # A clock that stays there is right.
        clocks.wall += 200 * DAY
        await devices.sweep()
        clocks.pass_time(SETTLE_SECONDS)
        await devices.sweep()
        assert await devices.authenticate(token) is None
        assert [each.what for each in await devices.events()][:2] == ["expired", "expired"]

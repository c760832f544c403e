"""A device is revoked on a full disk: at once, for good, and the answer says what is not stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quarterdeck.errors import DatabaseFailed
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.auth.device_store import add_device
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.auth.tokens import digest
from quarterdeck.hub.store import HUB_TABLES, SqliteHubStore
from quarterdeck.storage.database import Database, open_database
from quarterdeck.storage.reserve import Reserve
from tests.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Devices, Database]]:
    reserve = Reserve(folder / "hub.reserve")
    reserve.open()
    async with open_database(folder / "hub.db", HUB_TABLES) as database:
        store = SqliteHubStore(database, reserve)
        devices = Devices(store.devices, store.device_keys, reserve=reserve)
        await devices.load()
        yield devices, database


async def fill(disk: SmallDisk, devices: Devices) -> None:
    """Fill a disk until nothing can be stored in hub.db."""
    disk.fill()
    for number in range(1000):
        try:
            await devices.change("dev_2", name=f"{number} " * 100)
        except DatabaseFailed:
            return
    pytest.fail("the disk is not full")


async def add(database: Database, number: int) -> None:
    device = Device(
        id=f"dev_{number}", name="phone", scope="approve", created_at="2026-11-16T00:00:00Z"
    )
    await database.write(lambda writer: add_device(writer, device, digest(f"token {number}")))


async def test_a_device_is_revoked_on_a_full_disk_and_stays_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with opened(disk.folder) as (_, database):
            for number in (1, 2, 3):
                await add(database, number)
        async with opened(disk.folder) as (devices, _):
            device = await devices.authenticate("token 1")
            assert device is not None
            await fill(disk, devices)
            with devices.connection(device) as connection:
                assert await devices.revoke("dev_1")
                assert connection.scope.cancel_called
            assert await devices.authenticate("token 1") is None
            assert not await devices.revoke("dev_1")
            problem = devices.unstored_revocation("dev_1")
            assert problem is not None
            assert "hub.reserve" in problem
            await devices.sweep()  # still full
            assert devices.unstored_revocation("dev_1") is not None
            assert await devices.authenticate("token 1") is None
            assert await devices.authenticate("token 2") is not None
        disk.free()
        async with opened(disk.folder) as (devices, _):  # by another process
            assert await devices.authenticate("token 1") is None
            assert devices.unstored_revocation("dev_1") is None
            assert (await devices.events())[0].what == "revoked"
            assert await devices.authenticate("token 3") is not None
        reserve = Reserve(disk.folder / "hub.reserve")
        reserve.open()
        assert reserve.get("devices") is None


async def test_a_sweep_stores_it_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with opened(disk.folder) as (_, database):
            for number in (1, 2):
                await add(database, number)
        async with opened(disk.folder) as (devices, _):
            await fill(disk, devices)
            await devices.revoke("dev_1")
            disk.free()
            await devices.sweep()
            assert devices.unstored_revocation("dev_1") is None
        async with opened(disk.folder) as (devices, _):
            assert await devices.authenticate("token 1") is None


async def test_without_a_reserve_it_holds_as_long_as_the_process(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        async with open_database(disk.folder / "hub.db", HUB_TABLES) as database:
            for number in (1, 2):
                await add(database, number)
            store = SqliteHubStore(database)
            devices = Devices(store.devices, store.device_keys)
            await devices.load()
            await fill(disk, devices)
            assert await devices.revoke("dev_1")
            assert await devices.authenticate("token 1") is None
            problem = devices.unstored_revocation("dev_1")
            assert problem is not None
            assert "until the hub stops" in problem
            disk.free()

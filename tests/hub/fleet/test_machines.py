"""The machines of a hub: records, names, codes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import RequestRejected
from quarterdeck.http.p256 import new_key, point
from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.auth.pairing import TooManyAttempts
from quarterdeck.hub.fleet.machines import MOST_CODES, Machine, Machines, NewMachine
from tests.hub.stores import hub_store

HERE = Sighting("192.0.2.7")


class Clock:
    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def __call__(self) -> float:
        return self.time


def new(name: str = "box", *, is_chosen: bool = False) -> NewMachine:
    key = point(new_key().public_key())
    return NewMachine(name=name, is_name_chosen=is_chosen, key=key, version="1.0")


@asynccontextmanager
async def opened(folder: Path, clock: Clock | None = None) -> AsyncIterator[Machines]:
    async with hub_store(folder) as store:
        machines = Machines(store.machines, now=clock or Clock())
        await machines.load()
        yield machines


async def joined(machines: Machines, name: str = "box", *, is_chosen: bool = False) -> Machine:
    code = machines.create_code().code
    found = await machines.join(code, new(name, is_chosen=is_chosen), HERE)
    assert isinstance(found, Machine)
    return found


async def test_a_machine_survives_a_restart_of_the_hub(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        machine = await joined(machines)
        await machines.seen(machine.id, "1.1")
        assert re.fullmatch(r"m[a-z0-9]{8}", machine.id)
    async with opened(tmp_path) as machines:
        (found,) = machines.all
        assert (found.id, found.name, found.version) == (machine.id, "box", "1.1")
        assert found.last_seen_at is not None
        assert machines.key(machine.id) is not None


async def test_machines_of_one_host_name_get_numbers(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        names = [(await joined(machines, name)).name for name in ("box", "Box", "box", "box-2", "")]
    assert names == ["box", "Box-2", "box-3", "box-2-2", "machine"]


async def test_a_chosen_name_that_is_taken_is_refused_and_the_code_stays_valid(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as machines:
        await joined(machines, "box")
        code = machines.create_code().code
        with pytest.raises(RequestRejected, match="choose another name"):
            await machines.join(code, new("BOX", is_chosen=True), HERE)
        assert isinstance(await machines.join(code, new("other", is_chosen=True), HERE), Machine)


async def test_a_removed_machine_is_gone_after_a_restart_and_its_name_is_free(
    tmp_path: Path,
) -> None:
    removed: list[str] = []
    async with opened(tmp_path) as machines:
        machine = await joined(machines)
        machines.subscribe_removed(removed.append)
        assert await machines.remove(machine.id)
        assert not await machines.remove(machine.id)
        assert removed == [machine.id]
        assert machines.key(machine.id) is None
    async with opened(tmp_path) as machines:
        assert machines.all == []
        assert (await joined(machines)).name == "box"


async def test_names_are_changed_to_free_visible_ones_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        first, second = await joined(machines, "one"), await joined(machines, "two")
        renamed = await machines.rename(first.id, " build\n box ")
        assert renamed is not None
        assert renamed.name == "build box"
        with pytest.raises(RequestRejected, match="choose another name"):
            await machines.rename(second.id, "BUILD BOX")
        with pytest.raises(RequestRejected, match="no visible characters"):
            await machines.rename(second.id, "\n")
        assert await machines.rename("mnothere1", "x") is None
    async with opened(tmp_path) as machines:
        assert sorted(each.name for each in machines.all) == ["build box", "two"]


async def test_a_code_is_used_once_also_by_200_machines_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        code, outcomes = machines.create_code().code, []

        async def use(number: int) -> None:
            sighting = Sighting(f"192.0.2.{number % 250}")
            outcomes.append(await machines.join(code, new(), sighting))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(use, number)
        assert sum(isinstance(each, Machine) for each in outcomes) == 1
        assert len(machines.all) == 1


async def test_a_code_of_a_caller_that_left_in_the_middle_joins_at_most_once(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as machines:
        code = machines.create_code().code
        with anyio.CancelScope() as scope:
            scope.cancel()
            await machines.join(code, new(), HERE)
        again = await machines.join(code, new(), HERE)
        assert len(machines.all) == 1
        assert again is None


async def test_codes_expire_and_end_with_the_hub(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as machines:
        code, other = machines.create_code(seconds=60).code, machines.create_code().code
        clock.time += 61
        assert await machines.join(code, new(), HERE) is None
    async with opened(tmp_path, clock) as machines:
        assert await machines.join(other, new(), HERE) is None


async def test_codes_that_people_type_are_accepted_in_any_form(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        code = machines.create_code().code
        typed = f" {code.replace('-', ' ').lower()} "
        assert isinstance(await machines.join(typed, new(), HERE), Machine)


async def test_wrong_codes_are_limited_by_address_and_in_total(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as machines:
        code = machines.create_code().code
        outcomes = [await machines.join("WRNG-CDEX", new(), HERE) for _ in range(12)]
        assert outcomes[:10] == [None] * 10
        assert isinstance(outcomes[10], TooManyAttempts)
        assert isinstance(await machines.join(code, new(), HERE), TooManyAttempts)
        spread = [
            await machines.join("WRNG-CDEX", new(), Sighting(f"192.0.2.{each}"))
            for each in range(100, 160)
        ]
        assert spread.count(None) == 40
        clock.time += 31
        assert isinstance(await machines.join(code, new(), HERE), Machine)


async def test_the_number_of_codes_is_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as machines:
        codes = [machines.create_code().code for _ in range(MOST_CODES + 1)]
        assert await machines.join(codes[0], new(), HERE) is None
        assert isinstance(await machines.join(codes[-1], new(), HERE), Machine)


async def test_joins_changes_and_refusals_are_in_the_history_of_devices(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        machines = Machines(store.machines, now=Clock())
        machine = await joined(machines)
        await machines.rename(machine.id, "new")
        await machines.remove(machine.id)
        for _ in range(40):
            await machines.refused(machine.id, HERE)
        await machines.refused("munknown1", HERE)  # no name that a stranger sends gets there
        events = await store.devices.events()
    assert [each.what for each in reversed(events)][:3] == [
        "machine-joined",
        "machine-renamed",
        "machine-removed",
    ]
    refused = [each for each in events if each.what == "machine-refused"]
    assert len(refused) == 30
    assert {(each.device_id, each.name, each.address) for each in refused} == {
        (machine.id, "new", "192.0.2.7")
    }

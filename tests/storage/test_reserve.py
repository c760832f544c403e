"""A reserve: written while the disk is full, whole after a torn write."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.storage.reserve import HALF, Reserve
from tests.small_disk import small_disk


def opened(path: Path) -> Reserve:
    reserve = Reserve(path)
    reserve.open()
    return reserve


def test_values_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "hub.reserve"
    reserve = opened(path)
    assert path.stat().st_size == 2 * HALF
    for number in range(5):
        assert reserve.set("devices", [number])
        assert reserve.set("other", {"number": number})
    assert opened(path).get("devices") == [4]
    assert reserve.set("devices", None)
    assert opened(path).get("devices") is None
    assert opened(path).get("other") == {"number": 4}


def test_it_is_written_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk.folder / "hub.reserve"
        reserve = opened(path)
        disk.fill()
        for number in range(20):
            assert reserve.set("devices", ["x" * 1000, number])
        assert opened(path).get("devices")[1] == 19


def test_without_space_for_it_a_start_succeeds_and_a_write_is_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        reserve = opened(disk.folder / "hub.reserve")
        if (disk.folder / "filler").exists():  # else single files have their space
            assert not reserve.set("devices", ["x"])
            assert reserve.get("devices") is None
        disk.free()
        assert opened(disk.folder / "hub.reserve").set("devices", ["x"])


@pytest.mark.parametrize("torn", [0, 10, 20, 100, HALF - 1])
def test_a_torn_write_leaves_the_value_before_it(torn: int, tmp_path: Path) -> None:
    path = tmp_path / "hub.reserve"
    reserve = opened(path)
    reserve.set("devices", ["first"])  # the second half
    reserve.set("devices", ["second", "x" * (HALF - 200)])  # the first half
    data = bytearray(path.read_bytes())
    data[torn:HALF] = bytes(HALF - torn)
    path.write_bytes(data)
    expected = ["first"] if torn < HALF - 60 else ["second", "x" * (HALF - 200)]
    assert opened(path).get("devices") == expected


def test_what_is_too_large_is_not_taken(tmp_path: Path) -> None:
    reserve = opened(tmp_path / "hub.reserve")
    assert not reserve.set("devices", "x" * HALF)
    assert reserve.get("devices") is None


def test_a_file_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hub.reserve"
    path.touch(mode=0o644)
    path.chmod(0o644)
    with pytest.raises(StartRefused):
        opened(path)

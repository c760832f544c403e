"""Files on the disk: `F_FULLFSYNC` where there is one."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quarterdeck.machine.disk_sync import sync_data, sync_file

FULL = 51


@pytest.mark.parametrize("sync", [sync_data, sync_file])
@pytest.mark.parametrize(
    ("failure", "expected"),
    [(None, ["full"]), (errno.ENOTSUP, ["full", "plain"]), (errno.EIO, ["full"])],
)
def test_macos_is_asked_for_the_disk_and_not_its_cache(
    sync: Callable[[int], None],
    failure: int | None,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []

    def control(_fd: int, command: int) -> int:
        assert command == FULL
        done.append("full")
        if failure is not None:
            raise OSError(failure, os.strerror(failure))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda _fd: done.append("plain"))
    monkeypatch.delattr(os, "fdatasync", raising=False)
    with (tmp_path / "a").open("wb") as file:
        if failure == errno.EIO:  # a second attempt would report success
            with pytest.raises(OSError, match="Input/output"):
                sync(file.fileno())
        else:
            sync(file.fileno())
    assert done == expected


@pytest.mark.parametrize("sync", [sync_data, sync_file])
def test_other_systems_sync(sync: Callable[[int], None], tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"x")
        sync(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync(file.fileno() if not file.closed else 9999)

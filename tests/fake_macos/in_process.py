"""Lets the modules of this process believe that they run on macOS, for one test."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from quarterdeck.machine import (
    guard_program,
    macos_processes,
    process_origin,
    process_table,
    processes,
    socket_peers,
)
from tests.fake_macos import libproc
from tests.fake_macos.kit import mac_python


@pytest.fixture
def macos(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Answer as macOS does; yields the Python of guards."""
    python = mac_python(tmp_path_factory.mktemp("mac"))
    monkeypatch.setattr(processes, "_PYTHON", python)
    monkeypatch.setattr(macos_processes, "_loaded", [libproc.library()])
    table = process_table.table_of("darwin")
    assert isinstance(table, process_table.MacTable)
    for module in (guard_program, process_origin, socket_peers):
        monkeypatch.setattr(module, "_SYSTEM", "darwin")
    monkeypatch.setattr(process_origin, "process_table", lambda: table)
    plain = socket.socket.getsockopt

    def getsockopt(self: Any, level: int, option: int, *size: int) -> Any:
        if level == 0 and self.family == socket.AF_UNIX:
            return libproc.local_option(self, option, *(size or (4,)))
        return plain(self, level, option, *size)

    monkeypatch.setattr(socket.socket, "getsockopt", getsockopt)
    yield python
    libproc.LOST.clear()

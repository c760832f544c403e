"""Tapes what agents say: loaded by every Python process that a test starts, and by the tests.

`PYTHON_TAPES` names a folder; each conversation of an `AgentServer`, or of a hub with an
editor, leaves two files in it: the bytes that came `in` and those that went `out`; when it is over,
an `end` as well. `tapes`, beside this, reads them.
"""

from __future__ import annotations

import importlib.machinery
import os
import resource
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

VARIABLE = "PYTHON_TAPES"  # so named, a hub passes it on to the agents that it starts
# Every conversation of an agent, and of a hub that is one to editors, is opened in these.
_MODULES = ("quarterdeck.agent.server", "quarterdeck.hub.editors.endpoints")


class _Taped:
    """A transport, and a copy of everything that goes through it."""

    def __init__(self, transport: Any, folder: str) -> None:
        self._transport = transport
        self._path = f"{folder}/{os.getpid()}-{uuid.uuid4().hex}"
        self._write("in", b"")
        self._write("out", b"")

    async def pump(self, on_bytes: Any) -> None:
        def copied(data: bytes) -> Any:
            self._write("in", data)
            return on_bytes(data)

        await self._transport.pump(copied)

    async def send(self, data: bytes) -> None:
        self._write("out", data)
        await self._transport.send(data)

    def send_now(self, data: bytes) -> int:
        sent: int = self._transport.send_now(data)
        self._write("out", data[:sent])
        return sent

    async def aclose(self) -> None:
        try:
            await self._transport.aclose()
        finally:
            self._write("end", b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _write(self, way: str, data: bytes) -> None:
        with (
            _room_for_tapes(),
            open(f"{self._path}.{way}", "ab", buffering=0) as file,  # noqa: PTH123 - light
        ):
            file.write(data)


@contextmanager
def _room_for_tapes() -> Iterator[None]:
    """Tests that fill the disk do so by a limit on the size of files, which is not for us."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limits[0] == limits[1]:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _tape(module: Any) -> None:
    opened = module.open_connection

    def open_taped(transport: Any, **options: Any) -> Any:
        folder = os.environ.get(VARIABLE)
        return opened(_Taped(transport, folder) if folder else transport, **options)

    module.open_connection = open_taped


class _Finder:
    """Changes the modules when they are imported, and costs nothing where none is."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_tape(module: Any) -> None:
            execute(module)
            _tape(module)

        spec.loader.exec_module = execute_and_tape  # type: ignore[method-assign] # on this one object
        return spec


def install() -> None:
    """Record all messages from now on; call it once."""
    for name in _MODULES:
        if name in sys.modules:
            _tape(sys.modules[name])
    sys.meta_path.insert(0, cast("Any", _Finder()))


if VARIABLE in os.environ:
    install()

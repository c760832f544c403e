"""A way to a database that a test can cut, as a network or a restart of PostgreSQL does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import anyio
from anyio.abc import SocketStream, TaskGroup

SOCKET = ".s.PGSQL.5432"


class Way:
    """Passes bytes on to a socket of PostgreSQL, until it is cut."""

    def __init__(self, url: str, folder: Path, tasks: TaskGroup) -> None:
        parts = urlsplit(url)
        self._target = Path(parse_qs(parts.query)["host"][0], SOCKET)
        self._socket = folder / SOCKET
        self._tasks = tasks
        self._scope = anyio.CancelScope()
        query = f"host={quote(str(folder), safe='')}"
        self.url = f"postgresql://{parts.username}@{parts.path}?{query}"

    async def open(self) -> None:
        self._scope = anyio.CancelScope()
        self._socket.unlink(missing_ok=True)
        listener = await anyio.create_unix_listener(self._socket)

        async def serve(scope: anyio.CancelScope) -> None:
            async with listener:
                with scope:
                    await listener.serve(self._pass_on)

        self._tasks.start_soon(serve, self._scope)

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._socket.unlink()
        self._scope.cancel()

    async def _pass_on(self, client: SocketStream) -> None:
        async with (
            client,
            await anyio.connect_unix(self._target) as server,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_copy, client, server, tasks.cancel_scope)
            tasks.start_soon(_copy, server, client, tasks.cancel_scope)


async def _copy(source: SocketStream, target: SocketStream, both: anyio.CancelScope) -> None:
    try:
        async for data in source:
            await target.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the other side has gone
    both.cancel()


@asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    folder = Path(tempfile.mkdtemp(prefix="qdway"))  # short: the path of a socket is limited
    async with anyio.create_task_group() as tasks:
        way = Way(url, folder, tasks)
        await way.open()
        try:
            yield way
        finally:
            tasks.cancel_scope.cancel()
            shutil.rmtree(folder, ignore_errors=True)

"""Where a runner meets hubs: at a Unix socket, at TLS WebSockets, and where it dials them."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from ssl import SSLContext
from typing import Final

import anyio
from anyio import to_thread

from quarterdeck.errors import StartRefused
from quarterdeck.runner.api import RunnerApi
from quarterdeck.runner.link.memberships import JOINED
from quarterdeck.runner.link.server import HubConnection, LinkServer
from quarterdeck.runner.link.transport import LinkSocket, serving_unix
from quarterdeck.wire import IndependentTasks, background_tasks

logger = logging.getLogger(__name__)

LISTEN_SECONDS: Final = 1.0
"""Between two looks whether the socket's file is there."""


@asynccontextmanager
async def serving_link(runner: RunnerApi, path: Path) -> AsyncIterator[LinkServer]:
    """Serve a runner at a Unix socket while the body runs; yield what serves it.

    Raises:
        StartRefused: if another process listens there, or the path cannot be used.
    """
    async with background_tasks() as tasks:
        server = LinkServer(runner, IndependentTasks(tasks))
        make_end = partial(HubConnection, server)
        async with serving_unix(path, make_end):
            tasks.start_soon(_listen_again, path, make_end)
            try:
                yield server
            finally:
                server.end()


async def _listen_again(path: Path, make_end: Callable[[LinkSocket], HubConnection]) -> None:
    """Open another socket whenever the file is gone, which a user or a cleaner may remove."""
    while True:
        await _until_removed(path)
        try:
            async with serving_unix(path, make_end):
                logger.warning("the runner's socket was removed; there is another one now")
                await _until_removed(path)
        except StartRefused as error:
            logger.warning("the runner has no socket", extra={"reason": str(error)})
            await anyio.sleep(LISTEN_SECONDS)


async def _until_removed(path: Path) -> None:
    file = anyio.Path(path)
    while await file.exists():  # noqa: ASYNC110 - no event reports it on every system
        await anyio.sleep(LISTEN_SECONDS)


@asynccontextmanager
async def serving_remote_link(
    server: LinkServer, host: str, port: int, *, token: str, tls: SSLContext
) -> AsyncIterator[int]:
    """Serve the runner of `server` at a TLS WebSocket as well; yield the port.

    Only hubs that have the token are connected. They share everything with those at the Unix
    socket: the runner's identity, draining and shutting down.

    Raises:
        OSError: if the address cannot be bound.
    """
    # Takes 5 MB, which a runner that serves hubs of this machine does without.
    from quarterdeck.runner.link.websocket import serving_websocket  # noqa: PLC0415

    make_end = partial(HubConnection, server, is_local=False)
    async with serving_websocket(host, port, token=token, tls=tls, make_end=make_end) as bound:
        yield bound


async def dial_hubs(server: LinkServer, home: Path, environ: Mapping[str, str]) -> None:
    """Connect the runner of `server` to the hubs that its machine joins; never returns.

    Its data directory names them (`memberships`); `environ` may name a proxy.
    """
    joined = anyio.Path(home, JOINED)
    while not await joined.exists():  # noqa: ASYNC110 - no event reports it on every system
        await anyio.sleep(LISTEN_SECONDS)
    # Takes 15 MB and a moment, which a runner that joins no hub does without.
    dialing = await to_thread.run_sync(import_module, "quarterdeck.runner.link.dialing")
    await dialing.Dialer(server, home, environ, now=time.time).run()

"""A hub in this process, for commands that find none running.

`open_embedded` opens it without a socket: only this command can use it. `open_served` also listens
on loopback, for `proxy`, which relays an editor to it over a WebSocket. Both use the data directory
and the configuration of the hub that `up` would start. If the directory has a runner, they use that
one; else they run agents in this process, and the locks of the directory keep others out.

Commands import this module only when they need it: importing a hub takes longer than most commands
that use a running one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from quarterdeck.cli.config import hub_options, load_config
from quarterdeck.cli.hub_processes import runner_ready
from quarterdeck.cli.runner_start import RUNNER_SOCKET
from quarterdeck.client import InProcessTransport
from quarterdeck.errors import StartRefused
from quarterdeck.http.asgi import Application
from quarterdeck.hub import Address, Hub, HubOptions, hub_app, serving
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.protocol import Transport
from quarterdeck.runner.link import connected_runner


@asynccontextmanager
async def open_embedded(
    home: Path, environ: Mapping[str, str], config_file: Path | None
) -> AsyncIterator[tuple[Application, Callable[[], Transport]]]:
    """Open a hub without a socket.

    Yields its ASGI application and a function that connects a `Client` to its host.

    Raises:
        StartRefused: if it cannot be opened.
        SettingsInvalid: if its configuration is invalid.
    """
    options = _local_options(home, environ, config_file)
    if not await _has_runner(home):
        async with Hub(options) as hub:
            yield hub_app(hub), lambda: InProcessTransport(hub.runner.endpoint)
        return
    # In a folder of its own: other commands can do the same beside it, and `up` can start.
    with TemporaryDirectory(prefix="quarterdeck-") as folder:
        own = replace(options, home=Path(folder))
        async with connected_runner(home / RUNNER_SOCKET) as runner, Hub(own, runner) as hub:
            yield hub_app(hub), lambda: InProcessTransport(hub.runner.endpoint)


async def _has_runner(home: Path) -> bool:
    """Return whether a runner runs, with which no hub is needed to run agents; wait for its start.

    Raises:
        StartRefused: if it does not start.
    """
    if lock_owner(home, "runner") is None or lock_owner(home, "hub") is not None:
        return False  # none, or it is inside a hub or another command
    await runner_ready(home, None)
    return True


@asynccontextmanager
async def open_served(
    home: Path,
    environ: Mapping[str, str],
    config_file: Path | None,
    *,
    parts: Sequence[Callable[[Hub], list[Endpoint]]],
) -> AsyncIterator[Address]:
    """Open a hub with more `parts` on loopback: on its default port, or on any free one.

    Raises:
        StartRefused: if it cannot start.
        SettingsInvalid: if its configuration is invalid.
    """
    options = _local_options(home, environ, config_file)
    async with AsyncExitStack() as stack:
        runner = None
        if await _has_runner(home):
            runner = await stack.enter_async_context(connected_runner(home / RUNNER_SOCKET))
        hub = await stack.enter_async_context(Hub(options, runner, parts=parts))
        try:
            address = await stack.enter_async_context(serving(hub))
        except StartRefused:
            hub.options = replace(options, port=0)
            address = await stack.enter_async_context(serving(hub))
        yield address


def _local_options(home: Path, environ: Mapping[str, str], config_file: Path | None) -> HubOptions:
    """Return the configured options, but with the default address, no TLS and no proxy."""
    config = load_config(environ, config_file)
    configured = hub_options(config, home=home, environ=environ, config_file=config_file)
    default = HubOptions(home=home)
    return replace(
        configured,
        host=default.host,
        port=default.port,
        certificate=None,
        private_key=None,
        behind_proxy=False,
        allowed_hosts=(),
    )

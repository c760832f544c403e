"""A hub in this process, for commands that find none running.

`open_embedded` opens it without a socket: only this command can use it. `open_served` also listens
on loopback, for `proxy`, which relays an editor to it over a WebSocket. Both use the data directory
and the configuration of the hub that `up` would start; the lock of the directory keeps a second hub
out.

Commands import this module only when they need it: importing a hub takes longer than most commands
that use a running one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from quarterdeck.cli.config import hub_options, load_config
from quarterdeck.client import InProcessTransport
from quarterdeck.errors import StartRefused
from quarterdeck.http.asgi import Application
from quarterdeck.hub import Address, Hub, HubOptions, hub_app, serving
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.protocol import Transport


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
    async with Hub(_local_options(home, environ, config_file)) as hub:
        yield hub_app(hub), lambda: InProcessTransport(hub.runner.endpoint)


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
        hub = await stack.enter_async_context(Hub(options, parts=parts))
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

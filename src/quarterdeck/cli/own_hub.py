"""A hub in this process that other programs on this computer can reach, for `proxy`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from quarterdeck.cli.config import hub_options, load_config
from quarterdeck.cli.embedding import listening_nowhere
from quarterdeck.errors import HubRefused
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.server import Address, serving


@asynccontextmanager
async def open_served(
    home: Path, environ: Mapping[str, str], config_file: Path | None
) -> AsyncIterator[Address]:
    """Open a hub for this computer only: on its usual port, or on any free one if that is taken.

    Raises:
        HubRefused: if it cannot start.
        SettingsInvalid: if its configuration is invalid.
    """
    options = hub_options(load_config(environ, config_file), home=home, environ=environ)
    async with AsyncExitStack() as stack:
        own = listening_nowhere(options)
        hub = await stack.enter_async_context(Hub(own, parts=(acp_endpoints,)))
        try:
            address = await stack.enter_async_context(serving(hub))
        except HubRefused:
            hub.options = replace(own, port=0)
            address = await stack.enter_async_context(serving(hub))
        yield address

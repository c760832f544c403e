"""A hub of this process that others on this computer can reach, for an editor that found none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from quarterdeck.bridge import acp_endpoints
from quarterdeck.cli.embedding import listening_nowhere
from quarterdeck.cli.hub_config import hub_options, load_config
from quarterdeck.errors import HubRefused
from quarterdeck.server.hub import Hub
from quarterdeck.server.running import Address, serving


@asynccontextmanager
async def open_served(
    home: Path, environ: Mapping[str, str], config_file: Path | None
) -> AsyncIterator[Address]:
    """Open a hub for this computer alone: at its usual port, or at any if that is taken.

    Raises:
        HubRefused: if it cannot be opened.
        SettingsInvalid: if its configuration cannot be used.
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

"""A hub in this process, for a command that finds none running."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from quarterdeck.cli.config import hub_options, load_config
from quarterdeck.client import InProcessTransport
from quarterdeck.http.asgi import Application
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.server import hub_app
from quarterdeck.protocol import Transport


@asynccontextmanager
async def open_embedded(
    home: Path, environ: Mapping[str, str], config_file: Path | None
) -> AsyncIterator[tuple[Application, Callable[[], Transport], str]]:
    """Open a hub; yields its application, what makes connections to its host, and its name.

    Raises:
        HubRefused: if it cannot be opened.
        SettingsInvalid: if its configuration cannot be used.
    """
    options = hub_options(load_config(environ, config_file), home=home, environ=environ)
    async with Hub(listening_nowhere(options)) as hub:
        name = f"{hub.options.host}:{hub.options.port}"
        yield hub_app(hub), lambda: InProcessTransport(hub.runner.endpoint), name


def listening_nowhere(options: HubOptions) -> HubOptions:
    """Return the options of a hub without a socket: it is called by its usual name."""
    usual = HubOptions(home=options.home)
    return replace(
        options,
        host=usual.host,
        port=usual.port,
        certificate=None,
        private_key=None,
        behind_proxy=False,
        allowed_hosts=(),
    )

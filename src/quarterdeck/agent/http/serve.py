"""Runs an agent's application on a port until a signal.

It imports uvicorn, so `app` imports it only when a port is served.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

import anyio
import uvicorn

from quarterdeck.agent.http.app import HttpApp
from quarterdeck.agent.turn import exit_if_abandoned
from quarterdeck.http.limits import Capacity
from quarterdeck.http.server import (
    ServerOptions,
    listening,
    running_server,
    server_config,
    text_error,
)

MAX_CONNECTIONS: Final = 512
INTERRUPTED: Final = 130
_END_SECONDS: Final = 3  # for requests that are being answered when the server ends


def agent_config(app: HttpApp) -> uvicorn.Config:
    """Return uvicorn's configuration: errors in plain text, as the application's are."""
    options = ServerOptions(
        capacity=Capacity(connections=MAX_CONNECTIONS),
        head_seconds=app.options.head_seconds,
        answers_silence=True,
        error_format=text_error,
    )
    return server_config(app, options, end_seconds=_END_SECONDS)


async def serve_app(app: HttpApp, host: str, port: int, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status.

    When `on_ready` is called with the address, requests are accepted and signals are handled.

    Raises:
        OSError: if the port is not available.
    """
    status = 0
    with (
        listening(host, port) as listener,
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
    ):
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"
        async with (
            app.running(),
            running_server(agent_config(app), listener, before_end=app.aclose),
        ):
            on_ready(address)
            async for number in signals:
                status = INTERRUPTED if number == signal.SIGINT else 0
                break
    exit_if_abandoned(status)
    return status

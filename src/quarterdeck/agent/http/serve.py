"""Running the application on a port, by uvicorn, until a signal comes."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn

from quarterdeck.agent.http.app import HttpApp
from quarterdeck.agent.http.heads import bounded_heads
from quarterdeck.agent.turn import exit_if_abandoned

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


MAX_CONNECTIONS: Final = 512
_END_SECONDS: Final = 3  # for requests that are being answered when the server ends


INTERRUPTED: Final = 130


class _Server(uvicorn.Server):
    """Signals are handled by us: streams have to end before uvicorn waits for them."""

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_config(app: HttpApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_heads(app.options.head_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=_END_SECONDS,
    )


async def serve_app(app: HttpApp, listener: socket.socket, on_ready: Callable[[], None]) -> int:
    """Serve until a signal comes; return the exit status.

    When `on_ready` is called, requests are taken and signals are heeded.
    """
    server = _Server(server_config(app))
    status = 0
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with app.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(_run, server, listener, tasks.cancel_scope)
            on_ready()
            async for number in signals:
                status = INTERRUPTED if number == signal.SIGINT else 0
                await app.aclose()
                server.should_exit = True
    exit_if_abandoned(status)
    return status


async def _run(server: uvicorn.Server, listener: socket.socket, scope: anyio.CancelScope) -> None:
    await server.serve(sockets=[listener])
    scope.cancel()

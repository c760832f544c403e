"""Running a hub on a port, by uvicorn, until a signal comes or somebody says so."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn

from quarterdeck.errors import HubRefused
from quarterdeck.jsontext import encode_json
from quarterdeck.server.app import hub_app
from quarterdeck.server.bounded import QUEUE, BoundedServer, uvicorn_settings
from quarterdeck.server.clock import written
from quarterdeck.server.doorway import raise_file_limit, room_for
from quarterdeck.server.hub import Hub
from quarterdeck.server.listening import LOOPBACK, is_wildcard
from quarterdeck.server.private_files import PRIVATE_FILE
from quarterdeck.wire import background_tasks

logger = logging.getLogger(__name__)

FILE: Final = "hub.json"
END_SECONDS: Final = 1
"""For requests that are being answered when the hub ends; streams are cut then."""
GOODBYE_SECONDS: Final = 1
"""For streams to say that the hub ends."""
INTERRUPTED: Final = 130


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a hub is reached."""

    url: str
    port: int


async def serve_hub(hub: Hub, on_ready: Callable[[Address], None] | None = None) -> int:
    """Serve an open hub until SIGTERM or SIGINT; return the exit status.

    When `on_ready` is called, requests are taken and signals are heeded.

    Raises:
        HubRefused: if the address cannot be had.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serving(hub) as address:
            if on_ready is not None:
                on_ready(address)
            async for number in signals:
                logger.info("ending", extra={"signal": signal.Signals(number).name})
                return INTERRUPTED if number == signal.SIGINT else 0
    return 0  # pragma: no cover - the receiver gives signals for ever


@asynccontextmanager
async def serving(hub: Hub) -> AsyncIterator[Address]:
    """Serve an open hub while the body runs.

    Raises:
        HubRefused: if the address cannot be had.
    """
    with _listener(hub) as listener:
        port = listener.getsockname()[1]
        hub.gate.listens_at(port)
        server = BoundedServer(_config(hub))
        ended = anyio.Event()

        async def serve() -> None:
            try:
                await server.serve(sockets=[listener])
            finally:
                ended.set()

        async with background_tasks() as tasks:
            tasks.start_soon(serve)
            address = Address(url=_url(hub, port), port=port)
            try:
                with _announced(hub, address):
                    yield address
            finally:
                hub.say_goodbye()
                with anyio.move_on_after(GOODBYE_SECONDS, shield=True):
                    # What uvicorn still finds open it closes by itself, without our reason.
                    while server.server_state.tasks:  # noqa: ASYNC110 - nothing tells us
                        await anyio.sleep(0.01)
                server.should_exit = True
                with anyio.move_on_after(END_SECONDS + 1, shield=True):
                    await ended.wait()


def _url(hub: Hub, port: int) -> str:
    """Return the address for programs on this computer."""
    host = LOOPBACK if is_wildcard(hub.options.host) else hub.options.host
    scheme = "http" if hub.options.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _config(hub: Hub) -> uvicorn.Config:
    options = hub.options
    tls: dict[str, Any] = {}
    if options.certificate is not None:
        tls = {"ssl_certfile": options.certificate, "ssl_keyfile": options.private_key}
    return uvicorn.Config(
        hub_app(hub),
        loop="none",
        timeout_graceful_shutdown=END_SECONDS,
        **uvicorn_settings(options.listening, room=room_for(raise_file_limit())),
        **tls,
    )


@contextmanager
def _listener(hub: Hub) -> Iterator[socket.socket]:
    options = hub.options
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # The protocol is said for asyncio, which else leaves Nagle's algorithm on: 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(QUEUE)
    except OSError as error:
        listener.close()
        reason = f"cannot listen at {options.host}:{options.port} ({error.strerror})"
        raise HubRefused(reason, "choose another port with --port, or 0 for any") from error
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def _announced(hub: Hub, address: Address) -> Iterator[None]:
    """Tell other programs of this user where the hub is."""
    path = hub.options.home / FILE
    facts = {"url": address.url, "pid": os.getpid(), "startedAt": written(hub.started_at)}
    if hub.options.certificate is not None:
        facts["certificate"] = str(hub.options.certificate.absolute())
    _write_private(path, encode_json(facts))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that nobody reads half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, PRIVATE_FILE), "wb") as stream:
        stream.write(content)
    fresh.replace(path)

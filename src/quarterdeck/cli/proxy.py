"""`quarterdeck proxy AGENT`: an agent for an editor, which runs in the hub."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus

from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED, read
from quarterdeck.cli.hub_link import HubLink, Place, running_hub
from quarterdeck.cli.logs import log_to_stderr
from quarterdeck.cli.parsers import proxy_parser
from quarterdeck.cli.relay import Relay
from quarterdeck.cli.screen import say
from quarterdeck.errors import CommandFailed, HubRefused
from quarterdeck.jsontext import decode_json
from quarterdeck.wire import background_tasks, stdio_transport

STARTING_SECONDS: Final = 10.0
"""For a hub that somebody else is starting just now."""
_OPEN_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.1
_MOST_BYTES: Final = 1 << 28  # of one frame: an update may carry a whole file


def run(arguments: list[str]) -> int:
    chosen = read(proxy_parser(), arguments)
    if chosen is None:
        return DONE
    log_to_stderr()
    if sys.stdin.isatty():
        say("waiting for an ACP client on standard input; editors start this, or Ctrl-D")
    return anyio.run(_proxy, Place.of(chosen), chosen.agent)


async def _proxy(place: Place, agent: str) -> int:
    status, stop = DONE, anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with background_tasks() as tasks:

            async def heed_signals() -> None:
                nonlocal status
                async for number in signals:
                    status = INTERRUPTED if number == signal.SIGINT else DONE
                    stop.set()

            tasks.start_soon(heed_signals)
            async with _hub(place) as link, _socket(link, agent) as socket:
                loss = await Relay(stdio_transport(), socket).run(stop)
    if loss is not None:
        say(loss)
        return FAILED
    return status


@asynccontextmanager
async def _hub(place: Place) -> AsyncIterator[HubLink]:
    """Find the hub that is running, or be one until the editor goes.

    Raises:
        HubRefused: if none is running, and none can be started.
    """
    async with AsyncExitStack() as stack:
        link = await running_hub(place.home)
        if link is None:
            # A hub of our own is a lot of code: whoever talks to a running one starts without it.
            from quarterdeck.cli.own_hub import open_served  # noqa: PLC0415

            own = open_served(place.home, place.environ, place.config_file)
            try:
                await stack.enter_async_context(own)
            except HubRefused:
                link = await _started_by_others(place)
                if link is None:
                    raise
        link = link or await running_hub(place.home)
        if link is None:
            raise CommandFailed("the hub did not start; quarterdeck doctor tells more")
        yield link


async def _started_by_others(place: Place) -> HubLink | None:
    """Wait for the hub of another editor's proxy that was started in the same moment."""
    with anyio.move_on_after(STARTING_SECONDS):
        while True:
            link = await running_hub(place.home)
            if link is not None:
                return link
            await anyio.sleep(_LOOK_SECONDS)
    return None


@asynccontextmanager
async def _socket(link: HubLink, agent: str) -> AsyncIterator[ClientConnection]:
    assert link.url is not None, "a hub that serves has an address"
    place = urlsplit(link.url)
    scheme = "wss" if place.scheme == "https" else "ws"
    address = f"{scheme}://{place.netloc}/acp?agent={quote(agent, safe='')}"
    tls: dict[str, Any] = {} if link.ssl is None else {"ssl": link.ssl}
    try:
        socket = await connect(
            address,
            additional_headers={"Authorization": f"Bearer {link.token}"},
            compression=None,
            open_timeout=_OPEN_SECONDS,
            max_size=_MOST_BYTES,
            proxy=None,
            **tls,
        )
    except InvalidStatus as error:
        raise CommandFailed(_refused(error)) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise CommandFailed(f"the hub at {link.url} does not answer: {error}") from error
    try:
        yield socket
    finally:
        with anyio.move_on_after(1, shield=True):
            await socket.close()


def _refused(error: InvalidStatus) -> str:
    """Return the hub's own sentence, if it said one."""
    try:
        told = decode_json(bytes(error.response.body or b""))["error"]["message"]
    except Exception:  # noqa: BLE001 - whatever answered, it was no hub of today
        return f"the hub answered with {error.response.status_code}; is it an older one?"
    return str(told).replace(
        "GET /api/agents/known lists those there are", "quarterdeck agents lists those there are"
    )

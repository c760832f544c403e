"""The hub that a command uses: the running one, or one in this process (`own_hub`).

A running hub writes where it is to `hub.json` in the data directory and holds `hub.lock`. Commands
use its Unix socket, which belongs to its user, so they need no token.

Two commands can find no hub at the same moment, or one can find a hub that has its lock but does
not listen yet. The one that cannot get the lock waits a few seconds for the other's `hub.json`
(`_starting_hub`) and then reports that the directory is in use.
"""

from __future__ import annotations

import difflib
import os
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import data_directory
from quarterdeck.cli.running_processes import find_process
from quarterdeck.client import WebSocketTransport
from quarterdeck.errors import CommandFailed, StartRefused
from quarterdeck.http.client import EmbeddedExchange, HubApi, SocketExchange
from quarterdeck.http.unix_sockets import check_listener, connected
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.protocol import Transport
from quarterdeck.views.text import one_line

ANSWER_SECONDS: Final = 15.0
"""For a hub to answer at all; one that is being replaced takes a few seconds."""
_START_SECONDS: Final = 15.0  # for a hub, from locking its directory to listening
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class HubAddress:
    """The data directory and configuration of a command's hub, running or not."""

    home: Path
    environ: Mapping[str, str]
    config_file: Path | None = None

    @classmethod
    def of(cls, chosen: Namespace, environ: Mapping[str, str] = os.environ) -> HubAddress:
        home = data_directory(environ) if chosen.home is None else chosen.home.absolute()
        return cls(home=home, environ=environ, config_file=chosen.config)


@dataclass(frozen=True, kw_only=True)
class HubHandle:
    """A hub that a command can call."""

    api: HubApi
    transport: Callable[[], Transport]
    """Connects a `Client`; called again after a connection was lost."""
    url: str | None
    """Of its page; None for an embedded hub, which no other process can reach."""
    socket: Path | None = None
    """None for an embedded hub."""

    @property
    def is_embedded(self) -> bool:
        return self.url is None


@asynccontextmanager
async def open_hub(address: HubAddress) -> AsyncIterator[HubHandle]:
    """Use the running hub, or open one in this process until the block ends.

    Raises:
        CommandFailed: if a hub is running but cannot be used.
        StartRefused: if no hub is running and none can be opened.
    """
    found = await running_hub(address.home)
    if found is not None:
        yield found
        return
    # Slow to import, and not needed if a hub is running.
    from quarterdeck.cli.own_hub import open_embedded  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        embedded = open_embedded(address.home, address.environ, address.config_file)
        try:
            app, transport = await stack.enter_async_context(embedded)
        except StartRefused:
            found = await _starting_hub(address.home)
            if found is None:
                raise
            yield found
            return
        yield HubHandle(
            api=HubApi(EmbeddedExchange(app)),
            transport=transport,
            url=None,
        )


async def _starting_hub(home: Path) -> HubHandle | None:
    """Wait for a hub that has the lock but does not listen yet; return None if it never does."""
    with anyio.move_on_after(_START_SECONDS):
        while lock_owner(home, "hub") is not None:
            found = await running_hub(home)
            if found is not None:
                return found
            await anyio.sleep(_POLL_SECONDS)
    return None


async def require_hub(address: HubAddress) -> HubHandle:
    """Return the running hub.

    Raises:
        CommandFailed: if there is none.
    """
    found = await running_hub(address.home)
    if found is None:
        raise CommandFailed(
            f"no hub is running in {address.home}; start one in another terminal: quarterdeck up"
        )
    return found


async def running_hub(home: Path) -> HubHandle | None:
    """Return the running hub; None if there is none.

    Raises:
        CommandFailed: if there is one that cannot be used.
    """
    found = find_process(home, "hub")
    if found is None:
        return None
    url, path = str(found.facts.get("url")), _socket_path(home, found.facts)
    _check_socket(path)
    api = HubApi(SocketExchange(path))
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            await api.get("/api/device")
    except TimeoutError as error:
        raise CommandFailed(
            f"the hub (process {found.pid}) does not answer; to replace it, while agents keep"
            f" running: kill -9 {found.pid}, then quarterdeck up"
        ) from error
    return HubHandle(
        api=api, transport=lambda: WebSocketTransport(socket=path), url=url, socket=path
    )


def hub_certificate(home: Path) -> Path | None:
    """Return the certificate of the running hub, which clients of its port trust."""
    found = find_process(home, "hub")
    path = None if found is None else found.facts.get("certificate")
    return Path(path) if isinstance(path, str) else None


def _socket_path(home: Path, facts: Mapping[str, Any]) -> Path:
    if not isinstance(facts.get("socket"), str):
        raise CommandFailed(
            f"the hub in {home} is an older version, without a socket for commands; restart it:"
            " stop it, then run quarterdeck up"
        )
    return Path(facts["socket"])


def _check_socket(path: Path) -> None:
    """Connect once, for a clear error.

    Raises:
        CommandFailed: if that fails.
    """
    try:
        with connected(path) as connection:
            check_listener(connection)
    except PermissionError as error:
        raise CommandFailed(
            f"{path} belongs to another user, and so does its hub; run the command as that user"
        ) from error
    except OSError as error:
        raise CommandFailed(
            f"the hub does not answer at {path}: {error.strerror or error};"
            " run quarterdeck doctor, or restart it: quarterdeck up"
        ) from error


async def unknown_agent(api: HubApi, name: str) -> CommandFailed:
    """Return what to raise for the name of an agent that a hub does not know."""
    known = (await api.get("/api/agents/known"))["agents"]
    near = difflib.get_close_matches(name, [str(each["name"]) for each in known], n=1)
    hint = f"did you mean {near[0]}?" if near else "quarterdeck agents lists them"
    return CommandFailed(f"unknown agent {one_line(name)!r}; {hint}")

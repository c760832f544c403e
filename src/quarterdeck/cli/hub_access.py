"""The hub that a command uses: the running one, or one in this process (`own_hub`).

A running hub writes where it is to `hub.json` in the data directory and holds the lock of the
directory. Commands use its Unix socket, which belongs to its user, so they need no token. The file
alone proves nothing: after `kill -9` it stays. So the lock is checked first (`_is_running`).

Two commands can find no hub at the same moment, or one can find a hub that has its lock but does
not listen yet. The one that cannot get the lock waits a few seconds for the other's `hub.json`
(`_starting_hub`) and then reports that the directory is in use.
"""

from __future__ import annotations

import difflib
import fcntl
import os
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import data_directory
from quarterdeck.client import WebSocketTransport
from quarterdeck.errors import CommandFailed, JsonInvalid, StartRefused
from quarterdeck.http.client import EmbeddedExchange, HubApi, SocketExchange
from quarterdeck.http.unix_sockets import check_listener, connected
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import Transport
from quarterdeck.views.text import one_line

_START_SECONDS: Final = 3.0  # for a hub, from locking its directory to listening
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
class HubLink:
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
async def open_hub(address: HubAddress) -> AsyncIterator[HubLink]:
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
        yield HubLink(
            api=HubApi(EmbeddedExchange(app)),
            transport=transport,
            url=None,
        )


async def _starting_hub(home: Path) -> HubLink | None:
    """Wait for a hub that has the lock but does not listen yet; return None if it never does."""
    with anyio.move_on_after(_START_SECONDS):
        while lock_owner(home) is not None:
            found = await running_hub(home)
            if found is not None:
                return found
            await anyio.sleep(_POLL_SECONDS)
    return None


async def require_hub(address: HubAddress) -> HubLink:
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


async def running_hub(home: Path) -> HubLink | None:
    """Return the running hub; None if there is none.

    Raises:
        CommandFailed: if there is one that cannot be used.
    """
    facts = _hub_facts(home / "hub.json")
    if facts is None or not _is_running(home, facts.get("pid")):
        return None  # a killed hub leaves its file behind
    url, path = str(facts["url"]), _socket_path(home, facts)
    _check_socket(path)
    api = HubApi(SocketExchange(path))
    await api.get("/api/device")
    return HubLink(api=api, transport=lambda: WebSocketTransport(socket=path), url=url, socket=path)


def hub_certificate(home: Path) -> Path | None:
    """Return the certificate of the running hub, which clients of its port trust."""
    facts = _hub_facts(home / "hub.json") or {}
    path = facts.get("certificate")
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


def _hub_facts(path: Path) -> dict[str, Any] | None:
    try:
        facts = decode_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(
            f"cannot read {path}: {error.strerror}; run quarterdeck doctor"
        ) from error
    except JsonInvalid:
        return None  # a hub was killed while writing it
    return facts if isinstance(facts, dict) and isinstance(facts.get("url"), str) else None


def _is_running(home: Path, pid: Any) -> bool:
    """Return whether the hub that wrote `hub.json` still holds the lock of its directory."""
    return lock_owner(home) == str(pid)


def lock_owner(home: Path) -> str | None:
    """Return the id of the process that holds the lock of a data directory; None: it is free."""
    try:
        lock = os.open(home / "hub.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(lock)
    return None


async def unknown_agent(api: HubApi, name: str) -> CommandFailed:
    """Return what to raise for the name of an agent that a hub does not know."""
    known = (await api.get("/api/agents/known"))["agents"]
    near = difflib.get_close_matches(name, [str(each["name"]) for each in known], n=1)
    hint = f"did you mean {near[0]}?" if near else "quarterdeck agents lists them"
    return CommandFailed(f"unknown agent {one_line(name)!r}; {hint}")

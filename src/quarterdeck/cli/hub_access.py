"""The hub that a command uses: the running one, or one in this process (`own_hub`).

A running hub writes its address to `hub.json` in the data directory, next to the owner's token, and
holds the lock of the directory. The file alone proves nothing: after `kill -9` it stays, and any
program may listen on the port. So the lock is checked first (`_is_running`), before the token is
sent anywhere.

Two commands can find no hub at the same moment, or one can find a hub that has its lock but does
not listen yet. The one that cannot get the lock waits a few seconds for the other's `hub.json`
(`_starting_hub`) and then reports that the directory is in use.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import stat
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import data_directory
from quarterdeck.client import WebSocketTransport
from quarterdeck.errors import CommandFailed, HubDeclined, JsonInvalid, StartRefused
from quarterdeck.http.certificates import trust
from quarterdeck.http.client import EmbeddedExchange, HttpExchange, HubApi
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
    """None for an embedded hub, which no other process can reach."""
    token: str = field(default="", repr=False)
    ssl: SSLContext | None = None
    """Trusts the certificate of the hub, if it has one."""

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
            app, transport, authority = await stack.enter_async_context(embedded)
        except StartRefused:
            found = await _starting_hub(address.home)
            if found is None:
                raise
            yield found
            return
        yield HubLink(
            api=HubApi(EmbeddedExchange(app, read_token(address.home), authority)),
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
    url = str(facts["url"])
    token = read_token(home)
    path = facts.get("certificate")
    certificate = Path(path) if isinstance(path, str) else None
    api = HubApi(HttpExchange(url, token, certificate))
    try:
        await api.get("/api/device")
    except HubDeclined as error:
        if error.status == 401:
            remedy = f"check that {home} is its data directory, or run quarterdeck doctor"
            raise CommandFailed(f"the hub at {url} rejects our token; {remedy}") from error
        raise
    context = trust(certificate) if url.startswith("https:") else None
    return HubLink(
        api=api,
        transport=lambda: _websocket(url, token, context),
        url=url,
        token=token,
        ssl=context,
    )


def _websocket(url: str, token: str, context: SSLContext | None) -> Transport:
    return WebSocketTransport(url, token=token, ssl=context)


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


def read_token(home: Path) -> str:
    """Return the owner's token.

    Raises:
        CommandFailed: if it is missing, or other users could have read it.
    """
    path = home / "token"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise CommandFailed(
            f"cannot read the token {path}: {error.strerror}; run quarterdeck doctor"
        ) from error
    with os.fdopen(file, encoding="ascii", errors="replace") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        if not stat.S_ISREG(mode) or stat.S_IMODE(mode) & 0o077:
            raise CommandFailed(
                f"other users can read {path}; delete it and restart the hub to get a new one:"
                f" rm {path}"
            )
        return stream.read(1000).strip()


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

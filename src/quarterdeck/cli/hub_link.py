"""The hub that a command talks to: the one that is running, or one of its own.

Which hub is running is told by `hub.json` in the data directory, and the owner's token is beside
it. A hub that does not run is started in this process, on the same data, without a socket; the lock
of the data directory keeps a second one out.
"""

from __future__ import annotations

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

from quarterdeck.cli.places import data_directory
from quarterdeck.client import WebSocketTransport
from quarterdeck.errors import CommandFailed, HubDeclined, HubRefused, JsonInvalid
from quarterdeck.http.certificates import trust
from quarterdeck.http.client import EmbeddedExchange, HttpExchange, HubApi
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import Transport

_START_SECONDS: Final = 3.0  # that a hub may need from taking its directory to listening
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a command's hub is, or would be."""

    home: Path
    environ: Mapping[str, str]
    config_file: Path | None = None

    @classmethod
    def of(cls, chosen: Namespace, environ: Mapping[str, str] = os.environ) -> Place:
        home = data_directory(environ) if chosen.home is None else chosen.home.absolute()
        return cls(home=home, environ=environ, config_file=chosen.config)


@dataclass(frozen=True, kw_only=True)
class HubLink:
    """A hub to talk to."""

    api: HubApi
    transport: Callable[[], Transport]
    """Makes a connection for a `Client`; a new one after one was lost."""
    url: str | None
    """None for a hub in this process, which nobody else can reach."""
    token: str = field(default="", repr=False)
    ssl: SSLContext | None = None
    """How to trust it, if it has a certificate."""

    @property
    def is_embedded(self) -> bool:
        return self.url is None


@asynccontextmanager
async def open_hub(place: Place) -> AsyncIterator[HubLink]:
    """Talk to the hub that is running, or to one of our own until the block ends.

    Raises:
        CommandFailed: if one is running and does not answer.
        HubRefused: if none is, and none can be started.
    """
    found = await running_hub(place.home)
    if found is not None:
        yield found
        return
    # A hub of our own is a lot of code: whoever talks to a running one starts without it.
    from quarterdeck.cli.embedding import open_embedded  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        ours = open_embedded(place.home, place.environ, place.config_file)
        try:
            app, transport, authority = await stack.enter_async_context(ours)
        except HubRefused:
            found = await _starting_hub(place.home)
            if found is None:
                raise
            yield found
            return
        yield HubLink(
            api=HubApi(EmbeddedExchange(app, read_token(place.home), authority)),
            transport=transport,
            url=None,
        )


async def _starting_hub(home: Path) -> HubLink | None:
    """Return the hub that was about to start when we looked for it."""
    with anyio.move_on_after(_START_SECONDS):
        while _is_taken(home):
            found = await running_hub(home)
            if found is not None:
                return found
            await anyio.sleep(_LOOK_SECONDS)
    return None


async def require_hub(place: Place) -> HubLink:
    """Return the hub that is running.

    Raises:
        CommandFailed: if there is none.
    """
    found = await running_hub(place.home)
    if found is None:
        raise CommandFailed(
            f"no hub is running in {place.home}; start one with quarterdeck up, in another terminal"
        )
    return found


async def running_hub(home: Path) -> HubLink | None:
    """Find the hub that is running; None if there is none.

    Raises:
        CommandFailed: if there is one that cannot be used.
    """
    facts = _hub_facts(home / "hub.json")
    if facts is None or not _is_running(home, facts.get("pid")):
        return None  # if it was killed, it could not take the file away
    url = str(facts["url"])
    token = read_token(home)
    named = facts.get("certificate")
    certificate = Path(named) if isinstance(named, str) else None
    api = HubApi(HttpExchange(url, token, certificate))
    try:
        await api.get("/api/device")
    except HubDeclined as error:
        if error.status == 401:
            remedy = f"is {home} the data directory of that hub? quarterdeck doctor tells more"
            raise CommandFailed(f"the hub at {url} does not know our token; {remedy}") from error
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
            f"{path} cannot be read: {error.strerror}; is this your data directory?"
        ) from error
    except JsonInvalid:
        return None  # from a hub that was killed while it wrote it
    return facts if isinstance(facts, dict) and isinstance(facts.get("url"), str) else None


def read_token(home: Path) -> str:
    """Return the owner's token.

    Raises:
        CommandFailed: if it is not there, or others could have read it.
    """
    path = home / "token"
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise CommandFailed(
            f"the token {path} cannot be read: {error.strerror}; quarterdeck doctor tells more"
        ) from error
    with os.fdopen(file, encoding="ascii", errors="replace") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        if not stat.S_ISREG(mode) or stat.S_IMODE(mode) & 0o077:
            raise CommandFailed(
                f"others could read {path}; remove it and start the hub again, for a new token"
            )
        return stream.read(1000).strip()


def _is_running(home: Path, pid: Any) -> bool:
    """Whether the hub that wrote `hub.json` still has its data directory.

    Asked before the token is sent anywhere: after a hub was killed, anybody may have its port.
    """
    return _owner(home) == str(pid)


def _is_taken(home: Path) -> bool:
    return _owner(home) is not None


def _owner(home: Path) -> str | None:
    """Return the process that has a data directory now."""
    try:
        lock = os.open(home / "hub.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode(errors="replace").strip()
    finally:
        os.close(lock)
    return None

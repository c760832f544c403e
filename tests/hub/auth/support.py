"""`Authentication` in front of a few endpoints, served on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.http.limits import Capacity
from quarterdeck.http.origins import Listening
from quarterdeck.hub.api.devices import device_endpoints
from quarterdeck.hub.api.endpoint import Asgi, Endpoint, make_router
from quarterdeck.hub.auth.device import OWNER, Scope
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions, GuardLimits
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.hub.reach import Reach, ReachFacts, describe
from quarterdeck.hub.store import HUB_TABLES, SqliteHubStore
from quarterdeck.storage.database import open_database
from tests.hub.browser_keys import SigningBrowser, pair_browser
from tests.hub.served import LOOPBACK, Parser, Reply, Served, serving


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_authentication(
    folder: Path,
    options: AuthenticationOptions | None = None,
    *,
    now: Callable[[], float] | None = None,
) -> AsyncIterator[tuple[Authentication, str]]:
    """Open `Authentication` on its database; yield it with a token of the owner."""
    async with open_database(folder / "hub.db", HUB_TABLES) as database:
        times = {} if now is None else {"now": now}
        key = hub_key(folder / "identity.key")
        auth = Authentication(
            SqliteHubStore(database), key, options or AuthenticationOptions(), **times
        )
        await auth.load()
        yield auth, owner_token(auth.devices)


def owner_token(devices: Devices) -> str:
    """Give the owner a token, for tests on a port of what a device that may do everything does.

    A hub never does that: its owner is who uses the socket (`test_local_peers`).
    """
    token = make_token()
    devices._ids[digest(token)] = OWNER  # noqa: SLF001 - see above
    devices._hashes[OWNER].add(digest(token))  # noqa: SLF001 - see above
    return token


@dataclass
class Behind:
    """Endpoints behind the guard, and the paths that were reached."""

    reached: list[str] = field(default_factory=list)
    is_stuck: anyio.Event = field(default_factory=anyio.Event)
    is_over: anyio.Event = field(default_factory=anyio.Event)

    def endpoints(self) -> list[Endpoint]:
        return [
            _endpoint("GET", "/api/secret", "view", self._secret),
            _endpoint("POST", "/api/deeds", "approve", self._deed),
            _endpoint("GET", "/api/ticks", "view", self._ticks, kind="sse"),
            _endpoint("GET", "/api/socket", "view", self._socket, kind="websocket"),
            _endpoint("POST", "/api/failure", "view", self._failure),
            _endpoint("GET", "/", None, self._page),
            _endpoint("GET", "/assets/{name}", None, self._page),
        ]

    def stuck_endpoints(self) -> list[Endpoint]:
        """Endpoints that do not end by themselves."""
        return [
            _endpoint("GET", "/api/flood", "view", self._flood, kind="sse"),
            _endpoint("GET", "/api/patience", "view", self._patience),
        ]

    async def _secret(self, scope: AsgiScope, _receive: Receive, send: Send) -> None:
        self.reached.append(scope["path"])
        await _answer(send, b'{"secret":1}')

    async def _deed(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        self.reached.append(scope["path"])
        await _answer(send, b'{"length":%d}' % len(body))

    async def _ticks(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.reached.append(scope["path"])
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: tick\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _flood(self, scope: AsgiScope, _receive: Receive, send: Send) -> None:
        """Send until the client does not keep up."""
        self.reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            with anyio.move_on_after(0.2) as patience:
                message = {"type": "http.response.body", "body": b"x" * 65_536, "more_body": True}
                await send(message)
            if patience.cancelled_caught:
                self.is_stuck.set()
                try:
                    await send(message)
                finally:
                    self.is_over.set()

    async def _patience(self, scope: AsgiScope, _receive: Receive, _send: Send) -> None:
        self.reached.append(scope["path"])
        self.is_stuck.set()
        await anyio.sleep_forever()

    async def _socket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.reached.append(scope["path"])
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def _failure(self, scope: AsgiScope, _receive: Receive, _send: Send) -> None:
        self.reached.append(scope["path"])
        raise ZeroDivisionError

    async def _page(self, scope: AsgiScope, _receive: Receive, send: Send) -> None:
        self.reached.append(scope["path"])
        await _answer(send, b"page", b"text/html", (b"cache-control", b"max-age=60"))


@dataclass(frozen=True)
class GuardedServer:
    """An application behind the guard, on a port."""

    auth: Authentication
    owner: str
    behind: Behind
    served: Served
    endpoints: list[Endpoint]

    async def device(self, scope: Scope = "view", **more: Any) -> tuple[str, str]:
        """Pair a device; return its id and token."""
        _, codes = await self.auth.pairings.create(scope=scope, **more)
        reply = await self.served.call("POST", "/api/pair", json={"code": codes.long})
        return reply.json["device"]["id"], reply.json["token"]

    async def browser(self, scope: Scope = "admin", **more: Any) -> SigningBrowser:
        """Pair a browser."""
        _, codes = await self.auth.pairings.create(scope=scope)
        return (await pair_browser(self.served, codes.long, **more))[0]

    async def get(self, path: str, *lines: str, token: str | None = None) -> Reply:
        return await self.served.call("GET", path, *lines, token=token)


@asynccontextmanager
async def open_guarded(
    folder: Path,
    parser: Parser = "h11",
    *,
    limits: GuardLimits | None = None,
    listening: Listening = LOOPBACK,
    now: Callable[[], float] | None = None,
    capacity: Capacity | None = None,
    tls: dict[str, Any] | None = None,
) -> AsyncIterator[GuardedServer]:
    options = AuthenticationOptions(listening=listening, limits=limits or GuardLimits())
    async with open_authentication(folder, options, now=now) as (auth, owner):
        behind = Behind()
        endpoints = [*device_endpoints(auth, no_reach), *behind.endpoints()]

        def app(port: int) -> Asgi:
            auth.set_port(port)
            return auth.guard(make_router([*endpoints, *behind.stuck_endpoints()]))

        async with serving(app, parser, listening, capacity=capacity, tls=tls) as served:
            yield GuardedServer(auth, owner, behind, served, endpoints)


async def no_reach() -> Reach:
    """Find that only this computer reaches the hub."""
    return describe(ReachFacts(listening=LOOPBACK), {})


def _endpoint(method: str, path: str, scope: Scope | None, app: Asgi, **more: Any) -> Endpoint:
    return Endpoint(method=method, path=path, scope=scope, app=app, summary="for tests", **more)


async def _answer(
    send: Send,
    body: bytes,
    content_type: bytes = b"application/json",
    *headers: tuple[bytes, bytes],
) -> None:
    length = str(len(body)).encode()
    named = [(b"content-type", content_type), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": named})
    await send({"type": "http.response.body", "body": body})

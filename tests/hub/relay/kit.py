"""A hub behind a relay, and phones that reach it through the relay with real TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio.lowlevel
from anyio.streams.tls import TLSStream
from starlette.types import Receive, Scope as AsgiScope, Send
from typing_extensions import override

from quarterdeck.http.server import ServerOptions, listening, server_config
from quarterdeck.hub import Hub, HubOptions, hub_endpoints, serving
from quarterdeck.hub.api.endpoint import Asgi, Endpoint, make_router
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.relay.certificates import OWN_FILE
from quarterdeck.hub.relay.service import RelayService
from quarterdeck.relay import Relay, RelayAddress, RelayLimits, relay_identity
from quarterdeck.relay.server import Arrival
from quarterdeck.relay.settings import RelaySettings
from tests.hub.api.kit import options
from tests.hub.browser_keys import SigningBrowser, pair_browser
from tests.hub.served import Served, Wire
from tests.relay.kit import DOMAIN, address_of, made, trusting, until

FAR = ("203.0.113.7", 4711)
MANY = RelayLimits(
    new_per_second=10_000, new_per_address=10_000, waiting_per_hub=512, undecided_per_address=512
)


class FarRelay(Relay):
    """A relay whose clients are on another computer, or so it says."""

    seen: tuple[str, int] = FAR

    @override
    def on_hello(self, arrival: Arrival, name: str | None) -> None:
        if name != self.domain:
            arrival.peer = self.seen
        super().on_hello(arrival, name)


@dataclass(frozen=True)
class Relayed(Served):
    """A hub, as a phone reaches it."""

    name: str
    certificate: Path

    @property
    @override
    def host(self) -> str:
        return f"{self.name}:{self.port}"

    @property
    @override
    def origin(self) -> str:
        return f"https://{self.host}"

    @asynccontextmanager
    @override
    async def connect(self) -> AsyncIterator[Wire]:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            secure: Any = await TLSStream.wrap(
                stream,
                hostname=self.name,
                ssl_context=trusting(self.certificate),
                standard_compatible=False,
            )
            yield Wire(secure)


@dataclass
class Setup:
    """A hub, its relay, and how it is reached."""

    hub: Hub
    relay: FarRelay
    phone: Relayed
    address: RelayAddress

    async def browser(self, scope: Any = "approve") -> SigningBrowser:
        _, codes = await self.hub.auth.pairings.create(scope=scope)
        return (await pair_browser(self.phone, codes.long))[0]

    async def token(self, scope: Any) -> str:
        _, codes = await self.hub.auth.pairings.create(scope=scope)
        reply = await self.phone.call("POST", "/api/pair", json={"code": codes.long, "name": "x"})
        token: str = reply.json["token"]
        return token


@asynccontextmanager
async def far_relay(folder: Path) -> AsyncIterator[tuple[FarRelay, RelayAddress]]:
    identity = relay_identity(made(folder), DOMAIN)
    relay = FarRelay(DOMAIN, identity, MANY)
    with listening("127.0.0.1", 0) as listener:
        async with relay.serving([listener.dup()]):
            yield relay, address_of(identity, listener.getsockname()[1])


@asynccontextmanager
async def behind_relay(folder: Path, **changes: Any) -> AsyncIterator[Setup]:
    """Serve a hub that has a relay; `changes` are of its options."""
    async with far_relay(folder / "relay") as (relay, address):
        wanted = replace(options(folder / "home"), relay=RelaySettings(address=address), **changes)
        async with served_hub(wanted) as (hub, phone):
            yield Setup(hub, relay, phone, address)


@asynccontextmanager
async def watched_behind_relay(folder: Path, reached: list[str]) -> AsyncIterator[Setup]:
    """Serve a hub to its relay alone; note each of its endpoints that is reached."""
    async with far_relay(folder / "relay") as (relay, address):
        wanted = replace(options(folder / "home"), relay=RelaySettings(address=address))
        async with Hub(wanted, parts=(acp_endpoints,)) as hub:
            service = hub.relay
            assert service is not None
            watched = [replace(each, app=_watched(each, reached)) for each in hub_endpoints(hub)]
            app = hub.auth.relayed_guard(make_router(watched), service.origin)
            config = server_config(app, ServerOptions(), end_seconds=1)
            async with service.serving(config, before_end=anyio.lowlevel.checkpoint):
                await until(partial(is_connected, service))
                phone = phone_of(service, address, wanted.home / OWN_FILE)
                yield Setup(hub, relay, phone, address)


def _watched(endpoint: Endpoint, reached: list[str]) -> Asgi:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        reached.append(f"{endpoint.method} {endpoint.path}")
        await endpoint.app(scope, receive, send)

    return app


@asynccontextmanager
async def served_hub(wanted: HubOptions) -> AsyncIterator[tuple[Hub, Relayed]]:
    """Serve a hub, and wait until it is connected to its relay."""
    assert wanted.relay is not None
    async with Hub(wanted, parts=(acp_endpoints,)) as hub, serving(hub):
        service = hub.relay
        assert service is not None
        await until(partial(is_connected, service))
        phone = phone_of(service, wanted.relay.address, wanted.home / OWN_FILE)
        yield hub, phone


def is_connected(service: RelayService) -> bool:
    return service.state.is_connected


def phone_of(service: RelayService, address: RelayAddress, certificate: Path) -> Relayed:
    name = service.origin.removeprefix("https://").partition(":")[0]
    return Relayed(address.port, "h11", name, certificate)

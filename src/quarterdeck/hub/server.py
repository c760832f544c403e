"""`hub_app`: the route table behind the guard; `serving`, `serve_hub`: the same on a port."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck._version import __version__
from quarterdeck.http.limits import Capacity, capacity_for, raise_file_limit
from quarterdeck.http.origins import (
    LOOPBACK,
    accepted_peers,
    is_wildcard,
)
from quarterdeck.http.server import RunningServer, ServerOptions, running_server, server_config
from quarterdeck.hub.api.adoption import adoption_endpoints
from quarterdeck.hub.api.agents import agent_endpoints
from quarterdeck.hub.api.devices import device_endpoints
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    Asgi,
    Endpoint,
    error_response,
    json_app,
    make_router,
    send_error,
)
from quarterdeck.hub.api.machines import machine_endpoints
from quarterdeck.hub.api.openapi import openapi
from quarterdeck.hub.api.operations import operation_endpoints
from quarterdeck.hub.api.optional import optional_endpoints
from quarterdeck.hub.api.prompts import prompt_endpoints
from quarterdeck.hub.api.push import push_endpoints
from quarterdeck.hub.api.reach import reach_endpoints
from quarterdeck.hub.api.requests import request_endpoints
from quarterdeck.hub.api.sessions import session_endpoints
from quarterdeck.hub.api.transcript import transcript_endpoints
from quarterdeck.hub.api.workspaces import file_endpoints, folder_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.listeners import Listeners, open_listeners
from quarterdeck.hub.page.files import page_endpoints
from quarterdeck.hub.reach.service import ReachOptions, open_reach
from quarterdeck.hub.streams.endpoints import stream_endpoints
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.private_files import replace_private
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.link import LINK_MESSAGE_BYTES, LINK_PATH

logger = logging.getLogger(__name__)

FILE: Final = "hub.json"
END_SECONDS: Final = 1
"""For requests that are being answered when the hub ends; streams are ended before."""
INTERRUPTED: Final = 130
_LIMITS: Final = {LINK_PATH: LINK_MESSAGE_BYTES}
"""Machines that have not proved who they are fill no more memory than that."""

Part = Callable[[Hub], list[Endpoint]]

PARTS: tuple[Part, ...] = (
    operation_endpoints,
    agent_endpoints,
    adoption_endpoints,
    session_endpoints,
    optional_endpoints,
    prompt_endpoints,
    request_endpoints,
    transcript_endpoints,
    folder_endpoints,
    file_endpoints,
    push_endpoints,
    lambda hub: stream_endpoints(stream_sources(hub)),
    lambda hub: device_endpoints(hub.auth, hub.reach_report),
    machine_endpoints,
    reach_endpoints,
)


def stream_sources(hub: Hub) -> StreamSources:
    """Return what the streams use of a hub."""
    return StreamSources(
        runner=hub.runner,
        start_in_background=hub.start_in_background,
        devices=hub.auth.devices,
        callers=hub.auth.callers,
        before_end=hub.before_end,
    )


def hub_endpoints(hub: Hub) -> list[Endpoint]:
    """Return every endpoint of a hub."""
    endpoints = [endpoint for part in (*PARTS, *hub.parts) for endpoint in part(hub)]
    document = openapi([*endpoints, _document_endpoint({})])

    return [*endpoints, _document_endpoint(document)]


def _document_endpoint(document: dict[str, object]) -> Endpoint:
    async def show(_request: ApiRequest) -> dict[str, object]:
        return document

    return Endpoint(
        method="GET",
        path="/openapi.json",
        scope="view",
        app=json_app(show),
        summary="This document",
        tag="operations",
        returns=dict,
    )


def hub_app(hub: Hub, *, more: Sequence[Endpoint] = ()) -> Asgi:
    """Return the application of an open hub; `more` are further endpoints."""
    return hub.auth.guard(_routes(hub, more))


def _routes(hub: Hub, more: Sequence[Endpoint] = ()) -> Asgi:
    endpoints = [*hub_endpoints(hub), *page_endpoints(), *more]
    router = make_router(endpoints)
    router.default = _not_found
    return router


async def _not_found(scope: AsgiScope, receive: Receive, send: Send) -> None:
    message = f"{scope['path']!r} does not exist; GET /openapi.json lists all endpoints"
    response = error_response(404, "quarterdeck/not-found", message)
    await send_error(response, scope, receive, send)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a hub is reached."""

    url: str
    port: int
    socket: Path
    """For programs of this user on this computer."""


async def serve_hub(hub: Hub, on_ready: Callable[[Address], None] | None = None) -> int:
    """Serve an open hub until SIGTERM or SIGINT; return the exit status.

    When `on_ready` is called, requests are accepted and signals are handled.

    Raises:
        StartRefused: if the address cannot be bound.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serving(hub) as address:
            if on_ready is not None:
                on_ready(address)
            async for number in signals:
                logger.info("ending", extra={"signal": signal.Signals(number).name})
                return INTERRUPTED if number == signal.SIGINT else 0
    return 0  # pragma: no cover - the receiver never ends


@asynccontextmanager
async def serving(hub: Hub, listeners: Listeners | None = None) -> AsyncIterator[Address]:
    """Serve an open hub while the body runs, at its own sockets or at those of the caller.

    Raises:
        StartRefused: if the address cannot be bound.
    """
    options = hub.options
    with ExitStack() as stack:
        if listeners is None:
            opened = open_listeners(options.home, options.host, options.port)
            listeners = stack.enter_context(opened)
        hub.auth.set_port(listeners.port)
        url = _url(hub, listeners.port)
        address = Address(url=url, port=listeners.port, socket=listeners.path)

        async def end_streams() -> None:
            hub.end_streams()

        # Copies: the server closes them, and the next process may take the originals over.
        originals = (*listeners.tcp, listeners.local)
        copies = [stack.enter_context(each.dup()) for each in originals]
        routes = _routes(hub)
        config = _config(hub, hub.auth.guard(routes))
        async with running_server(config, *copies, before_end=end_streams) as server:
            with _announced(hub, address, listeners):
                async with _relayed(hub, routes, end_streams), _reachable(hub, server):
                    yield address


@asynccontextmanager
async def _relayed(
    hub: Hub, routes: Asgi, end_streams: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Serve the clients of the relay, if there is one, while the body runs."""
    relay = hub.relay
    if relay is None:
        yield
        return
    app = hub.auth.relayed_guard(routes, relay.origin)
    # Half of what the hub accepts itself: a flood at the relay leaves room for other clients.
    capacity = Capacity(connections=capacity_for(raise_file_limit()).connections // 2)
    config = server_config(
        app, ServerOptions(capacity=capacity, message_bytes=_LIMITS), end_seconds=END_SECONDS
    )
    async with relay.serving(config, before_end=end_streams):
        yield


@asynccontextmanager
async def _reachable(hub: Hub, server: RunningServer) -> AsyncIterator[None]:
    """Give phones access to a hub while the body runs."""
    options = ReachOptions(
        home=hub.options.home,
        environ=hub.options.environ,
        listening=hub.auth.options.listening,
        is_for_phones=hub.options.phone,
        key=hub.auth.hub_key,
        relay=hub.relay_state,
    )
    async with open_reach(options, hub.auth.sites, server) as reach:
        hub.reach = reach
        try:
            yield
        finally:
            hub.reach = None


def _url(hub: Hub, port: int) -> str:
    """Return the address for programs on this computer."""
    host = LOOPBACK if is_wildcard(hub.options.host) else hub.options.host
    scheme = "http" if hub.options.certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _config(hub: Hub, app: Asgi) -> uvicorn.Config:
    options = hub.options
    tls: dict[str, Any] = {}
    if options.certificate is not None:
        tls = {"ssl_certfile": options.certificate, "ssl_keyfile": options.private_key}
    accepted = ServerOptions(
        capacity=capacity_for(raise_file_limit()),
        trusted_proxies=options.listening.proxies,
        accepted_peers=accepted_peers(options.listening),
        is_known=hub.auth.is_known,
        message_bytes=_LIMITS,
    )
    return server_config(app, accepted, end_seconds=END_SECONDS, **tls)


@contextmanager
def _announced(hub: Hub, address: Address, listeners: Listeners) -> Iterator[None]:
    """Write where the hub is, for other programs of this user."""
    path = hub.options.home / FILE
    facts = {
        "url": address.url,
        "socket": str(address.socket.absolute()),
        "pid": os.getpid(),
        "version": __version__,
        "instance": secrets.token_hex(8),
        "startedAt": iso_seconds(hub.started_at),
    }
    if hub.options.certificate is not None:
        facts["certificate"] = str(hub.options.certificate.absolute())
    replace_private(path, encode_json(facts))
    try:
        yield
    finally:
        if not listeners.is_handed_over:
            path.unlink(missing_ok=True)

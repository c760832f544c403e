"""`hub_app`: the route table behind the guard; `serving`, `serve_hub`: the same on a port."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import StartRefused
from quarterdeck.http.limits import capacity_for, raise_file_limit
from quarterdeck.http.origins import (
    LOOPBACK,
    LOOPBACK_IPV6,
    accepted_peers,
    is_loopback,
    is_wildcard,
)
from quarterdeck.http.server import ServerOptions, listening, running_server, server_config
from quarterdeck.http.unix_sockets import listening_unix
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
from quarterdeck.hub.api.openapi import openapi
from quarterdeck.hub.api.operations import operation_endpoints
from quarterdeck.hub.api.optional import optional_endpoints
from quarterdeck.hub.api.prompts import prompt_endpoints
from quarterdeck.hub.api.push import push_endpoints
from quarterdeck.hub.api.requests import request_endpoints
from quarterdeck.hub.api.sessions import session_endpoints
from quarterdeck.hub.api.transcript import transcript_endpoints
from quarterdeck.hub.api.workspaces import file_endpoints, folder_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.page.files import page_endpoints
from quarterdeck.hub.streams.endpoints import stream_endpoints
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.private_files import PRIVATE_FILE
from quarterdeck.protocol.timestamps import iso_seconds

logger = logging.getLogger(__name__)

FILE: Final = "hub.json"
SOCKET: Final = "hub.sock"
END_SECONDS: Final = 1
"""For requests that are being answered when the hub ends; streams are ended before."""
INTERRUPTED: Final = 130
_RETRIES: Final = 8  # to find a port that is free at every address

Part = Callable[[Hub], list[Endpoint]]

PARTS: tuple[Part, ...] = (
    operation_endpoints,
    agent_endpoints,
    session_endpoints,
    optional_endpoints,
    prompt_endpoints,
    request_endpoints,
    transcript_endpoints,
    folder_endpoints,
    file_endpoints,
    push_endpoints,
    lambda hub: stream_endpoints(stream_sources(hub)),
    lambda hub: device_endpoints(hub.auth),
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
        answer=dict,
    )


def hub_app(hub: Hub, *, more: Sequence[Endpoint] = ()) -> Asgi:
    """Return the application of an open hub; `more` are further endpoints."""
    endpoints = [*hub_endpoints(hub), *page_endpoints(), *more]
    router = make_router(endpoints)
    router.default = _not_found
    return hub.auth.guard(router)


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
async def serving(hub: Hub) -> AsyncIterator[Address]:
    """Serve an open hub while the body runs.

    Raises:
        StartRefused: if the address cannot be bound.
    """
    path = hub.options.home / SOCKET
    with _listeners(hub) as listeners, listening_unix(path) as local:
        port = listeners[0].getsockname()[1]
        hub.auth.set_port(port)
        address = Address(url=_url(hub, port), port=port, socket=path)

        async def end_streams() -> None:
            hub.end_streams()

        async with running_server(_config(hub), *listeners, local, before_end=end_streams):
            with _announced(hub, address):
                yield address


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
    accepted = ServerOptions(
        capacity=capacity_for(raise_file_limit()),
        trusted_proxies=options.listening.proxies,
        accepted_peers=accepted_peers(options.listening),
        is_known=hub.auth.is_known,
    )
    return server_config(hub_app(hub), accepted, end_seconds=END_SECONDS, **tls)


@contextmanager
def _listeners(hub: Hub) -> Iterator[list[socket.socket]]:
    options = hub.options
    retries = _RETRIES if options.port == 0 else 0
    with ExitStack() as stack:
        yield _bound_somewhere(stack, options.host, options.port, retries)


def _bound_somewhere(stack: ExitStack, host: str, port: int, retries: int) -> list[socket.socket]:
    try:
        return _bound(stack, host, port)
    except StartRefused:
        stack.close()
        if retries == 0:
            raise
        return _bound_somewhere(stack, host, port, retries - 1)


def _bound(stack: ExitStack, host: str, port: int) -> list[socket.socket]:
    """Listen at an address, and at the other addresses of `localhost` if it is one of them.

    Browsers try those in an order of their own: a program of another user that listens at one of
    them would be the hub for a browser.
    """
    try:
        listeners = [stack.enter_context(listening(host, port))]
    except OSError as error:
        reason = f"cannot listen at {host}:{port} ({error.strerror})"
        raise StartRefused(reason, "choose another port with --port, or 0 for any") from error
    port = listeners[0].getsockname()[1]
    for other in _other_loopbacks(host):
        try:
            listeners.append(stack.enter_context(listening(other, port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"another program listens at port {port} of {other}, also localhost"
                remedy = "stop it, or choose another port with --port"
                raise StartRefused(reason, remedy) from error
            # Otherwise this computer does not have that address, and no program listens there.
    return listeners


def _other_loopbacks(host: str) -> tuple[str, ...]:
    if host in (LOOPBACK, "localhost", "0.0.0.0", ""):  # noqa: S104 - compared, not bound
        return (LOOPBACK_IPV6,)
    if host == LOOPBACK_IPV6:
        return (LOOPBACK,)
    return (LOOPBACK, LOOPBACK_IPV6) if is_loopback(host) else ()


@contextmanager
def _announced(hub: Hub, address: Address) -> Iterator[None]:
    """Write where the hub is, for other programs of this user."""
    path = hub.options.home / FILE
    facts = {
        "url": address.url,
        "socket": str(address.socket.absolute()),
        "pid": os.getpid(),
        "startedAt": iso_seconds(hub.started_at),
    }
    if hub.options.certificate is not None:
        facts["certificate"] = str(hub.options.certificate.absolute())
    _write_private(path, encode_json(facts))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that no program reads half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, PRIVATE_FILE), "wb") as stream:
        stream.write(content)
    fresh.replace(path)

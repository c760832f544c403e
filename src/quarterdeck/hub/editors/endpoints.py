"""ACP at the hub: `/acp` is a WebSocket, `/acp/rpc` and `/acp/sse` are requests and a stream.

The hub's guard authenticates all of them. A client on HTTP belongs to its device: the same
`client_id` of another device is another client. Each client has an `EditorConnection`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

import anyio
from msgspec import Meta, Struct
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.agent import HttpApp, HttpOptions
from quarterdeck.errors import RequestRejected
from quarterdeck.http.origins import RejectedRequest
from quarterdeck.http.websocket import GOING_AWAY, AcpWebSocketTransport, accept_websocket
from quarterdeck.hub.api.endpoint import (
    Asgi,
    Endpoint,
    device_of,
    error_response,
    error_response_to,
    invalid,
    not_found,
    send_error,
)
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.editors.connection import EditorConnection
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.hub import Hub
from quarterdeck.wire import (
    ByteTransport,
    Connection,
    ConnectionOptions,
    background_tasks,
    open_connection,
)


class EditorServer:
    """One agent of a hub, for one device; has what `quarterdeck.agent.HttpApp` needs."""

    def __init__(self, hub: Hub, agent: str, device: Device) -> None:
        self._hub = hub
        self._agent = agent
        self._device = device

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing has to be kept open: the hub is."""
        yield

    @asynccontextmanager
    async def serve_client(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Serve one client until the body ends; its sessions continue."""
        connected = EditorConnection(self._agent, max_sessions)
        async with (
            background_tasks() as tasks,
            open_connection(
                transport,
                on_notification=connected.on_notification,
                on_request=connected.on_request,
                options=options,
            ) as connection,
        ):
            connected.attach(Editor(self._hub, self._device, connection, tasks))
            try:
                yield connection
            finally:
                connected.leave()


MOST_CLIENTS: Final = 16
"""Of one device, with one agent, on HTTP."""
_CODES: Final = {
    400: "invalid",
    404: "not-found",
    408: "too-slow",
    409: "repeated",
    413: "too-large",
    415: "invalid",
    503: "unavailable",
}

_Agent = Annotated[
    str, Meta(description="Which agent of the hub; without it, the first that is set up.")
]


class AcpQuery(Struct, frozen=True, kw_only=True):
    """Whom to talk to."""

    agent: _Agent = ""


class AcpClientQuery(Struct, frozen=True, kw_only=True):
    """Who talks to whom."""

    client_id: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9._~:-]{1,128}$",
            description="Made by the client: what it posts and what it reads belong together.",
        ),
    ]
    agent: _Agent = ""


class RpcMessage(Struct, frozen=True, kw_only=True):
    """A message of JSON-RPC 2.0: a request, a notification or an answer."""

    jsonrpc: str = "2.0"


def acp_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table that speaks ACP."""
    remote = _Remote(hub)
    hub.before_end(remote.dismiss)
    return [
        Endpoint(
            method="GET",
            path="/acp",
            scope="prompt",
            app=remote.websocket,
            summary="An agent of the hub in the Agent Client Protocol, over a WebSocket",
            kind="websocket",
            tag="acp",
            query=AcpQuery,
        ),
        Endpoint(
            method="POST",
            path="/acp/rpc",
            scope="prompt",
            app=remote.http,
            summary="Send a message of the Agent Client Protocol to an agent of the hub",
            tag="acp",
            query=AcpClientQuery,
            body=RpcMessage,
            status=202,
            errors=(400, 404, 408, 409, 413, 503),
        ),
        Endpoint(
            method="GET",
            path="/acp/sse",
            scope="prompt",
            app=remote.http,
            summary="Follow what an agent of the hub sends in the Agent Client Protocol",
            kind="sse",
            tag="acp",
            query=AcpClientQuery,
            errors=(400, 404, 503),
        ),
    ]


class _Remote:
    """All clients of a hub that speak ACP."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._apps: dict[tuple[str, ...], tuple[HttpApp, anyio.Event]] = {}
        self._ending = anyio.Event()

    def dismiss(self) -> None:
        """Let every client go; their sessions stay."""
        self._ending.set()
        for app, _ in self._apps.values():
            app.dismiss()

    async def websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            server = EditorServer(self._hub, self._agent(scope), device_of(scope))
        except RequestRejected as error:
            await send_error(error_response_to(error), scope, receive, send)
            return
        named = (b"acp-connection-id", secrets.token_hex(16).encode())
        if await accept_websocket(receive, send, [named]):
            await self._converse(server, AcpWebSocketTransport(receive, send))

    async def _converse(self, server: EditorServer, transport: AcpWebSocketTransport) -> None:
        over = anyio.Event()

        async def heed_end() -> None:
            await self._ending.wait()
            transport.closing = (GOING_AWAY, "the hub ends; connect again")
            over.set()

        async with server.serve_client(transport) as connection, background_tasks() as tasks:

            async def heed_client() -> None:
                await connection.wait_closed()
                over.set()

            tasks.start_soon(heed_end)
            tasks.start_soon(heed_client)
            try:
                await over.wait()
            except anyio.get_cancelled_exc_class():
                transport.detach()  # the guard closes it with the reason
                raise

    async def http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            app = await self._app(scope)
        except RequestRejected as error:
            await error_response_to(error)(scope, receive, send)
            return
        await app(scope, receive, send)

    async def _app(self, scope: AsgiScope) -> Asgi:
        device, agent = device_of(scope), self._agent(scope)
        key = (device.id, device.scope, agent)
        if key not in self._apps:
            server = EditorServer(self._hub, agent, device)
            options = HttpOptions(max_clients=MOST_CLIENTS)
            made = HttpApp(server, None, options, reject=_refuse), anyio.Event()
            self._apps[key] = made
            self._hub.start_in_background(lambda: _keep(*made))
        app, is_running = self._apps[key]
        await is_running.wait()
        return app

    def _agent(self, scope: AsgiScope) -> str:
        """Return the name of the requested agent.

        Raises:
            RequestRejected: if there is none.
        """
        query = scope.get("query_string", b"").decode("latin-1")
        named: list[str] = parse_qs(query).get("agent", [])
        if len(named) > 1:
            raise invalid("'agent' is in the URL twice; send it once")
        if named:
            if not self._hub.runner.knows_agent(named[0]):
                raise not_found(
                    f"agent named {named[0]!r}", "run quarterdeck agents to list all names"
                )
            return named[0]
        first = next(iter(self._hub.options.agents), None)
        if first is None:
            raise invalid("no agent is set up in hub.toml; say which you want by ?agent=NAME")
        return first


async def _keep(app: HttpApp, is_running: anyio.Event) -> None:
    async with app.running():
        is_running.set()
        await anyio.sleep_forever()


async def _refuse(send: Send, refusal: RejectedRequest) -> None:
    code = _CODES.get(refusal.status, "invalid")
    response = error_response(
        refusal.status, f"quarterdeck/{code}", refusal.reason, retryable=refusal.status == 503
    )
    for name, value in refusal.headers:
        response.headers[name] = value
    scope: MutableMapping[str, Any] = {"type": "http"}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    await response(scope, receive, send)

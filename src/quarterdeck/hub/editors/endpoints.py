"""ACP at the hub: `/acp` is a WebSocket or Streamable HTTP; `/acp/rpc` and `/acp/sse` are seed 004.

The hub's guard authenticates all of them. A client on HTTP belongs to its device, the scope of that
and the agent: the same `client_id`, or `Acp-Connection-Id`, of another is another client. Each
client has an `EditorConnection`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

import anyio
from msgspec import Meta, Struct
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.agent import HttpApp, HttpOptions
from quarterdeck.agent.http import (
    BodyReader,
    Caller,
    StreamableHttp,
    StreamableOptions,
    WebSockets,
)
from quarterdeck.errors import RequestRejected
from quarterdeck.http.origins import RejectedRequest
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
from quarterdeck.hub.fleet.identifiers import machine_of
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
MOST_CONNECTIONS: Final = 32
"""Of one device, with all agents, on Streamable HTTP."""
_CODES: Final = {
    400: "invalid",
    404: "not-found",
    405: "invalid",
    406: "invalid",
    408: "too-slow",
    409: "repeated",
    413: "too-large",
    415: "invalid",
    426: "invalid",
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
        *_streamable_endpoints(remote.streamable),
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


def _streamable_endpoints(app: Asgi) -> list[Endpoint]:
    summaries = {
        "POST": "Send a message to an agent of the hub by ACP's Streamable HTTP",
        "GET": "Follow a connection, or one of its sessions, of ACP's Streamable HTTP",
        "DELETE": "End a connection of ACP's Streamable HTTP",
    }
    errors = {
        "POST": (400, 404, 408, 413, 415, 503),
        "GET": (400, 404, 406, 409, 426, 503),
        "DELETE": (400, 404, 503),
    }
    return [
        Endpoint(
            method=method,
            path="/acp",
            scope="prompt",
            app=app,
            summary=summary,
            kind="sse" if method == "GET" else "http",
            tag="acp",
            query=AcpQuery,
            body=RpcMessage if method == "POST" else None,
            status=200 if method == "GET" else 202,
            errors=errors[method],
        )
        for method, summary in summaries.items()
    ]


class _Remote:
    """All clients of a hub that speak ACP."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._apps: dict[tuple[str, ...], tuple[HttpApp, anyio.Event]] = {}
        self._sockets = WebSockets()
        options = HttpOptions()
        self._streamable = StreamableHttp(
            StreamableOptions(
                max_connections=MOST_CONNECTIONS, idle_seconds=hub.options.editor_idle_seconds
            ),
            BodyReader(options.max_body, options.body_seconds),
        )
        self._is_streaming = False
        self._has_begun = anyio.Event()

    def dismiss(self) -> None:
        """Let every client go; their sessions stay."""
        self._sockets.dismiss()
        self._streamable.dismiss()
        for app, _ in self._apps.values():
            app.dismiss()

    async def websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            device, agent = await self._caller(scope)
            server = EditorServer(self._hub, agent, device)
        except RequestRejected as error:
            await send_error(error_response_to(error), scope, receive, send)
            return
        await self._sockets.serve(server, receive, send)

    async def streamable(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request of Streamable HTTP."""
        try:
            device, agent = await self._caller(scope)
        except RequestRejected as error:
            await error_response_to(error)(scope, receive, send)
            return
        if not self._is_streaming:
            self._is_streaming = True
            self._hub.start_in_background(self._keep_streamable)
        await self._has_begun.wait()
        caller = Caller((device.id, device.scope, agent), EditorServer(self._hub, agent, device))
        refusal = await self._streamable.serve(scope, receive, send, caller)
        if refusal is not None:
            await _refuse(send, refusal)

    async def _keep_streamable(self) -> None:
        async with self._streamable.running():
            self._has_begun.set()
            await anyio.sleep_forever()

    async def http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            app = await self._app(scope)
        except RequestRejected as error:
            await error_response_to(error)(scope, receive, send)
            return
        await app(scope, receive, send)

    async def _app(self, scope: AsgiScope) -> Asgi:
        device, agent = await self._caller(scope)
        key = (device.id, device.scope, agent)
        if key not in self._apps:
            server = EditorServer(self._hub, agent, device)
            idle = self._hub.options.editor_idle_seconds
            options = HttpOptions(max_clients=MOST_CLIENTS, idle_seconds=idle)
            made = HttpApp(server, None, options, reject=_refuse), anyio.Event()
            self._apps[key] = made
            self._hub.start_in_background(lambda: _keep(*made))
        app, is_running = self._apps[key]
        await is_running.wait()
        return app

    async def _caller(self, scope: AsgiScope) -> tuple[Device, str]:
        """Return the device, with its scope on the machine of the agent, and the agent.

        Raises:
            RequestRejected: if there is no such agent, or the device may not prompt it.
        """
        agent = await self._agent(scope)
        device = device_of(scope).on(machine_of(agent).machine_id)
        if not device.may("prompt"):
            message = (
                f"on that machine, this device has the scope {device.scope}; an editor needs prompt"
            )
            raise RequestRejected("forbidden", message)
        return device, agent

    async def _agent(self, scope: AsgiScope) -> str:
        """Return the name of the requested agent.

        Raises:
            RequestRejected: if there is none.
        """
        query = scope.get("query_string", b"").decode("latin-1")
        named: list[str] = parse_qs(query).get("agent", [])
        if len(named) > 1:
            raise invalid("'agent' is in the URL twice; send it once")
        if named:
            if not await self._hub.runner.knows_agent(named[0]):
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

"""The agent as an ASGI application.

    /acp                          ACP over Streamable HTTP (`streamable_app`), or a WebSocket
    POST /acp/rpc?client_id=ID    one JSON-RPC message
        202   a request or a notification; the response is sent on the stream
        204   a response to one of the agent's requests
        409   a request that was received before; it is not run again
    GET /acp/sse?client_id=ID     everything the agent sends, one message an event

Errors are plain text: 400 (client_id, payload), 401 (token), 403 (Host, Origin), 404 (path), 405
(method), 408 (slow body), 413 (large body), 415 (not application/json), 503 (too many clients, or
shutting down). No framework: it is three routes, and a hub can mount it under its own.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qs

import anyio
from anyio.abc import TaskGroup

from quarterdeck.agent.definition import Agent, Prompt
from quarterdeck.agent.http.client import LAST_EVENT, HttpClient, RequestRepeated, stream_events
from quarterdeck.agent.http.posted import (
    JSON,
    BodyReader,
    headers_of,
    media_type,
    respond,
    send_rejection,
)
from quarterdeck.agent.http.sockets import WebSockets, reject_websocket
from quarterdeck.agent.http.streamable_app import Caller, StreamableHttp, StreamableOptions
from quarterdeck.agent.server import AcpService, AgentServer
from quarterdeck.agent.store import SessionStore
from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.asgi import Message, Receive, Send
from quarterdeck.http.headers import answer_preflight, is_preflight, readable_by
from quarterdeck.http.keepalive import KeepAlive
from quarterdeck.http.origins import OriginCheck, RejectedRequest, check_token, origin_check
from quarterdeck.http.sse import ReplayLimits
from quarterdeck.wire import Failure, Notification, Request, Result, parse

Reject = Callable[[Send, RejectedRequest], Awaitable[None]]

CLIENT_ID: Final = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
_STREAM_SECONDS: Final = 2.0  # for clients to read the last messages when the server ends
_PING_TICKS: Final = 3  # between two pings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """Access to an agent on HTTP, and limits of its clients."""

    token: str | None = None
    """Sent by clients as `Authorization: Bearer …`."""
    needs_token: bool = True
    """False allows every program on this computer; only on loopback."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted host names besides those of loopback."""
    origins: tuple[str, ...] = ()
    """Origins besides its own whose web pages may use it, such as "https://desk.example"."""
    max_clients: int = 64
    max_sessions: int = 256
    """Sessions that one client may have open."""
    head_seconds: float = 10.0
    """How long the head of a request may take to arrive. `serve_http` enforces it; a server that
    mounts the application has to do so itself."""
    max_body: int = 16 * 1024 * 1024
    """Bytes of one POST."""
    body_seconds: float = 30.0
    """How long the body of a POST may take to arrive."""
    limits: ReplayLimits = field(default_factory=ReplayLimits)
    """What is kept for a client that reads late or reconnects."""
    ping_seconds: float = 15.0
    """How often a silent stream sends a ping."""
    idle_seconds: float = 300.0
    """After this time without a stream and without a POST a client counts as gone: its turns are
    cancelled and its sessions closed."""


class HttpApp:
    """Made by `http_app`. Serves while `running` is entered, which a lifespan does by itself."""

    def __init__(
        self,
        server: AcpService,
        check: OriginCheck | None,
        options: HttpOptions,
        *,
        reject: Reject | None = None,
    ) -> None:
        """Serve an agent; without a `check`, the application that mounts it has its own in front.

        Rejected requests are answered by `reject`; without it, in plain text.
        """
        self._server = server
        self._check = check
        self._reject = reject or send_rejection
        ticks = options.ping_seconds / _PING_TICKS
        self._keep_alive = KeepAlive(ticks, quiet_ticks=_PING_TICKS, stalled_ticks=None)
        self.options = options
        self._clients: dict[str, HttpClient] = {}
        self._leaving: set[HttpClient] = set()
        self._tasks: TaskGroup | None = None
        self._is_closing = False
        self._bodies = BodyReader(options.max_body, options.body_seconds)
        self._streamable = StreamableHttp(_streamable_options(options), self._bodies)
        self._caller = Caller((), server)
        self._sockets = WebSockets(options.max_clients)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            send = self._for_pages(scope, send)
            refusal = await self._serve(scope, receive, send)
            if refusal is not None:
                await self._reject(send, refusal)
        elif scope["type"] == "websocket":
            refusal = self._rejected_socket(scope)
            if refusal is not None:
                await reject_websocket(scope, receive, send, refusal)
            else:
                most = self.options.max_sessions
                await self._sockets.serve(self._server, receive, send, max_sessions=most)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the body ends; then turns are cancelled, sessions closed, streams ended."""
        async with (
            self._server.running(),
            self._streamable.running(),
            anyio.create_task_group() as tasks,
        ):
            self._tasks = tasks
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self.aclose()
                tasks.cancel_scope.cancel()

    def dismiss(self) -> list[HttpClient]:
        """Accept no more requests and dismiss every client; return them."""
        self._is_closing = True
        self._bodies.give_up()
        self._streamable.dismiss()
        self._sockets.dismiss()
        clients = [*self._clients.values(), *self._leaving]
        for client in clients:
            client.dismiss()
        return clients

    async def aclose(self) -> None:
        """Disconnect every client; safe to call twice."""
        clients = self.dismiss()
        with anyio.move_on_after(_STREAM_SECONDS + 10):
            for client in clients:
                await client.has_left.wait()
                with anyio.move_on_after(_STREAM_SECONDS):
                    await client.wait_streamless()
        await self._streamable.aclose()
        await self._sockets.aclose()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _for_pages(self, scope: Message, send: Send) -> Send:
        page = None if self._check is None else self._check.page(headers_of(scope))
        return send if page is None else readable_by(page, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> RejectedRequest | None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers = headers_of(scope)
        page = None if self._check is None else self._check.page(headers)
        if page is not None and is_preflight(scope["method"], headers):
            await answer_preflight(send)
            return None
        refusal = None if self._check is None else self._check.rejection(headers)
        if refusal is not None:
            return refusal
        if path == "/acp":
            return await self._streamable.serve(scope, receive, send, self._caller)
        if path not in ("/acp/rpc", "/acp/sse"):
            return RejectedRequest(404, "there are /acp, POST /acp/rpc and GET /acp/sse")
        wanted = "POST" if path == "/acp/rpc" else "GET"
        if scope["method"] != wanted:
            return RejectedRequest(405, f"use {wanted}", (("allow", wanted),))
        client_id = _client_id(scope)
        if isinstance(client_id, RejectedRequest):
            return client_id
        if path == "/acp/rpc":
            return await self._post(client_id, headers, receive, send)
        return await self._stream(client_id, headers, receive, send)

    def _rejected_socket(self, scope: Message) -> RejectedRequest | None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        refusal = None if self._check is None else self._check.rejection(headers_of(scope))
        if refusal is None and path != "/acp":
            return RejectedRequest(404, "the WebSocket is at /acp")
        if refusal is None and (self._is_closing or self._tasks is None):
            return RejectedRequest(503, "the server is shutting down")
        return refusal

    async def _post(
        self, client_id: str, headers: dict[str, str], receive: Receive, send: Send
    ) -> RejectedRequest | None:
        if media_type(headers) != JSON:
            return RejectedRequest(415, "send Content-Type: application/json")
        body = await self._bodies.read(headers, receive)
        if not isinstance(body, bytes):
            return body
        message = parse(body)
        if not isinstance(message, Request | Notification | Result | Failure):
            return RejectedRequest(
                400, f"invalid json-rpc payload: {getattr(message, 'reason', 'no JSON')}"
            )
        client = await self._client(client_id)
        if isinstance(client, RejectedRequest):
            return client
        client.seen()
        try:
            if isinstance(message, Request):
                client.transport.note_request(message, body)
            client.transport.feed(body)
        except RequestRepeated as error:
            return RejectedRequest(409, f"{error}; it is not run again")
        except ConnectionClosed as error:
            return RejectedRequest(503, str(error))
        is_answer = isinstance(message, Result | Failure)
        await respond(send, 204 if is_answer else 202)
        return None

    async def _stream(
        self, client_id: str, headers: dict[str, str], receive: Receive, send: Send
    ) -> RejectedRequest | None:
        last_event = headers.get("last-event-id", "")
        if last_event and not LAST_EVENT.fullmatch(last_event):
            return RejectedRequest(400, "Last-Event-ID is none that this server gave")
        client = await self._client(client_id)
        if isinstance(client, RejectedRequest):
            return client
        await stream_events(client, last_event, receive, send, self._keep_alive)
        return None

    async def _client(self, client_id: str) -> HttpClient | RejectedRequest:
        """Return the client of that id, known or new."""
        if self._is_closing or self._tasks is None:
            return RejectedRequest(503, "the server is shutting down")
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) + len(self._leaving) >= self.options.max_clients:
                return RejectedRequest(503, "too many clients; try again when one has left")
            client = self._clients[client_id] = HttpClient(client_id, self.options.limits)
            self._tasks.start_soon(self._attend, client)
        await client.is_ready.wait()
        return client

    async def _attend(self, client: HttpClient) -> None:
        """Serve one client until it is gone."""
        try:
            most = self.options.max_sessions
            async with self._server.serve_client(client.transport, max_sessions=most):
                client.is_ready.set()
                client.seen()  # its first request has waited for this
                await client.wait_gone(self.options.idle_seconds)
                logger.info("a client is gone", extra={"client": client.id})
                self._forget(client)
        except Exception:  # one client must not end the others
            logger.exception("serving a client failed")
        finally:
            self._forget(client)
            self._leaving.discard(client)
            client.is_ready.set()
            client.has_left.set()

    def _forget(self, client: HttpClient) -> None:
        """Free its id for reuse; its sessions are closed meanwhile."""
        if self._clients.get(client.id) is client:
            del self._clients[client.id]
            self._leaving.add(client)


def http_app(
    agent: Agent | Prompt | AgentServer,
    options: HttpOptions | None = None,
    *,
    host: str = "127.0.0.1",
    store: SessionStore | None = None,
    initial_message: str | None = None,
) -> HttpApp:
    """Return an ASGI application for an agent; `host` is where it will listen.

    Raises:
        AgentError: if the token is missing or protects nothing.
    """
    options = options or HttpOptions()
    check_token(options.token, host, needs_token=options.needs_token)
    if not isinstance(agent, AgentServer):
        agent = AgentServer(agent, store=store, initial_message=initial_message)
    hosts, origins = options.allowed_hosts, options.origins
    check = origin_check(host, token=options.token, allowed_hosts=hosts, origins=origins)
    return HttpApp(agent, check, options)


def _streamable_options(options: HttpOptions) -> StreamableOptions:
    return StreamableOptions(
        max_connections=options.max_clients,
        max_sessions=options.max_sessions,
        limits=options.limits,
        ping_seconds=options.ping_seconds,
        idle_seconds=options.idle_seconds,
    )


def _client_id(scope: Message) -> str | RejectedRequest:
    named = parse_qs(scope["query_string"].decode("latin-1")).get("client_id", [""])
    client_id: str = named[0].strip()
    if not client_id:
        return RejectedRequest(400, "client_id is required")
    if len(named) > 1 or not CLIENT_ID.fullmatch(client_id):
        return RejectedRequest(
            400, "client_id may have up to 128 letters, digits and . _ ~ : - only"
        )
    return client_id


def serve_http(
    agent: Agent | Prompt,
    host: str = "127.0.0.1",
    port: int = 9000,
    *,
    store: SessionStore | None = None,
    initial_message: str | None = None,
    options: HttpOptions | None = None,
) -> None:
    """Serve `agent` on HTTP until SIGTERM or Ctrl-C, which leaves by `SystemExit(130)`.

    Without a token in `options` one is generated and shown, with the address, on standard error.

    Raises:
        AgentError: if the token is too short, or none is wanted where others can reach the port.
        OSError: if the port is not available.
    """
    # uvicorn takes as long to import as all the rest, and an agent on stdio does not need it.
    from quarterdeck.agent.http.serve import serve_app  # noqa: PLC0415

    options = options or HttpOptions()
    generated = secrets.token_urlsafe(24) if options.needs_token and options.token is None else None
    if generated is not None:
        options = replace(options, token=generated)
    app = http_app(agent, options, host=host, store=store, initial_message=initial_message)

    def on_ready(address: str) -> None:
        _print(f"the agent is at {address}/acp, {address}/acp/rpc and {address}/acp/sse")
        if generated is not None:
            _print(f"its token, new with every start, is {generated}")
        elif not options.needs_token:
            _print("there is no token: every program on this computer can use it")

    status = anyio.run(serve_app, app, host, port, on_ready)
    if status:
        raise SystemExit(status)


def _print(text: str) -> None:
    print(f"quarterdeck: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a line for its user

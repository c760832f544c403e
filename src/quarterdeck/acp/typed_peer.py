"""ACP over a connection: typed calls and typed handlers, for the client and the agent alike.

    handlers = Handlers()
    handlers.on(methods.SESSION_UPDATE, show)                      # a plain function
    handlers.answer(methods.SESSION_REQUEST_PERMISSION, decide)    # an async function
    async with open_peer(transport, handlers) as agent:
        created = await agent.call(methods.SESSION_NEW, NewSessionRequest(cwd=..., mcp_servers=()))

For programs that want ACP with types. `quarterdeck.host` calls `wire.open_connection` itself
(`host/agent_process`), because it stores updates as the JSON that was received.

A method without a handler is answered with "method not found", so the capabilities of a side are
exactly its handlers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from quarterdeck.acp.calls import Method, NotificationMethod
from quarterdeck.acp.codec import enc_hook
from quarterdeck.acp.lenient import dec_hook, lenient
from quarterdeck.wire import (
    ByteTransport,
    Connection,
    ConnectionOptions,
    Vocabulary,
    method_not_found,
    open_connection,
)

Req = TypeVar("Req")
Res = TypeVar("Res")
Params = TypeVar("Params")

OnOther = Callable[[str, Any], None]


def _ignore(_method: str, _params: Any) -> None:
    """Ignore the notification of an unknown extension, as ACP requires."""


class Handlers:
    """The handlers of one side, by method."""

    def __init__(self, *, on_other: OnOther = _ignore) -> None:
        """Pass notifications without a handler of their own to `on_other`, params as a dict."""
        self._notes: dict[str, Callable[[Any], None]] = {}
        self._methods: dict[str, Callable[[Any], Awaitable[Any]]] = {}
        self._types: dict[str, Any] = {}
        self._on_other = on_other

    def on(self, note: NotificationMethod[Params], handler: Callable[[Params], None]) -> None:
        """Call `handler` for each notification, in the order of arrival."""
        self._notes[note.name] = handler
        self._types[note.name] = note.params

    def answer(self, method: Method[Req, Res], handler: Callable[[Req], Awaitable[Res]]) -> None:
        """Answer each request with what `handler` returns."""
        self._methods[method.name] = handler
        self._types[method.name] = method.request

    def vocabulary(self) -> Vocabulary:
        """Return the types of the params of all handlers."""
        return Vocabulary(self._types, dec_hook=dec_hook, lenient=lenient)

    def on_notification(self, method: str, params: Any) -> None:
        handler = self._notes.get(method)
        if handler is None:
            self._on_other(method, params)
        else:
            handler(params)

    def on_request(self, method: str, params: Any) -> Awaitable[Any]:
        handler = self._methods.get(method)
        if handler is None:
            raise method_not_found(method)
        return handler(params)


class Peer:
    """The other side; made by `open_peer`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def call(
        self, method: Method[Req, Res], params: Req, *, timeout_seconds: float | None = None
    ) -> Res:
        """Call a method of the other side.

        Raises:
            RpcError: if it answers with an error.
            ConnectionFailed: if it does not answer, answers too late, or with another type.
        """
        return await self.connection.call(
            method.name, params, read=method.read_response, timeout_seconds=timeout_seconds
        )

    async def notify(self, note: NotificationMethod[Params], params: Params) -> None:
        """Send a notification.

        Raises:
            ConnectionClosed: if the other side no longer reads.
        """
        await self.connection.notify(note.name, params)


@asynccontextmanager
async def open_peer(
    transport: ByteTransport, handlers: Handlers, options: ConnectionOptions | None = None
) -> AsyncIterator[Peer]:
    """Speak ACP over `transport` for the body; add all `handlers` before."""
    chosen = replace(
        options or ConnectionOptions(), vocabulary=handlers.vocabulary(), enc_hook=enc_hook
    )
    async with open_connection(
        transport,
        on_notification=handlers.on_notification,
        on_request=handlers.on_request,
        options=chosen,
    ) as connection:
        yield Peer(connection)

"""`AgentServer` serves one agent to any number of clients, each by an `AgentConnection`.

There is one connection on stdio, and one for each client on HTTP. A session belongs to the
connection that opened it. `initialize` chooses the version of ACP for the connection:
`AgentMethodsV1` and `AgentMethodsV2` have the methods of each.

Order: a request takes effect when it is read, so a cancel sent right after a prompt finds it, and a
prompt sent right after a change of mode waits for the change. Updates of a turn are sent before
its response, in ACP 2 before the state that ends it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import anyio

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.agent.client import ClientFacts
from quarterdeck.agent.definition import Agent, Prompt, inspect_agent
from quarterdeck.agent.methods import AgentMethods
from quarterdeck.agent.methods_v1 import AgentMethodsV1
from quarterdeck.agent.methods_v2 import AgentMethodsV2, facts_v2
from quarterdeck.agent.session import ClientLink
from quarterdeck.agent.sessions import AgentSessions
from quarterdeck.agent.store import SessionStore
from quarterdeck.agent.turn import to_rpc_error
from quarterdeck.agent.words_v2 import NEWEST
from quarterdeck.errors import RpcError
from quarterdeck.wire import (
    INVALID_REQUEST,
    ByteTransport,
    Connection,
    ConnectionOptions,
    method_not_found,
    open_connection,
    rpc_error,
)

CLOSE_SECONDS: Final = 10.0
"""Limit for closing all sessions of a disconnected client."""

logger = logging.getLogger(__name__)


class AgentConnection:
    """One client's requests, over one connection.

    Pass `on_notification` and `on_request` to `open_connection`, and its connection to `attach`.
    """

    def __init__(self, sessions: AgentSessions) -> None:
        self._sessions = sessions
        self._link: ClientLink | None = None
        self._methods: AgentMethods | None = None
        self._is_used = False

    def attach(self, connection: Connection, max_sessions: int | None = None) -> ClientLink:
        self._link = ClientLink(connection, ClientFacts(), max_sessions)
        return self._link

    def on_notification(self, method: str, params: Json) -> None:
        session_id = params.get("sessionId")
        if method == "session/cancel" and isinstance(session_id, str) and self._methods is not None:
            self._methods.on_cancel(session_id)

    def on_request(self, method: str, params: Json) -> Awaitable[Any]:
        if method == "initialize":
            return _with_rpc_errors(self._initialize(params))
        methods = self._methods
        known = AgentMethodsV1(self._sessions, self.link) if methods is None else methods
        handler = known.handlers.get(method)
        if handler is None:
            raise method_not_found(method)
        if methods is None:
            raise rpc_error(INVALID_REQUEST, f"call initialize before {method}")
        self._is_used = True
        return _with_rpc_errors(handler(params))

    @property
    def link(self) -> ClientLink:
        assert self._link is not None, "attach() is called before the first message is read"
        return self._link

    def _initialize(self, params: Json) -> Awaitable[Any]:
        version = _chosen_version(params)
        if self._methods is not None:
            self._check_repeated(version)
        link = self.link
        if version > PROTOCOL_VERSION:
            link.facts = facts_v2(params)
        else:
            info = checks.optional_object(params, "clientInfo")
            link.facts = ClientFacts(info, checks.optional_object(params, "clientCapabilities"))
        link.version = version
        if self._methods is None:
            make = AgentMethodsV2 if version > PROTOCOL_VERSION else AgentMethodsV1
            self._methods = make(self._sessions, link)
        return _answered(self._methods.introduce())

    def _check_repeated(self, version: int) -> None:
        """Refuse to change the version of a connection, or to begin one of ACP 2 again."""
        if version != self.link.version:
            message = f"this connection speaks version {self.link.version}; open another one"
            raise rpc_error(INVALID_REQUEST, message)
        if version > PROTOCOL_VERSION and self._is_used:
            raise rpc_error(INVALID_REQUEST, "initialize must come before any other request")


def _chosen_version(params: Json) -> int:
    """Return 2 for a client of ACP 2, which always says who it is in `info`; 1 for any other.

    Clients of ACP 1 ask for other numbers, too, and expect 1.
    """
    requested = checks.protocol_version(params)
    is_newer = requested >= NEWEST and isinstance(params.get("info"), dict)
    return NEWEST if is_newer else PROTOCOL_VERSION


async def _answered(result: Any) -> Any:
    return result


async def _with_rpc_errors(handling: Awaitable[Any]) -> Any:
    """Await a handler; convert its exceptions to errors for the client."""
    try:
        return await handling
    except RpcError:
        raise
    except Exception as error:
        raise to_rpc_error(error) from error


class AcpService(Protocol):
    """What a transport serves: an agent, or a hub that acts as one."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold open what all clients share."""
        ...

    def serve_client(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AbstractAsyncContextManager[Connection]:
        """Serve one client until the body ends."""
        ...


class AgentServer:
    """One agent with its sessions, shared by all its clients."""

    def __init__(
        self,
        agent: Agent | Prompt,
        *,
        store: SessionStore | None = None,
        initial_message: str | None = None,
    ) -> None:
        """Serve `agent`; with a `store`, its sessions are stored and can be listed and loaded.

        Raises:
            AgentError: if it is not an agent.
        """
        self.sessions = AgentSessions(inspect_agent(agent), store, initial_message)
        self._agent: object = agent

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the agent if it is an async context manager, as the built-in one is."""
        if isinstance(self._agent, AbstractAsyncContextManager):
            async with self._agent:
                yield
        else:
            yield

    @asynccontextmanager
    async def serve_client(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Serve one client until the body ends; then cancel its turns and close its sessions."""
        client = AgentConnection(self.sessions)
        try:
            async with open_connection(
                transport,
                on_notification=client.on_notification,
                on_request=client.on_request,
                options=options,
            ) as connection:
                client.attach(connection, max_sessions)
                try:
                    yield connection
                finally:
                    await self._close_sessions(client.link)
        finally:
            await self._close_sessions(client.link)  # sessions that were still being opened above

    async def _close_sessions(self, link: ClientLink) -> None:
        # Every wait inside is bounded, so the shield cannot hang.
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS) as scope:
            await self.sessions.close_all(link)
        if scope.cancelled_caught:
            logger.warning("closing the sessions of a client took too long; some were not closed")

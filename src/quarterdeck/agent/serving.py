"""An agent with its sessions, and the conversations that clients have with it.

One server has one agent and any number of conversations, each over a connection of its own: one on
stdio, one for each client on HTTP. A session belongs to the conversation that opened it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Protocol

import anyio

from quarterdeck.agent.conversation import Conversation
from quarterdeck.agent.definition import Agent, Prompt, define
from quarterdeck.agent.opening import Sessions
from quarterdeck.agent.session import Link
from quarterdeck.agent.store import SessionStore
from quarterdeck.wire import ByteTransport, Connection, ConnectionOptions, open_connection

CLOSE_SECONDS: Final = 10.0
"""How long all sessions of a client together may take to be closed."""

logger = logging.getLogger(__name__)


class Serving(Protocol):
    """What a transport needs: somebody who converses with a client."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep open what all clients share."""
        ...

    def converse(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AbstractAsyncContextManager[Connection]:
        """Serve one client until the body ends."""
        ...


class AgentServer:
    """What is shared by all clients of one agent."""

    def __init__(
        self,
        agent: Agent | Prompt,
        *,
        store: SessionStore | None = None,
        initial_message: str | None = None,
    ) -> None:
        """Serve `agent`; with a `store`, its sessions are kept and can be listed and loaded.

        Raises:
            AgentError: if it is no agent.
        """
        self.sessions = Sessions(define(agent), store, initial_message)
        self._agent: object = agent

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep an agent open that is an async context manager; the built-in one is."""
        if isinstance(self._agent, AbstractAsyncContextManager):
            async with self._agent:
                yield
        else:
            yield

    @asynccontextmanager
    async def converse(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Serve one client until the body ends; its turns are cancelled and its sessions closed."""
        conversation = Conversation(self.sessions)
        try:
            async with open_connection(
                transport,
                on_notification=conversation.on_notification,
                on_request=conversation.on_request,
                options=options,
            ) as connection:
                conversation.attach(connection, max_sessions)
                try:
                    yield connection
                finally:
                    await self._leave(conversation.link)
        finally:
            await self._leave(conversation.link)  # what was being opened until just now

    async def _leave(self, link: Link) -> None:
        # Every wait inside is bounded, so the shield cannot hang.
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS) as scope:
            await self.sessions.close_all(link)
        if scope.cancelled_caught:
            logger.warning("sessions were left without being closed: that took too long")

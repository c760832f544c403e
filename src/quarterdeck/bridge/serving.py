"""The hub as a server of ACP: a conversation for each client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quarterdeck.bridge.conversation import Conversation
from quarterdeck.bridge.editor import Editor
from quarterdeck.server.device import Device
from quarterdeck.server.hub import Hub
from quarterdeck.wire import (
    ByteTransport,
    Connection,
    ConnectionOptions,
    background_tasks,
    open_connection,
)


class BridgeServer:
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
    async def converse(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Serve one client until the body ends; its sessions go on in the hub."""
        conversation = Conversation(self._agent, max_sessions)
        async with (
            background_tasks() as tasks,
            open_connection(
                transport,
                on_notification=conversation.on_notification,
                on_request=conversation.on_request,
                options=options,
            ) as connection,
        ):
            conversation.attach(Editor(self._hub, self._device, connection, tasks))
            try:
                yield connection
            finally:
                conversation.leave()

"""Who comes in: by a token in the head of the request, or by an `auth` frame soon after it."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

import anyio
from msgspec import UNSET
from starlette.types import Receive, Send

from quarterdeck.adapters import AcpAdapter
from quarterdeck.dialects.context import ACPCapabilities
from quarterdeck.errors import QuarterdeckError
from quarterdeck.host import AgentDefinition
from quarterdeck.server.device import Device
from quarterdeck.server.streams.context_frames import (
    MACHINE_ID,
    Auth,
    Ping,
    read_message,
    write_message,
)
from quarterdeck.server.streams.needs import StreamSources

AUTH_SECONDS: Final = 10.0
MOST_STRANGERS: Final = 16  # connections that have not said who they are
_UNKNOWN: Final = "this token is not known here, or not any more; pair again"
_REVOKED: Final = 4401
_REVOKED_REASON: Final = "this device was revoked or has expired; pair it again"


class Greeter:
    """Asks strangers for a token, and tells who was let in where they are."""

    REFUSED: ClassVar[int] = 4002

    def __init__(self, sources: StreamSources) -> None:
        self._host = sources.host
        self._devices = sources.devices
        self._strangers = 0

    async def device_of(self, token: str) -> Device | None:
        return None if self._devices is None else await self._devices.authenticate(token)

    async def serve_stranger(
        self, receive: Receive, send: Send, serve: Callable[[Device], Awaitable[None]]
    ) -> None:
        """Serve whoever shows a token within ten seconds, until its device is revoked."""
        if self._strangers >= MOST_STRANGERS:
            await self._refuse(send, "too many connections wait for their auth; try later")
            return
        self._strangers += 1
        try:
            with anyio.move_on_after(AUTH_SECONDS) as waiting:
                device = await self._admitted(receive, send)
        finally:
            self._strangers -= 1
        if waiting.cancelled_caught:
            await self._refuse(send, f"say auth within {AUTH_SECONDS:.0f} seconds")
        elif device is not None and self._devices is not None:
            with self._devices.connection(device) as connection, connection.scope:
                await serve(device)
            if connection.scope.cancelled_caught:
                await _close(
                    send, _REVOKED, "this device was revoked or has expired; pair it again"
                )

    async def _admitted(self, receive: Receive, send: Send) -> Device | None:
        while True:
            event = await receive()
            if event["type"] != "websocket.receive":
                return None
            text = event.get("text")
            try:
                message = read_message(event["bytes"] if text is None else text)
            except QuarterdeckError as error:
                await _say(send, write_message("error", message=str(error), code="INVALID_MESSAGE"))
                continue
            if isinstance(message, Auth):
                device = await self.device_of(message.token)
                if device is None:
                    await self._refuse(send, _UNKNOWN)
                return device
            if isinstance(message, Ping):
                await _say(send, write_message("pong"))
            else:
                why = "say auth with a token first"
                await _say(send, write_message("error", message=why, code="NOT_AUTHENTICATED"))

    async def _refuse(self, send: Send, reason: str) -> None:
        await _say(send, write_message("auth_error", message=reason))
        await _close(send, self.REFUSED, reason)

    def success(self) -> str:
        """Return the frame that lets a client in."""
        return write_message(
            "auth_success",
            machineName=socket.gethostname(),
            machineId=MACHINE_ID,
            capabilities=self._capabilities(),
        )

    def _capabilities(self) -> list[ACPCapabilities]:
        """Return what the agents of the sessions can do."""
        agents: dict[str, str | None] = {}
        for session in self._host.get_sessions():
            if session.agent_definition_id is not UNSET:
                agent_id = None if session.agent_id is UNSET else session.agent_id
                agents[session.agent_definition_id] = agent_id
        return [
            AcpAdapter(self._host, AgentDefinition(name, "-"), agent_id=agent_id).get_capabilities()
            for name, agent_id in agents.items()
        ]


async def _say(send: Send, text: str) -> None:
    await send({"type": "websocket.send", "text": text})


async def _close(send: Send, code: int, reason: str) -> None:
    with anyio.move_on_after(1, shield=True):
        try:
            await send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            return  # it has gone by itself

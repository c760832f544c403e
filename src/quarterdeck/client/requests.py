"""Pending requests of agents to people, and their answers: permission requests and elicitations.

A client gets them in two ways: as inbound requests, which include those that were pending before it
connected, and as events of the host, which also report their end. A request that arrives in both
ways has one id and is one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import UNSET

from quarterdeck.client.connection import ClientConnection, OnChange, Unsubscribe
from quarterdeck.client.mirror import Mirror
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, HostElicitationSnapshot, HostPermissionSnapshot

S = TypeVar("S")


class PendingRequests(Generic[S]):
    """The pending requests of one kind."""

    def __init__(self, link: ClientConnection, read: Callable[[str, Mapping[str, Any]], S]) -> None:
        self.mirror: Mirror[S] = Mirror()
        self._link = link
        self._read = read
        self._answered: set[str] = set()  # by this client; the host's event has not arrived yet

    @property
    def pending(self) -> tuple[S, ...]:
        """The pending requests, oldest first."""
        return self.mirror.all()

    def get(self, request_id: str) -> S | None:
        return self.mirror.get(request_id)

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        """Call `subscriber` after each change of `pending`."""
        return self.mirror.subscribe(subscriber)

    async def respond(self, request_id: str, answer: Mapping[str, Any]) -> None:
        """Answer a request.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending any more.
        """
        try:
            await self._link.respond(request_id, dict(answer))
        except AcpError as error:
            if error.code == ERROR_CODES["already_answered"]:
                self._forget(request_id)
            raise
        self._forget(request_id)

    def apply_snapshot(self, payload: Mapping[str, Any]) -> None:
        """Apply a snapshot of a request, from an event or an inbound request."""
        request_id = str(payload.get("requestId"))
        if payload.get("status") != "pending":
            self._answered.discard(request_id)
            self.mirror.remove(request_id)
        elif request_id not in self._answered:
            self.mirror.put(request_id, self._read(request_id, payload))

    def clear(self) -> None:
        self._answered.clear()
        self.mirror.clear()

    def _forget(self, request_id: str) -> None:
        if self.mirror.get(request_id) is not None:
            self._answered.add(request_id)
            self.mirror.remove(request_id)


class Permissions(PendingRequests[HostPermissionSnapshot]):
    """The pending permission requests of a host.

    An answer is `{"outcome": "selected", "optionId": …}` or `{"outcome": "cancelled"}`.
    """

    def __init__(self, link: ClientConnection) -> None:
        super().__init__(link, _permission_snapshot)


def _permission_snapshot(request_id: str, payload: Mapping[str, Any]) -> HostPermissionSnapshot:
    """Read without validation: a malformed request must still reach a person."""
    tool_call: Any = payload.get("toolCall") or {"toolCallId": request_id}
    return HostPermissionSnapshot(
        request_id=request_id,
        session_id=str(payload.get("sessionId")),
        agent_id=payload.get("agentId", UNSET),
        status="pending",
        tool_call=tool_call,
        options=tuple(payload.get("options") or ()),
    )


class Elicitations(PendingRequests[HostElicitationSnapshot]):
    """The pending elicitations of a host.

    An answer is `{"action": "accept", "content": …}`, `{"action": "decline"}` or
    `{"action": "cancel"}`.
    """

    def __init__(self, link: ClientConnection) -> None:
        super().__init__(link, _elicitation_snapshot)


def _elicitation_snapshot(request_id: str, payload: Mapping[str, Any]) -> HostElicitationSnapshot:
    """Read without validation: a malformed request must still reach a person."""
    request = payload.get("request")
    return HostElicitationSnapshot(
        request_id=request_id,
        session_id=payload.get("sessionId", UNSET),
        agent_id=payload.get("agentId", UNSET),
        status="pending",
        request=request if isinstance(request, dict) else {},
        completed=payload.get("completed", UNSET),
    )

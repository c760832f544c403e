"""Questions of agents that wait for a person, as a client sees and answers them.

They come two ways: as inbound requests, also those that were pending before we came, and as events
of the host, which also tell their end. The first way makes a late client complete, the second keeps
it right; a question that came both ways is one question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from quarterdeck.client.link import Link
from quarterdeck.client.listeners import Listener, Unsubscribe
from quarterdeck.client.mirror import Mirror
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, HostPermissionSnapshot


class Permissions:
    """The pending permission requests of a host."""

    def __init__(self, link: Link) -> None:
        self.mirror: Mirror[HostPermissionSnapshot] = Mirror()
        self._link = link
        self._answered: set[str] = set()  # by us; the host's event has not come yet

    @property
    def pending(self) -> tuple[HostPermissionSnapshot, ...]:
        """What waits for an answer, the oldest first."""
        return self.mirror.all()

    def get(self, request_id: str) -> HostPermissionSnapshot | None:
        return self.mirror.get(request_id)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` after each change of `pending`."""
        return self.mirror.subscribe(listener)

    async def respond(self, request_id: str, outcome: Mapping[str, Any]) -> None:
        """Answer with `{"outcome": "selected", "optionId": …}` or `{"outcome": "cancelled"}`.

        Raises:
            AcpError: `acpjs/already-answered` if somebody was faster.
        """
        try:
            await self._link.respond(request_id, dict(outcome))
        except AcpError as error:
            if error.code == ERROR_CODES["already_answered"]:
                self._forget(request_id)
            raise
        self._forget(request_id)

    def tell(self, payload: Mapping[str, Any]) -> None:
        """Take in a `HostPermissionSnapshot`, from an event or an inbound request."""
        request_id = str(payload.get("requestId"))
        if payload.get("status") != "pending":
            self._answered.discard(request_id)
            self.mirror.remove(request_id)
        elif request_id not in self._answered:
            self.mirror.put(request_id, _snapshot(request_id, payload))

    def clear(self) -> None:
        self._answered.clear()
        self.mirror.clear()

    def _forget(self, request_id: str) -> None:
        if self.mirror.get(request_id) is not None:
            self._answered.add(request_id)
            self.mirror.remove(request_id)


def _snapshot(request_id: str, payload: Mapping[str, Any]) -> HostPermissionSnapshot:
    """Read without checking: an odd question must still reach a person."""
    tool_call: Any = payload.get("toolCall") or {"toolCallId": request_id}
    return HostPermissionSnapshot(
        request_id=request_id,
        session_id=str(payload.get("sessionId")),
        agent_id=payload.get("agentId", UNSET),
        status="pending",
        tool_call=tool_call,
        options=tuple(payload.get("options") or ()),
    )

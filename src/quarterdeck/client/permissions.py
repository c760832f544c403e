"""Permission requests of agents, as a client sees and answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from quarterdeck.client.link import Link
from quarterdeck.client.questions import Questions
from quarterdeck.protocol import HostPermissionSnapshot


class Permissions(Questions[HostPermissionSnapshot]):
    """The pending permission requests of a host.

    An answer is `{"outcome": "selected", "optionId": …}` or `{"outcome": "cancelled"}`.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link, _permission_snapshot)


def _permission_snapshot(request_id: str, payload: Mapping[str, Any]) -> HostPermissionSnapshot:
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

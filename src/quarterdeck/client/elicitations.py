"""What agents ask people beside permission, as a client sees and answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from quarterdeck.client.link import Link
from quarterdeck.client.questions import Questions
from quarterdeck.protocol import HostElicitationSnapshot


class Elicitations(Questions[HostElicitationSnapshot]):
    """The pending questions of agents to people.

    An answer is `{"action": "accept", "content": …}`, `{"action": "decline"}` or
    `{"action": "cancel"}`.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link, _elicitation_snapshot)


def _elicitation_snapshot(request_id: str, payload: Mapping[str, Any]) -> HostElicitationSnapshot:
    """Read without checking: an odd question must still reach a person."""
    request = payload.get("request")
    return HostElicitationSnapshot(
        request_id=request_id,
        session_id=payload.get("sessionId", UNSET),
        agent_id=payload.get("agentId", UNSET),
        status="pending",
        request=request if isinstance(request, dict) else {},
        completed=payload.get("completed", UNSET),
    )

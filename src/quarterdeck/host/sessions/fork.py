"""The history of a session that another one is forked from.

An agent that forks a session does not send its history again, and repeats its ids in the fork. So
the log of the fork begins with a copy of the source's, each event marked with where it is from.
Requests and their decisions are not copied: they were made in the source. Keys of prompts are not
copied either: a key names one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import ELICITATION_UPDATED, Normalized, decode_event

_PAGE: Final = 1_000
_COPIED: Final = frozenset(
    {
        *("user-message-chunk", "agent-message-chunk", "agent-thought-chunk", "message-update"),
        *("tool-call", "tool-call-update", "tool-call-content-chunk"),
        *("terminal-output", "terminal-update", "plan", "plan-update", "plan-removed"),
        *("prompt-finished", "available-commands-update", "unrecognized-update"),
    }
)


@dataclass(frozen=True)
class Fork:
    """Where a session is forked from."""

    source_id: str
    seq: int
    """The newest event of the source that the fork has."""
    history: tuple[Normalized, ...]

    def origin(self) -> dict[str, Any]:
        return {"sessionId": self.source_id, "seq": self.seq}

    def start(self, emitter: Emitter, session: HostSession) -> None:
        """Queue the history for the log of the fork."""
        session.is_whole, session.forked_from = False, self.origin()
        for event in self.history:
            session.tool_calls.learn(event)
            emitter.enqueue(session, event)
        session.tool_calls.next_turn()


async def fork_of(emitter: Emitter, session: HostSession) -> Fork:
    """Read the history of a session, since it was loaded last."""
    await emitter.journal.wait_stored()
    until, after = session.stream.published, 0
    history: list[Normalized] = []
    while after < until and (page := await emitter.read(session.id, after, _PAGE)):
        for data in page:
            event = decode_event(data)
            after = event.seq
            if after > until:
                break
            if event.type == "session-reset":
                history.clear()
            elif event.type in _COPIED and not _is_request(event.type, event.payload):
                history.append(_copied(session.id, event))
    return Fork(session.id, until, tuple(history))


def _is_request(kind: str, payload: Any) -> bool:
    return kind == "unrecognized-update" and payload.get("sessionUpdate") == ELICITATION_UPDATED


def _copied(session_id: str, event: Any) -> Normalized:
    extensions = {**(event.extensions or {}), **mark("copied from the session that was forked")}
    extensions["quarterdeck"]["forkedFrom"] = {"sessionId": session_id, "seq": event.seq}
    return Normalized(event.type, event.payload, extensions)

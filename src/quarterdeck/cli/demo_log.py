"""The log of one session: what happens becomes a numbered event and changes the state.

The stand-in for a host, as small as it can be: no storage, no subscribers. Pure; the caller passes
the time in. What `normalize_session_update` makes of an agent's update, the functions below make of
everything else that happens to a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.protocol import (
    Event,
    Normalized,
    SessionState,
    SessionStatus,
    initial_state,
    make_session_event,
    normalize_session_update,
    reduce,
)


class Log:
    """Numbers the facts of one session from 1, without a gap, and folds them."""

    def __init__(self, session_id: str) -> None:
        self.state: SessionState = initial_state(session_id)
        self.last_seq = 0

    def enter(self, fact: Normalized, *, ts: float) -> Event:
        """Give a fact the next number; `ts` is in milliseconds."""
        self.last_seq += 1
        event = make_session_event(
            fact.type,
            self.state.session_id,
            seq=self.last_seq,
            ts=ts,
            payload=fact.payload,
            extensions=fact.extensions,
        )
        self.state = reduce(self.state, event)
        return event


def update_sent(update: object) -> Normalized:
    """Return what an agent's update says, whatever it is."""
    if isinstance(update, Mapping):
        return normalize_session_update(update)
    return Normalized("unrecognized-update", {"update": update})


def session_opened(answer: Mapping[str, Any]) -> list[Normalized]:
    """Return what the answer to `session/new` says."""
    known = ("modes", "configOptions")
    config = {key: answer[key] for key in known if answer.get(key) is not None}
    return [Normalized("session-config-init", config), status_changed("active")]


def status_changed(status: SessionStatus) -> Normalized:
    return Normalized("session-status-change", {"status": status})


def prompt_sent(blocks: Sequence[Mapping[str, Any]], *, message_id: str) -> list[Normalized]:
    """Return a chunk for each block of a prompt, marked as recorded here: no agent sent it."""
    mark = {"quarterdeck": {"source": "prompt"}}
    chunks = [
        Normalized("user-message-chunk", {"content": dict(block), "messageId": message_id}, mark)
        for block in blocks
    ]
    return [status_changed("prompting"), *chunks]


def prompt_answered(result: Mapping[str, Any]) -> list[Normalized]:
    known = ("stopReason", "usage")
    payload = {key: result[key] for key in known if result.get(key) is not None}
    return [Normalized("prompt-finished", payload), status_changed("active")]


def prompt_failed(code: int, message: str, data: Any) -> list[Normalized]:
    """Return what an error says; the stop reason is a placeholder, as acpjs documents it."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    payload = {"stopReason": "end_turn", "error": error}
    return [Normalized("prompt-finished", payload), status_changed("active")]


def permission_asked(request_id: str, params: Mapping[str, Any]) -> Normalized:
    payload = {
        "requestId": request_id,
        "toolCall": params["toolCall"],
        "options": params["options"],
    }
    return Normalized("permission-request-created", payload)


def permission_answered(request_id: str, outcome: Mapping[str, Any]) -> Normalized:
    payload = {"requestId": request_id, "status": "answered", "outcome": dict(outcome)}
    return Normalized("permission-request-resolved", payload)


def permission_superseded(request_id: str) -> Normalized:
    payload = {"requestId": request_id, "status": "superseded"}
    return Normalized("permission-request-resolved", payload)

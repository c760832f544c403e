"""Shared by the tests of this view: a log with a line per event, and its projection."""

from __future__ import annotations

from typing import Any

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    Event,
    make_session_event,
    normalize_session_update,
)
from quarterdeck.views.context import ContextEvent, ContextProjector

SESSION = {"sessionId": "s", "cwd": "/p", "agentDefinitionId": "claude"}
START = 1_700_000_000_000
OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]


class Log:
    """A session's log; every event comes 10 ms after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, payload: dict[str, Any], more: dict[str, Any] | None = None) -> Log:
        seq = len(self.events) + 1
        ts = START + 10 * seq
        self.events.append(
            make_session_event(kind, "s", seq=seq, ts=ts, payload=payload, extensions=more)
        )
        return self

    def status(self, status: str, **more: Any) -> Log:
        return self.add("session-status-change", {"status": status, **more})

    def started(self, **config: Any) -> Log:
        return self.add("session-config-init", config).status("active")

    def prompted(self, text: str = "go") -> Log:
        self.status("prompting")
        block = {"type": "text", "text": text}
        payload = {"content": block, "messageId": f"quarterdeck-prompt-{len(self.events) + 1}"}
        return self.add("user-message-chunk", payload, {"quarterdeck": {"added": "the prompt"}})

    def say(self, text: str, message_id: str | None = None, kind: str = "agent-message") -> Log:
        payload: dict[str, Any] = {"content": {"type": "text", "text": text}}
        if message_id is not None:
            payload["messageId"] = message_id
        return self.add(f"{kind}-chunk", payload)

    def think(self, text: str, message_id: str | None = None) -> Log:
        return self.say(text, message_id, "agent-thought")

    def update(self, variant: str, **fields: Any) -> Log:
        update = normalize_session_update({"sessionUpdate": variant, **fields})
        return self.add(update.type, update.payload, update.extensions)

    def ask(self, call: dict[str, Any], request_id: str = "perm-1") -> Log:
        payload = {"requestId": request_id, "toolCall": call, "options": OPTIONS}
        return self.add("permission-request-created", payload)

    def answer(self, option_id: str, request_id: str = "perm-1", **more: Any) -> Log:
        outcome = {"outcome": "selected", "optionId": option_id, **more}
        payload = {"requestId": request_id, "status": "answered", "outcome": outcome}
        return self.add("permission-request-resolved", payload)

    def form(self, request: dict[str, Any], status: str = "pending", **more: Any) -> Log:
        payload = {"requestId": "elic-1", "sessionId": "s", "status": status, "request": request}
        update = {"sessionUpdate": ELICITATION_UPDATED, **payload, **more}
        mark = {"quarterdeck": {"added": "the agent asked a person"}}
        return self.add("unrecognized-update", update, mark)

    def finished(self, reason: str = "end_turn", **more: Any) -> Log:
        return self.add("prompt-finished", {"stopReason": reason, **more}).status("active")

    def emitted(self, **options: Any) -> list[ContextEvent]:
        projector = ContextProjector(SESSION, **options)
        return [emitted for event in self.events for emitted in projector.feed(event)]

    def types(self) -> list[str]:
        return [event.type for event in self.emitted()]


def only(events: list[ContextEvent], kind: str) -> Any:
    """Return the one event of a type."""
    (found,) = [event for event in events if event.type == kind]
    return found


def every(events: list[ContextEvent], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def statuses(events: list[ContextEvent]) -> list[tuple[str, str]]:
    return [(event.from_, event.to) for event in every(events, "session:status_changed")]


def edit_diff(path: str = "/p/a.py", old: str | None = "x\n", new: str = "y\n") -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}

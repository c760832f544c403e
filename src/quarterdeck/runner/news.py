"""News of a runner: what its subscribers get to know of the host's stream.

A subscriber is called on the loop, in the order of the events, and must not block. One that fails
is logged and does not keep the others from being called.
"""

from __future__ import annotations

import logging
from typing import Any, Final, assert_never

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentRemovedEvent,
    AgentUpdatedEvent,
    DiagnosticEvent,
    Event,
    InstallProgressEvent,
    PermissionUpdatedEvent,
    SessionEvent,
    SessionUpdatedEvent,
    UnknownEvent,
    any_event,
)
from quarterdeck.runner.api import (
    AgentRemoved,
    AgentUpdated,
    Diagnostic,
    HealthChanged,
    News,
    OnNews,
    RequestUpdated,
    SessionUpdated,
    Unsubscribe,
)
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

_LOG_FAILED: Final = "storage/write-failed"


class NewsSubscribers:
    """Reports news to all who subscribed, and counts what the log could not store."""

    def __init__(self) -> None:
        self._subscribers: dict[object, OnNews] = {}
        self.storage_failures = 0

    def subscribe(self, on_news: OnNews) -> Unsubscribe:
        key = object()
        self._subscribers[key] = on_news
        return lambda: self._subscribers.pop(key, None) and None

    def report(self, news: News) -> None:
        for on_news in tuple(self._subscribers.values()):
            try:
                on_news(news)
            except foreign_errors():
                logger.exception("a subscriber of news failed")

    def on_event(self, event: Event, *, is_healthy: bool) -> None:
        """Report what an event of the host's stream is news of, if anything."""
        payload: Any = event.payload
        known = any_event(event)
        match known:
            case AgentUpdatedEvent():
                self.report(AgentUpdated(agent_id=payload["agentId"], status=payload["status"]))
            case AgentRemovedEvent():
                self.report(AgentRemoved(agent_id=payload["agentId"]))
            case SessionUpdatedEvent():
                session_id, status = payload["sessionId"], payload["status"]
                self.report(SessionUpdated(session_id=session_id, status=status))
            case PermissionUpdatedEvent():
                self.report(RequestUpdated.of("permission", payload))
            case DiagnosticEvent():
                self._on_diagnostic(payload, is_healthy=is_healthy)
            case UnknownEvent():
                if known.type == ELICITATION_UPDATED:
                    self.report(RequestUpdated.of("elicitation", payload))
            case InstallProgressEvent() | SessionEvent():
                pass  # no news
            case _:
                assert_never(known)

    def _on_diagnostic(self, payload: Any, *, is_healthy: bool) -> None:
        self.report(
            Diagnostic(
                level=payload["level"],
                code=payload["code"],
                message=payload["message"],
                session_id=payload.get("sessionId"),
            )
        )
        if payload["code"] == _LOG_FAILED:
            self.storage_failures += 1
            failures = self.storage_failures
            self.report(HealthChanged(is_healthy=is_healthy, storage_failures=failures))

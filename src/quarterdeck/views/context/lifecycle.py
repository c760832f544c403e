"""How a session and its turns begin and end, and the one status that follows from it.

The status is never stored as such: `_current_status` derives it from a few flags and from what is
open (`projector` has the table), and `update_status` emits an event only if it differs from the
last one. When a turn, an agent or a session ends, `close_all` ends every message, call and request
that is still open, so that no consumer waits for an end that never comes.
"""

from __future__ import annotations

from typing import Any, assert_never

from quarterdeck.policy import text_of
from quarterdeck.protocol import is_session_status
from quarterdeck.views.context.call_state import objects
from quarterdeck.views.context.contract import SessionFacts
from quarterdeck.views.context.events import (
    NotificationEvent,
    SessionCompletedEvent,
    SessionErrorEvent,
    SessionPausedEvent,
    SessionResumedEvent,
    SessionStartedEvent,
    SessionStatusChangedEvent,
)
from quarterdeck.views.context.messages import Messages
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.requests import ApprovalProjector, ElicitationProjector
from quarterdeck.views.context.session_settings import SettingsProjector
from quarterdeck.views.context.tool_calls import ToolCallProjector
from quarterdeck.views.context.types import ACPError, SessionStatus, SessionSummary
from quarterdeck.views.context.usage import Resources

AUTH_REQUIRED = -32000  # of the Agent Client Protocol


class Lifecycle:
    """The status of a session, and the events at its beginning and end."""

    def __init__(  # noqa: PLR0913 - it closes everything that can be open
        self,
        numbering: EventNumbering,
        facts: SessionFacts,
        messages: Messages,
        calls: ToolCallProjector,
        approvals: ApprovalProjector,
        questions: ElicitationProjector,
        settings: SettingsProjector,
        resources: Resources,
    ) -> None:
        self._numbering = numbering
        self._facts = facts
        self._messages = messages
        self._calls = calls
        self._approvals = approvals
        self._questions = questions
        self._settings = settings
        self._resources = resources
        self._status: SessionStatus = "starting"
        self._is_known = False
        self._is_ready = False
        self._is_running = False
        self._is_gone = False
        self._is_failed = False
        self._is_ended = False
        self._began_at: float | None = None
        self._errors = 0

    # ---- status --------------------------------------------------------------------------------

    def update_status(self, reason: str) -> None:
        """Emit the status if it has changed."""
        if not self._numbering.is_replay and (status := self._current_status()) != self._status:
            self._become(status, reason)

    def _become(self, status: SessionStatus, reason: str) -> None:
        before, self._status = self._status, status
        self._numbering.emit(SessionStatusChangedEvent, from_=before, to=status, reason=reason)

    def _current_status(self) -> SessionStatus:
        if self._is_ended:
            return "completed"
        if self._is_gone:
            return "error" if self._is_failed else "paused"
        if not self._is_ready:
            return "starting"
        if self._approvals.is_waiting:
            return "waiting_for_approval"
        if self._questions.waiting:
            return "waiting_for_input"
        if not self._is_running:
            return "idle"
        if self._calls.awaiting_answer:
            return "waiting_for_input"
        return "thinking" if self._messages.is_thinking else "running"

    # ---- sessions ------------------------------------------------------------------------------

    def status_change(self, payload: dict[str, Any]) -> None:
        """Apply a status of the log."""
        if self._began_at is None:
            self._began_at = self._numbering.ts
        status = payload.get("status")
        if not is_session_status(status):
            return
        match status:
            case "active":
                self._active(is_resumed=payload.get("resumed") is True)
            case "prompting":
                self._prompting()
            case "disconnected":
                self._disconnected()
            case "resuming":
                self._is_ready = self._is_gone = False
                self.update_status("the session is being resumed")
            case "closed" | "deleted":
                self._closed(f"the session was {status}")
            case "creating":
                pass  # `starting` is the first status anyway
            case _:
                assert_never(status)

    def _active(self, *, is_resumed: bool) -> None:
        if self._numbering.is_replay:
            self.close_all("the history ends here")
            self._numbering.is_replay = False
            self._settings.emit_environment()
        elif is_resumed:
            self._is_known = True
            self._numbering.emit(SessionResumedEvent, previous_session_id=self._facts.session_id)
            self._settings.emit_environment()
        elif self._is_running:
            self.close_all("the turn was left")
        self._is_ready, self._is_gone, self._is_ended = True, False, False
        self._start()
        self.update_status("the session is ready")

    def _start(self) -> None:
        """Emit the start of the session, once, unless it was resumed."""
        if self._is_known:
            return
        self._is_known = True
        facts, model = self._facts, self._settings.model
        self._numbering.emit(
            SessionStartedEvent,
            agent=self._settings.agent.name,
            project_path=facts.cwd,
            project_name=facts.project_name,
            working_directory=facts.cwd,
            model=None if model is None else model.id,
            environment=self._settings.environment(),
        )
        self._settings.emit_environment()

    def reset(self) -> None:
        """Start over: the agent sends its history again."""
        self._is_known, self._is_ended = True, False
        self._errors = 0

    def learn_model(self) -> None:
        model = self._settings.model
        self._messages.model = None if model is None else model.id

    def _disconnected(self) -> None:
        was_gone, was_ready, was_running = self._is_gone, self._is_ready, self._is_running
        self.close_all("the agent is gone")
        self._is_gone = True
        if was_gone:
            return
        self._is_failed = was_running or not was_ready
        reason = "the agent ended; resume the session to go on"
        if not self._is_failed:
            self._numbering.emit(SessionPausedEvent, reason=reason)
        elif was_ready:
            self._error(ACPError(code="AGENT_EXITED", message=reason, recoverable=True))
        else:
            reason = "the session could not be resumed; try to load it"
            self._error(ACPError(code="RESUME_ERROR", message=reason, recoverable=True))
        self.update_status(reason)

    def _closed(self, reason: str) -> None:
        self.close_all(reason)
        if self._is_ended:
            return
        self._is_ended, self._is_gone = True, False
        self.update_status(reason)
        self._numbering.emit(SessionCompletedEvent, summary=self._summary())

    def _summary(self) -> SessionSummary:
        began_at = self._numbering.ts if self._began_at is None else self._began_at
        return SessionSummary(
            files_changed=self._calls.effects.files(),
            token_usage=self._resources.tokens,
            tokens_known=self._resources.knows_tokens,
            cost=self._resources.cost,
            duration=max(0.0, float(self._numbering.ts - began_at)),
            tool_calls_count=self._calls.count,
            messages_count=self._messages.count,
            error_count=self._errors + self._calls.errors,
        )

    # ---- turns ---------------------------------------------------------------------------------

    def _prompting(self) -> None:
        self._is_ready, self._is_gone = True, False
        self._start()
        self._messages.end()
        self._calls.next_turn()
        self._is_running = True
        self.update_status("a prompt was sent")

    def turn_ended(self, payload: dict[str, Any], meta: Any) -> None:
        """Apply the end of a turn."""
        given = payload.get("stopReason")
        reason = given if isinstance(given, str) else "end_turn"
        self._messages.end(reason)
        self._calls.end_all(is_cancelled=reason == "cancelled")
        self._calls.next_turn()
        self._resources.turn_usage(payload.get("usage"), meta)
        self._is_running = False
        error = payload.get("error")
        if isinstance(error, dict):
            self._prompt_failed(error)
        self.update_status(f"the turn ended: {reason}")

    def _prompt_failed(self, error: dict[str, Any]) -> None:
        number, text = error.get("code"), error.get("message")
        message = text if isinstance(text, str) else "the agent answered with an error"
        is_auth = number == AUTH_REQUIRED
        self._error(
            ACPError(
                code="AUTH_REQUIRED" if is_auth else f"RPC_{number}",
                message=message,
                recoverable=True,
                details=error.get("data"),
                agent_code=str(number),
            )
        )
        self._resources.error(error)
        if is_auth:
            self._numbering.emit(
                NotificationEvent,
                level="warning",
                title="Sign in to the agent",
                message=f"{message}; sign in with {_sign_in_methods(error.get('data'))}",
            )
        if not self._numbering.is_replay:
            self._become("error", message)

    def _error(self, error: ACPError) -> None:
        self._errors += 1
        self._numbering.emit(SessionErrorEvent, error=error)

    def close_all(self, reason: str) -> None:
        """End everything that is open."""
        self._messages.end()
        self._calls.end_all(is_cancelled=False)
        self._approvals.end_all(reason)
        self._questions.end_all(reason)
        self._is_running = False


def _sign_in_methods(data: Any) -> str:
    """Return the names of the ways to sign in, if the error lists them."""
    listed = objects(data.get("authMethods")) if isinstance(data, dict) else []
    names = [text_of(each, ("name", "id")) for each in listed]
    return " or ".join(name for name in names if name) or "one of the methods that the agent offers"

"""Questions of agents that wait for a person: each is answered or superseded, exactly once (INV-9).

A question is pending until `respond` or `supersede` takes it out of the table; both are plain
functions on the event loop's thread, so there is no moment in which two answers find it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from quarterdeck.errors import AcpError
from quarterdeck.host.emitter import Emitter
from quarterdeck.host.sessions import Session
from quarterdeck.protocol import ERROR_CODES

CANCELLED = {"outcome": "cancelled"}


class Pending:
    """One permission request that waits."""

    def __init__(self, request_id: str, session: Session, params: dict[str, Any]) -> None:
        self.id = request_id
        self.session = session
        self.agent_id = session.agent_id
        self.tool_call = params.get("toolCall")
        self.options = params.get("options")
        self._settled = anyio.Event()
        self._outcome: Any = CANCELLED

    def settle(self, outcome: Any) -> None:
        self._outcome = outcome
        self._settled.set()

    async def outcome(self) -> Any:
        """Wait for the answer that goes to the agent."""
        await self._settled.wait()
        return self._outcome

    def projection(self, status: str) -> dict[str, Any]:
        payload: dict[str, Any] = {"requestId": self.id, "sessionId": self.session.id}
        if self.agent_id is not None:
            payload["agentId"] = self.agent_id
        return {
            **payload,
            "status": status,
            "toolCall": self.tool_call,
            "options": self.options,
        }


class Permissions:
    """All requests of a host; ids are `perm-<n>` and never used twice."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._pending: dict[str, Pending] = {}
        self._last = 0

    def open(self, session: Session, params: dict[str, Any]) -> Pending:
        self._last += 1
        pending = Pending(f"perm-{self._last}", session, params)
        for added in session.tool_calls.announced_for(params.get("toolCall") or {}):
            self._emitter.update(session, added)
        payload = {
            "requestId": pending.id,
            "toolCall": pending.tool_call,
            "options": pending.options,
        }
        # Pending before it is told: whoever hears of it may answer at once.
        self._pending[pending.id] = pending
        with self._emitter.journal.together():
            self._emitter.session_event(session, "permission-request-created", payload)
            self._emitter.host_event("permission-updated", pending.projection("pending"))
        return pending

    def respond(self, request_id: str, outcome: dict[str, Any]) -> None:
        """Answer a request.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more), or
                `acpjs/config-invalid` if the outcome is none.
        """
        _check_outcome(outcome)
        pending = self._pending.pop(request_id, None)
        if pending is None:
            message = f"permission request {request_id} already answered"
            raise AcpError(ERROR_CODES["already_answered"], message)
        payload = {"requestId": request_id, "status": "answered", "outcome": outcome}
        projection = {**pending.projection("answered"), "outcome": outcome}
        with self._emitter.journal.together():
            self._emitter.session_event(pending.session, "permission-request-resolved", payload)
            self._emitter.host_event("permission-updated", projection)
        pending.settle(outcome)

    def supersede(self, concerns: Callable[[Pending], bool]) -> None:
        """Withdraw the requests that nobody needs to answer any more."""
        for pending in [each for each in self._pending.values() if concerns(each)]:
            del self._pending[pending.id]
            payload = {"requestId": pending.id, "status": "superseded"}
            with self._emitter.journal.together():
                session = pending.session
                self._emitter.session_event(session, "permission-request-resolved", payload)
                self._emitter.host_event("permission-updated", pending.projection("superseded"))
            pending.settle(CANCELLED)


def _check_outcome(outcome: Any) -> None:
    kind = outcome.get("outcome") if isinstance(outcome, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    if kind == "cancelled" or (kind == "selected" and isinstance(chosen, str)):
        return
    message = "an outcome is {outcome: 'cancelled'} or {outcome: 'selected', optionId: …}"
    raise AcpError(ERROR_CODES["config_invalid"], message)

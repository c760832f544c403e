"""Permission requests of agents (`session/request_permission`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET

from quarterdeck.errors import AcpError
from quarterdeck.host.emitter import Emitter
from quarterdeck.host.options import check_json
from quarterdeck.host.questions import Concerns, Question, Table
from quarterdeck.host.sessions import Session
from quarterdeck.protocol import ERROR_CODES, HostPermissionSnapshot


class PermissionRequest(Question):
    """One permission request."""

    superseded_answer: ClassVar = {"outcome": {"outcome": "cancelled"}}

    def __init__(self, request_id: str, session: Session, params: dict[str, Any]) -> None:
        super().__init__(request_id, session.agent_id, session)
        self.in_session = session
        self.tool_call = params.get("toolCall")
        self.options = params.get("options")
        self.outcome: dict[str, Any] | None = None

    def projection(self) -> dict[str, Any]:
        """Return the payload of `permission-updated`; what the agent sent is in it as it came."""
        payload: dict[str, Any] = {"requestId": self.id, "sessionId": self.in_session.id}
        if self.agent_id is not None:
            payload["agentId"] = self.agent_id
        payload |= {"status": self.status, "toolCall": self.tool_call, "options": self.options}
        if self.outcome is not None:
            payload["outcome"] = self.outcome
        return payload

    def snapshot(self) -> HostPermissionSnapshot:
        tool_call: Any = self.tool_call
        options = self.options if isinstance(self.options, list) else []
        outcome: Any = UNSET if self.outcome is None else self.outcome
        return HostPermissionSnapshot(
            request_id=self.id,
            session_id=self.in_session.id,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            status=self.status,
            tool_call=tool_call,
            options=tuple(options),
            outcome=outcome,
        )


class Permissions:
    """All requests of a host; ids are `perm-<n>` and never used twice."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._table: Table[PermissionRequest] = Table("permission request")

    def number_after(self, number: int) -> None:
        self._table.number_after(number)

    def all(self) -> list[PermissionRequest]:
        return self._table.all()

    def open(self, session: Session, params: dict[str, Any]) -> PermissionRequest:
        request = PermissionRequest(f"perm-{self._table.next_number()}", session, params)
        tool_call = params.get("toolCall")
        call = session.tool_calls.requested(tool_call if isinstance(tool_call, dict) else {})
        for added in call.added:
            self._emitter.update(session, added)
        payload = {
            "requestId": request.id,
            "toolCall": request.tool_call,
            "options": request.options,
        }
        # Pending before it is told: whoever hears of it may answer at once.
        self._table.add(request)
        self._tell(request, "permission-request-created", payload)
        return request

    def respond(
        self, request_id: str, outcome: dict[str, Any], by: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a request; `by` says who decided.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more), or
                `acpjs/config-invalid` if the outcome is none.
        """
        _check_outcome(outcome)
        check_json(outcome, "the outcome")
        check_json(by, "who decided")
        request = self._table.take(request_id)
        request.outcome = outcome
        payload = {"requestId": request_id, "status": "answered", "outcome": outcome}
        extensions = None if by is None else {"quarterdeck": {"decidedBy": dict(by)}}
        self._tell(request, "permission-request-resolved", payload, extensions)
        request.settle({"outcome": outcome})

    def withdraw(self, concerns: Concerns) -> Sequence[PermissionRequest]:
        """Supersede the requests that nobody needs to answer; their agents wait for `refuse`."""
        withdrawn = self._table.withdraw(concerns)
        for request in withdrawn:
            payload = {"requestId": request.id, "status": "superseded"}
            self._tell(request, "permission-request-resolved", payload)
        return withdrawn

    def _tell(
        self,
        request: PermissionRequest,
        kind: str,
        payload: dict[str, Any],
        extensions: dict[str, Any] | None = None,
    ) -> None:
        with self._emitter.journal.together():
            self._emitter.session_event(request.in_session, kind, payload, extensions)
            self._emitter.host_event("permission-updated", request.projection())


def _check_outcome(outcome: Any) -> None:
    kind = outcome.get("outcome") if isinstance(outcome, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    if kind == "cancelled" or (kind == "selected" and isinstance(chosen, str)):
        return
    message = "an outcome is {outcome: 'cancelled'} or {outcome: 'selected', optionId: …}"
    raise AcpError(ERROR_CODES["config_invalid"], message)

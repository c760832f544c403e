"""Permission requests of agents (`session/request_permission`), and the hook that decides first.

    wire order    open: number → repair the announcement → fold → hook → queue events, one batch
    Ask           created + permission-updated{pending}; the request is in the table
    Decided       created + resolved + permission-updated{answered}; it never was in the table

The hook (`HostOptions.on_permission`) runs before the first event of a request is queued, in the
step that reads it from the wire. A request that a rule decides is therefore never pending: no
subscriber can see it so, and no client can answer it, however early it subscribed (INV-11).
The hook is a plain function and must be fast. If it raises, or allows after its time is up, a
person is asked; a refusal stands also if it is late, because to ask instead would open what the
rule closes. Without a hook every request is asked, and the stream is the one of acpjs.

What the agent gets, and when:

| outcome                      | sent                                                          |
| ---------------------------- | ------------------------------------------------------------- |
| `cancelled`, or a `reject_*` | at once: a full disk must not hold back a refusal             |
| everything else              | after its `resolved` event is stored: what was allowed is     |
|                              | recorded, whatever happens next                               |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.options import check_json
from quarterdeck.host.requests.table import Concerns, RequestTable
from quarterdeck.host.requests.verdicts import (
    Ask,
    Decided,
    OnPermission,
    PermissionRequest,
    Verdict,
)
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import ERROR_CODES, ToolCallFacts
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

HOOK_SECONDS: Final = 1.0
"""After which the hook's permission does not count."""


class PermissionRequests:
    """All permission requests of a host; ids are `perm-<n>` and never used twice."""

    def __init__(self, emitter: Emitter, on_permission: OnPermission | None = None) -> None:
        self._emitter = emitter
        self._on_permission = on_permission
        self._table: RequestTable[PermissionRequest] = RequestTable("permission request")

    async def settled(self) -> None:
        """Wait until all events so far are stored and published.

        Raises:
            StorageFailed: if they never will be.
        """
        await self._emitter.journal.settled()

    def number_after(self, number: int) -> None:
        self._table.number_after(number)

    def all(self) -> list[PermissionRequest]:
        return self._table.all()

    @property
    def pending(self) -> list[PermissionRequest]:
        return self._table.pending

    def get(self, request_id: str) -> PermissionRequest | None:
        """Return a request that is pending."""
        return self._table.get(request_id)

    def open(self, session: HostSession, params: dict[str, Any]) -> PermissionRequest:
        """Take a request from the wire: have it decided, or make it pending."""
        request = PermissionRequest(f"perm-{self._table.next_number()}", session, params)
        tool_call = params.get("toolCall")
        call = session.tool_calls.requested(tool_call if isinstance(tool_call, dict) else {})
        for added in call.added:
            self._emitter.update(session, added)
        verdict: Verdict = Ask()
        if self._on_permission is not None:
            request.facts = call.facts
            verdict = self._examined(self._on_permission, request, call.facts)
        request.derived = verdict.derived
        payload = {
            "requestId": request.id,
            "toolCall": request.tool_call,
            "options": request.options,
        }
        if isinstance(verdict, Decided):
            self._open_decided(request, payload, verdict)
        else:
            request.card = verdict.card
            # Pending before it is published: a subscriber may answer at once.
            self._table.add(request)
            self._publish(request, "permission-request-created", payload, _request(request))
        return request

    def _examined(
        self, hook: OnPermission, request: PermissionRequest, facts: ToolCallFacts
    ) -> Verdict:
        began = time.monotonic()
        try:
            verdict = hook(request, facts)
            if isinstance(verdict, Decided):
                _check_outcome(verdict.outcome)
                check_json([verdict.outcome, verdict.by], "the verdict")
            check_json(verdict.derived, "what was derived")
        except foreign_errors() as error:
            logger.exception("the permission hook failed", extra={"request": request.id})
            self._report(request, f"the rules failed ({type(error).__name__}); a person is asked")
            return Ask()
        seconds = time.monotonic() - began
        if seconds <= HOOK_SECONDS:
            return verdict
        if isinstance(verdict, Ask) or request.is_refused_by(verdict.outcome):
            self._report(request, f"the rules took {seconds:.1f} s")
            return verdict
        self._report(request, f"the rules took {seconds:.1f} s to allow it; a person is asked")
        return Ask(derived=verdict.derived)

    def _report(self, request: PermissionRequest, message: str) -> None:
        self._emitter.diagnostic(
            "error",
            "permission/hook-failed",
            f"request {request.id}: {message}",
            session_id=request.in_session.id,
        )

    def _open_decided(
        self, request: PermissionRequest, payload: dict[str, Any], verdict: Decided
    ) -> None:
        """Record a request together with its decision: it never was pending."""
        request.outcome = dict(verdict.outcome)
        self._table.add_answered(request)
        answered = {"requestId": request.id, "status": "answered", "outcome": request.outcome}
        both = {**_request(request), "decidedBy": dict(verdict.by)}
        with self._emitter.journal.together():
            self._emitter.session_event(
                request.in_session,
                "permission-request-created",
                payload,
                _extensions(_request(request)),
            )
            self._publish(
                request,
                "permission-request-resolved",
                answered,
                {"decidedBy": dict(verdict.by)},
                both,
            )
        self._settle(request)

    def respond(
        self, request_id: str, outcome: dict[str, Any], by: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a request; `by` names who or what decided.

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
        ours = {} if by is None else {"decidedBy": dict(by)}
        self._publish(request, "permission-request-resolved", payload, ours)
        self._settle(request)

    def _settle(self, request: PermissionRequest) -> None:
        outcome = request.outcome or {}
        if not request.is_refused_by(outcome):
            request.needs_log = True
            if request.facts is not None:
                request.in_session.approved_calls.add(request.id, request.facts)
        request.settle({"outcome": outcome})

    def withdraw(self, concerns: Concerns) -> Sequence[PermissionRequest]:
        """Supersede requests that need no answer any more; their agents wait for `refuse`."""
        withdrawn = self._table.withdraw(concerns)
        for request in withdrawn:
            payload = {"requestId": request.id, "status": "superseded"}
            self._publish(request, "permission-request-resolved", payload, {})
        return withdrawn

    def _publish(
        self,
        request: PermissionRequest,
        kind: str,
        payload: dict[str, Any],
        ours: Mapping[str, Any],
        ours_for_host: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue the session's event and the host's; `ours` is `extensions.quarterdeck` of both."""
        for_host = ours if ours_for_host is None else ours_for_host
        with self._emitter.journal.together():
            self._emitter.session_event(request.in_session, kind, payload, _extensions(ours))
            self._emitter.host_event(
                "permission-updated", request.projection(), extensions=_extensions(for_host)
            )


def _request(request: PermissionRequest) -> dict[str, Any]:
    return {} if request.derived is None else {"request": dict(request.derived)}


def _extensions(ours: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"quarterdeck": dict(ours)} if ours else None


def _check_outcome(outcome: Any) -> None:
    kind = outcome.get("outcome") if isinstance(outcome, Mapping) else None
    chosen = outcome.get("optionId") if isinstance(outcome, Mapping) else None
    if kind == "cancelled" or (kind == "selected" and isinstance(chosen, str)):
        return
    message = "an outcome is {outcome: 'cancelled'} or {outcome: 'selected', optionId: …}"
    raise AcpError(ERROR_CODES["config_invalid"], message)

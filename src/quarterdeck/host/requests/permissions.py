"""Permission requests of agents (`session/request_permission`), and the hook that decides first.

The path of a request; up to the journal's queue, all in the step that reads it from the wire:

    wire/requests                  dispatches the JSON-RPC request, in wire order
    host/requests/handlers         finds the session, checks the params, waits for the answer
    PermissionRequests.open        gives the id, repairs the tool call's announcement, runs the hook
    HostOptions.on_permission      the hook; in a runner `runner/permissions/inbox`
    host/log/journal               queues the events as one batch, then stores and publishes it

    verdict   events                                             in the table
    Ask       created + permission-updated{pending}              pending
    Decided   created + resolved + permission-updated{answered}  never pending

The hook runs before the first event of a request is queued. A request that a rule decides is
therefore never pending: no subscriber can see it so, and no client can answer it, however early it
subscribed (INV-11). The hook is a pure, fast function of a request and of what is known of its tool
call. If it raises, or allows after its time is up, the request is left to people. A refusal stands
even if it is late: to ask a person instead would open what the rule closes. Without a hook every
request is pending, and the events are those of the seed, without extensions.

When the agent gets its answer:

| outcome                      | sent                                                          |
| ---------------------------- | ------------------------------------------------------------- |
| `cancelled`, or a `reject_*` | at once: a full disk must not hold back a refusal             |
| everything else              | after its `resolved` event is stored: whatever happens next,  |
|                              | the log shows what was allowed                                |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from quarterdeck.host.checks import check_json, config_invalid
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.requests.mismatches import report_mismatch
from quarterdeck.host.requests.permission_request import (
    Ask,
    Decided,
    OnPermission,
    PermissionRequest,
    Verdict,
)
from quarterdeck.host.requests.policy_hook import decide_by_rules
from quarterdeck.host.requests.table import Concerns, RequestTable
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.policy import read_call
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

HOOK_SECONDS: Final = 1.0
"""Time after which the hook can no longer allow a request."""


class PermissionRequests:
    """All permission requests of a host; ids are `perm-<n>` and never used twice."""

    def __init__(self, emitter: Emitter, on_permission: OnPermission | None = None) -> None:
        self._emitter = emitter
        self._on_permission = on_permission
        self._table: RequestTable[PermissionRequest] = RequestTable("permission request")

    async def wait_stored(self) -> None:
        """Wait until all events so far are stored and published.

        Raises:
            StorageFailed: if they never will be.
        """
        await self._emitter.journal.wait_stored()

    def check_terminal(
        self, session: HostSession, command: str, args: Sequence[str], cwd: str | None
    ) -> None:
        """Report a terminal that runs something other than what was allowed."""
        if session.approved_calls.is_empty:
            return
        open_calls = session.tool_calls.open_calls()
        found = session.approved_calls.terminal_mismatch(command, args, cwd, open_calls)
        report_mismatch(self._emitter, session, found)

    def check_file(self, session: HostSession, path: str, text: str) -> None:
        """Report a file that is not what was allowed to be written."""
        if session.approved_calls.is_empty:
            return
        open_calls = session.tool_calls.open_calls()
        found = session.approved_calls.file_mismatch(path, text, open_calls)
        report_mismatch(self._emitter, session, found)

    def number_after(self, number: int) -> None:
        """Give no request a number up to this one."""
        self._table.number_after(number)

    def all(self) -> list[PermissionRequest]:
        """Return the requests that were resolved recently, then those that are pending."""
        return self._table.all()

    @property
    def pending(self) -> list[PermissionRequest]:
        return self._table.pending

    def get(self, request_id: str) -> PermissionRequest | None:
        """Return a request that is pending."""
        return self._table.get(request_id)

    def open(self, session: HostSession, params: dict[str, Any]) -> PermissionRequest:
        """Open a request from the wire: the hook decides it, or it becomes pending."""
        request = PermissionRequest(f"perm-{self._table.next_number()}", session, params)
        tool_call = params.get("toolCall")
        call_id = tool_call.get("toolCallId") if isinstance(tool_call, dict) else None
        request.earlier = session.tool_calls.open_call(call_id)
        call = session.tool_calls.requested(tool_call if isinstance(tool_call, dict) else {})
        for added in call.added:  # published with the request
            session.tool_calls.measure(call_id, self._emitter.enqueue(session, added))
        verdict: Verdict = Ask()
        if self._on_permission is not None or session.policy is not None:
            request.facts = call.facts
            if not call.facts.raw_input:
                others = session.tool_calls.open_calls(but=call.facts.id)
                is_allowed = session.approved_calls.has
                request.open_calls = tuple(each for each in others if not is_allowed(each.id))
            verdict = self._verdict(request, call.facts)
        request.derived = verdict.derived
        if isinstance(verdict, Decided):
            self._record_decided(request, verdict)
        else:
            request.hook_data = verdict.hook_data
            self._record_pending(request)
        return request

    def _verdict(self, request: PermissionRequest, facts: ToolCallFacts) -> Verdict:
        """Run the hook of the host, then the rules of the session: with both, a refusal wins."""
        verdict: Verdict = Ask()
        if self._on_permission is not None:
            verdict = self._run_hook(self._on_permission, request, facts)
        policy = request.session.policy
        if policy is None or (
            isinstance(verdict, Decided) and request.is_refused_by(verdict.outcome)
        ):
            return verdict
        own = self._run_hook(decide_by_rules(policy), request, facts)
        if isinstance(own, Decided) and (
            self._on_permission is None or request.is_refused_by(own.outcome)
        ):
            return replace(own, hook_data=verdict.hook_data, derived=verdict.derived)
        return verdict

    def _run_hook(
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
            reason = f"the rules failed ({type(error).__name__}); it is left to a person"
            self._report(request, reason)
            return Ask()
        seconds = time.monotonic() - began
        if seconds <= HOOK_SECONDS:
            return verdict
        if isinstance(verdict, Ask) or request.is_refused_by(verdict.outcome):
            self._report(request, f"the rules took {seconds:.1f} s")
            return verdict
        self._report(request, f"the rules took {seconds:.1f} s to allow it; it is left to a person")
        return Ask(hook_data=verdict.hook_data, derived=verdict.derived)

    def _report(self, request: PermissionRequest, message: str) -> None:
        self._emitter.diagnostic(
            "error",
            "permission/hook-failed",
            f"request {request.id}: {message}",
            session_id=request.session.id,
        )

    def _record_pending(self, request: PermissionRequest) -> None:
        """Record a request that people decide."""
        # Pending before it is published: a subscriber may answer at once.
        self._table.add(request)
        with self._emitter.journal.batch():
            self._created(request)
            self._emitter.host_event(
                "permission-updated",
                request.event_payload(),
                extensions=_extensions(_request(request)),
            )

    def _record_decided(self, request: PermissionRequest, verdict: Decided) -> None:
        """Record a request together with its decision: it is never pending."""
        request.outcome = dict(verdict.outcome)
        self._table.add_answered(request)
        answered = {"requestId": request.id, "status": "answered", "outcome": request.outcome}
        both = {**_request(request), "decidedBy": dict(verdict.by)}
        with self._emitter.journal.batch():
            self._created(request)
            self._publish_resolved(
                request,
                answered,
                {"decidedBy": dict(verdict.by)},
                both,
            )
        self._release(request)

    def _created(self, request: PermissionRequest) -> None:
        payload = {
            "requestId": request.id,
            "toolCall": request.tool_call,
            "options": request.options,
        }
        ours = _extensions(_request(request)) or {}
        self._emitter.session_event(
            request.session, "permission-request-created", payload, request.more | ours or None
        )

    def respond(
        self, request_id: str, outcome: dict[str, Any], by: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a request; `by` names who or what decided.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more), or
                `acpjs/config-invalid` if the outcome is not valid.
        """
        _check_outcome(outcome)
        check_json(outcome, "the outcome")
        check_json(by, "who decided")
        request = self._table.claim(request_id)
        request.outcome = outcome
        payload = {"requestId": request_id, "status": "answered", "outcome": outcome}
        ours = {} if by is None else {"decidedBy": dict(by)}
        self._publish_resolved(request, payload, ours)
        self._release(request)

    def _release(self, request: PermissionRequest) -> None:
        """Answer the agent, as the table at the top has it; remember a call that was allowed."""
        outcome = request.outcome or {}
        if not request.is_refused_by(outcome):
            request.needs_log = True
            if request.facts is not None:
                self._remember_allowed(request, request.facts)
        request.release({"outcome": outcome})

    def _remember_allowed(self, request: PermissionRequest, facts: ToolCallFacts) -> None:
        """Remember what was shown, to compare it with what the agent does."""
        approved = request.session.approved_calls
        tool_call = request.tool_call if isinstance(request.tool_call, Mapping) else {}
        call = read_call(facts, tool_call, earlier=request.earlier, open_calls=request.open_calls)
        approved.add(request.id, facts, call)
        if call.reading.source == "turn":
            for each in request.open_calls:
                approved.add(request.id, each)

    def withdraw(self, concerns: Concerns) -> Sequence[PermissionRequest]:
        """Supersede requests; the caller then answers their agents by `release_superseded`."""
        withdrawn = self._table.withdraw(concerns)
        for request in withdrawn:
            payload = {"requestId": request.id, "status": "superseded"}
            self._publish_resolved(request, payload, {})
        return withdrawn

    def _publish_resolved(
        self,
        request: PermissionRequest,
        payload: dict[str, Any],
        ours: Mapping[str, Any],
        ours_for_host: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue the session's event and the host's; `ours` is `extensions.quarterdeck` of both."""
        for_host = ours if ours_for_host is None else ours_for_host
        with self._emitter.journal.batch():
            self._emitter.session_event(
                request.session, "permission-request-resolved", payload, _extensions(ours)
            )
            self._emitter.host_event(
                "permission-updated", request.event_payload(), extensions=_extensions(for_host)
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
    raise config_invalid(message)

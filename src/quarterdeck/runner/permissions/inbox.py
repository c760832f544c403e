"""The permission inbox: pending requests of all sessions, and how requests were decided.

It is named after what it does most. Elicitations, the other kind of request, have no rules, no card
and no timeout; the inbox only takes their answers (`answer_elicitation`).

A request takes one path, whatever decides it, and the log is the only truth about it:

    wire → examine (rules) → created [+ resolved] in the log → published → index, hub
    answer → claim → resolved in the log → stored → the agent → the reply to the device

The same, by name; `host/requests/permissions` has the part before `examine`:

    PermissionInbox.examine       the rules: `card.inspect_request`, then `policy.decide`
    host/log/journal              stores and publishes the events
    `permission-updated`          an event of the host stream. `Runner._on_event` passes it to
                                  `on_event` (index, expiry) and, as `RequestUpdated`, to the hub
                                  (web push); the link (`runner/link`) carries both the event and
                                  the news. `hub/streams` sends the event to the page, where
                                  `web/src/data/pending_requests.ts` reads it
    POST …/{id}/answer            `hub/api/requests`, then `RunnerApi.answer_permission`: the
                                  `Fleet`'s of the hub (`hub/fleet`), which finds the machine by the
                                  id, then `RemoteRunner`'s, which calls the runner's over the link.
                                  A machine that is away gets the answer later (`hub/fleet/waiting`)
    PermissionInbox.answer        checks digest and option, waits until the answer is stored
    Host.respond_permission       claims the request, emits `resolved`, releases the handler
    host/requests/handlers        `_wait_for_answer` returns: `wire/requests` writes the response

| state   | in the host's table | in the log       | left by                                    |
| ------- | ------------------- | ---------------- | ------------------------------------------ |
| pending | yes                 | created          | an answer, a rule, the timer, a withdrawal |
| claimed | no                  | resolved, queued | its commit                                 |
| decided | no                  | resolved, stored |                                            |

Orderings that matter:

1. *Rules first.* `examine` is the host's permission hook. It runs in the step that reads the
   request from the wire, before an event exists. What a rule decides is never pending, so no
   client can see it so, or answer it before the rule does.
2. *One arbiter.* A device, a rule that was added later and the timer all claim a request
   (`RequestTable.claim` of the host), and a withdrawal removes it (`withdraw`). Both are
   synchronous; the digest and the option are checked in the same step.
3. *Stored before allowed.* The agent gets a permission after the resolved event is stored, a
   refusal at once: a full disk must not hold back a "no".
4. *The index follows.* Rows of the decision index are made of published events, so the index may
   lag behind the log but is never ahead of it. What it missed is read at the next start.

The answer of an elicitation takes the same way from `answer_elicitation` on: claimed in the host's
table, stored in the log, indexed by `DecisionRecorder`.

Two phases were tried before: a row in the database was the arbiter, then the host was. Each crash
between the two needed a repair, and the rules, being one subscriber among others, could be late.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import anyio
from msgspec import UNSET

from quarterdeck.errors import (
    AcpError,
    RequestRejected,
)
from quarterdeck.host import (
    Ask,
    Decided,
    Host,
    PermissionRequest,
    Verdict,
    call_of,
    is_elicitation_id,
)
from quarterdeck.policy import PermissionPolicy, Policy, decide
from quarterdeck.protocol import ERROR_CODES, Event, ToolCallFacts
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.actor import Actor, not_found
from quarterdeck.runner.permissions.card import (
    InspectedRequest,
    derived_from,
    inspect_request,
    inspection_of,
    is_retry,
    reason_in_meta,
    recorded_answer,
    rejecting_option,
    sent_outcome,
    withdrawn_error,
)
from quarterdeck.runner.permissions.context_policies import ContextPolicies
from quarterdeck.runner.permissions.decision_index import (
    DecidedBy,
    DecisionIndex,
    RecordedDecision,
    decided_by_json,
)
from quarterdeck.runner.permissions.decision_recorder import DecisionRecorder
from quarterdeck.runner.permissions.unstored_refusals import UnstoredRefusals, stored_or_failing
from quarterdeck.runner.schema import now
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

_OPEN_INBOX: Final = "open the inbox to see what is pending"
_NOTHING_ALLOWED: Final = (
    "the log cannot be written, so nothing can be allowed now; free up space on the hub's disk,"
    " or reject the request, which always works"
)


class _RuleChoice(NamedTuple):
    option_id: str | None
    by: DecidedBy


class PermissionInbox:
    """All requests of all sessions, and their decisions."""

    def __init__(
        self,
        index: DecisionIndex,
        policy: Policy,
        context_policies: ContextPolicies,
        refusals: UnstoredRefusals,
    ) -> None:
        self.policy = policy
        self._context_policies = context_policies
        self._index = index
        self._refusals = refusals
        self._started_host: Host | None = None
        self._decisions: DecisionRecorder | None = None
        self._expiring: list[tuple[float, str]] = []
        self._has_expiring = anyio.Event()

    async def start(self, host: Host, tasks: IndependentTasks) -> None:
        """Serve a host whose hook is `examine`; bring the index up to date with its log."""
        self._started_host = host
        self._decisions = DecisionRecorder(self._index, host, self._refusals.remove)
        await self._context_policies.load()
        await self._decisions.start(tasks)
        tasks.start_soon(self._expire)

    async def catch_up(self) -> None:
        """Bring the index up to date with a log that is complete only now."""
        if self._decisions is not None:
            await self._decisions.catch_up()

    async def stop(self) -> None:
        """Write what the index lacks."""
        if self._decisions is not None:
            await self._decisions.stop()

    # ---- rules ---------------------------------------------------------------------------------

    def examine(self, request: PermissionRequest, facts: ToolCallFacts) -> Verdict:
        """Decide a request by the rules, or leave it to people; the host's permission hook."""
        expiry = self.policy.expiry_seconds
        try:
            inspected = inspect_request(
                request,
                call_of(request, facts),
                requested_at=now(),
                expires_at=None if expiry is None else iso_seconds(time.time() + expiry),
            )
        except Exception as error:  # noqa: BLE001 - what an agent sent, in any shape
            return self._unreadable(request, error)
        decided = self._by_policy(inspected)
        if isinstance(decided, str):
            inspected = inspected.with_reason(decided)
            return Ask(hook_data=inspected, derived=derived_from(inspected.card, request.tool_call))
        outcome = sent_outcome(inspected.outcome(decided.option_id), decided.by)
        return Decided(
            outcome=outcome,
            by=_decided_now(decided.by, inspected.card.digest),
            hook_data=inspected,
            derived=derived_from(inspected.card, request.tool_call),
        )

    def _unreadable(self, request: PermissionRequest, error: Exception) -> Decided:
        """Cancel what cannot be shown: else its agent would wait forever."""
        self._host.diagnose(
            "error",
            "permission/cannot-be-shown",
            f"a request of the agent cannot be shown ({type(error).__name__}); it was cancelled",
            session_id=request.session.id,
        )
        by = DecidedBy(kind="policy", reason="the request cannot be shown")
        return Decided(outcome={"outcome": "cancelled"}, by=decided_by_json(by))

    def set_policy(self, policy: Policy) -> None:
        """Decide by other rules from now on, also what waits already."""
        self.policy = policy
        self._decide_pending()

    async def set_context_policy(
        self, session_id: str, policy: PermissionPolicy, actor: Actor
    ) -> None:
        """Decide the requests of a session by a context policy as well, also what waits already.

        Raises:
            DatabaseFailed: if it cannot be stored: then it does not decide.
        """
        with anyio.CancelScope(shield=True):
            await self._context_policies.set(session_id, policy, actor.id)
        self._decide_pending()

    def forget_session(self, session_id: str) -> None:
        """Drop the context policy of a session that is deleted."""
        self._context_policies.forget(session_id)

    def _decide_pending(self) -> None:
        for request in self._host.pending_permissions():
            inspected = inspection_of(request)
            decided = None if inspected is None else self._by_policy(inspected)
            if inspected is not None and isinstance(decided, _RuleChoice):
                self._decide(inspected, decided.option_id, decided.by)

    def _by_policy(self, inspected: InspectedRequest) -> _RuleChoice | str:
        """Return what the rules choose, or why they leave it to a person."""
        card = inspected.card
        agent = None if card.agent is UNSET else card.agent
        try:
            policy = self._context_policies.with_owner(self.policy, card.session_id)
            decided = decide(policy, inspected.call, workspace=card.cwd, agent=agent)
        except Exception as error:  # noqa: BLE001 - what an agent sent, in any shape
            self._host.diagnose(
                "error",
                "permission/hook-failed",
                f"request {card.request_id}: the rules failed ({type(error).__name__}); it is left"
                " to a person",
                session_id=card.session_id,
            )
            return "The rules failed on this request."
        by = DecidedBy(kind="policy", rule=decided.rule or "")
        if decided.decision == "ask":
            return decided.reason
        if decided.decision == "deny":
            return _RuleChoice(rejecting_option(card.options), by)
        if card.is_ambiguous:
            return f"{decided.reason} But two of the agent's options have the same id."
        allowing = [each for each in card.options if each.kind == "allow_once"]
        if not allowing:  # a person has to choose for how long
            return f"{decided.reason} But the agent has no option that allows it once."
        return _RuleChoice(allowing[0].option_id, by)

    # ---- published requests ---------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Handle an event of the host stream; the session event that it reports is stored."""
        self._recorder.on_event(event)
        if event.type == "permission-updated" and event.payload["status"] == "pending":
            self._expire_later(event.payload["requestId"])

    # ---- answers -------------------------------------------------------------------------------

    async def answer(
        self,
        request_id: str,
        option_id: str | None,
        *,
        by: DecidedBy,
        digest: str | None = None,
        key: str | None = None,
    ) -> RecordedDecision:
        """Answer a request, with an option or, if that is None, with "cancelled".

        Idempotent: the same key from the same device returns the decision that was recorded.

        Raises:
            RequestRejected: if it is not pending (any more), the digest is of something else, or
                there is no such option.
        """
        request = self._host.pending_permission(request_id)
        if request is None:
            return await self._decision(request_id, by, key)
        inspected = inspection_of(request)
        if inspected is None:  # the hook failed, so there is nothing to check against
            call = call_of(request, _tool_call_facts(request))
            inspected = inspect_request(request, call, requested_at=now(), expires_at=None)
        if digest is not None and digest != inspected.card.digest:
            message = "the request has changed since it was shown; review it again"
            raise RequestRejected("stale", message, data={"digest": inspected.card.digest})
        outcome = sent_outcome(inspected.outcome(option_id), by)
        is_refusal = request.is_refused_by(outcome)
        if not is_refusal and not self._host.is_healthy:
            raise RequestRejected("unavailable", _NOTHING_ALLOWED)
        decided_by = _decided_now(by, inspected.card.digest, key)
        stored = self._host.respond_permission(request_id, outcome, by=decided_by)
        with anyio.CancelScope(shield=True):
            if not is_refusal:
                await stored
            elif not await stored_or_failing(self._host, self._host.wait_stored):
                entry = self._recorder.unstored(request_id, request.options, outcome, decided_by)
                return self._refusals.add(entry, outcome, decided_by).decision
        return await self._decision(request_id, by, key, is_winner=True)

    def _decide(self, inspected: InspectedRequest, option_id: str | None, by: DecidedBy) -> None:
        """Decide a request that may be pending; a device may have been faster."""
        outcome = sent_outcome(inspected.outcome(option_id), by)
        decided_by = _decided_now(by, inspected.card.digest)
        try:
            _ = self._host.respond_permission(inspected.card.request_id, outcome, by=decided_by)
        except AcpError as error:
            logger.info("a request was decided already", extra={"reason": error.message})

    async def _decision(
        self, request_id: str, by: DecidedBy, key: str | None, *, is_winner: bool = False
    ) -> RecordedDecision:
        """Return a decision to the device that made it; refuse all others."""
        entry = self._refusals.get(request_id) or await self._recorder.find(request_id)
        if entry is None:
            raise not_found(f"request {request_id!r}", _OPEN_INBOX)
        decision = entry.decision
        if is_winner or (decision.state == "answered" and is_retry(entry, by, key)):
            return decision
        if decision.state != "answered":
            raise withdrawn_error(request_id)
        message = f"request {request_id} was already answered; data contains the answer that counts"
        raise RequestRejected("already-answered", message, data=recorded_answer(decision))

    async def answer_outcome(
        self, request_id: str, outcome: Mapping[str, Any], actor: Actor
    ) -> None:
        """Answer a request for a client of the host's protocol.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        try:
            if is_elicitation_id(request_id):
                await self.answer_elicitation(request_id, outcome, by=self.decider(actor))
            else:
                by = self.decider(actor, reason_in_meta(outcome))
                await self.answer(request_id, _chosen(outcome), by=by)
        except RequestRejected as error:
            is_invalid = error.code == "quarterdeck/invalid"
            code = ERROR_CODES["config_invalid" if is_invalid else "already_answered"]
            raise AcpError(code, error.message, data=error.data) from error

    async def answer_elicitation(
        self, request_id: str, response: Mapping[str, Any], *, by: DecidedBy
    ) -> RecordedDecision:
        """Answer an elicitation; the agent alone gets its content, the audit the action.

        Raises:
            RequestRejected: if it is not pending (any more).
            AcpError: `acpjs/config-invalid` if it is no answer.
        """
        elicitation = self._host.get_elicitation(request_id)
        if elicitation is None:
            raise not_found(f"elicitation {request_id!r}", _OPEN_INBOX)
        if elicitation.status == "superseded":
            raise withdrawn_error(request_id)
        if elicitation.status == "answered":
            message = f"elicitation {request_id} was already answered"
            raise RequestRejected("already-answered", message)
        stored = self._host.respond_elicitation(request_id, response, by=_decided_now(by))
        with anyio.CancelScope(shield=True):
            await stored
        return await self._decision(request_id, by, None, is_winner=True)

    @staticmethod
    def decider(actor: Actor, reason: str = "") -> DecidedBy:
        """Return a device as what decides, with its reason, if there is one."""
        return DecidedBy(
            kind="device",
            device_id=actor.id,
            device_name=actor.name,
            reason=reason.strip() or UNSET,
        )

    # ---- expiry --------------------------------------------------------------------------------

    def _expire_later(self, request_id: str) -> None:
        expiry = self.policy.expiry_seconds
        if expiry is not None:
            heapq.heappush(self._expiring, (anyio.current_time() + expiry, request_id))
            self._has_expiring.set()

    async def _expire(self) -> None:
        """Reject requests whose time is up: one timer, for the earliest."""
        while True:
            self._has_expiring = anyio.Event()
            deadline = self._expiring[0][0] if self._expiring else float("inf")
            with anyio.move_on_at(deadline):
                await self._has_expiring.wait()
            while self._expiring and self._expiring[0][0] <= anyio.current_time():
                _, request_id = heapq.heappop(self._expiring)
                request = self._host.pending_permission(request_id)
                inspected = None if request is None else inspection_of(request)
                if inspected is not None:
                    rejection = rejecting_option(inspected.card.options)
                    self._decide(inspected, rejection, DecidedBy(kind="expiry"))

    async def decisions(
        self, *, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        """Return the audit, the newest first."""
        return await self._recorder.list(before, session_id, limit)

    @property
    def _recorder(self) -> DecisionRecorder:
        assert self._decisions is not None
        return self._decisions

    @property
    def _host(self) -> Host:
        assert self._started_host is not None
        return self._started_host


def _decided_now(
    by: DecidedBy, digest: str | None = None, key: str | None = None
) -> dict[str, Any]:
    """Return `extensions.quarterdeck.decidedBy` for a decision that is made now."""
    more = {"digest": digest, "key": key}
    return {
        **decided_by_json(by),
        **{name: value for name, value in more.items() if value is not None},
        "at": now(),
    }


def _tool_call_facts(request: PermissionRequest) -> ToolCallFacts:
    assert request.facts is not None  # there is a hook
    return request.facts


def _chosen(outcome: Mapping[str, Any]) -> str | None:
    option_id = outcome.get("optionId")
    if outcome.get("outcome") == "selected" and isinstance(option_id, str):
        return option_id
    if outcome.get("outcome") == "cancelled":
        return None
    message = "an outcome is {outcome: 'cancelled'} or {outcome: 'selected', optionId: …}"
    raise AcpError(ERROR_CODES["config_invalid"], message)

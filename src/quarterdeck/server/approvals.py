"""The inbox: what agents ask of people, over all sessions, and how it was decided.

An answer is taken in two steps. First the database: pending becomes answered if the digest is that
of what is asked, in one transaction, so one answer wins. Then the host, which takes one answer as
well and sends it to the agent. Between the two the request may have been withdrawn; the winner is
told so, and the audit says it (docs/adr/0015).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from msgspec import UNSET

from quarterdeck.errors import AcpError, HubDatabaseFailed, QuarterdeckError, RequestRefused
from quarterdeck.host import Host
from quarterdeck.protocol import ERROR_CODES, Event, HostPermissionSnapshot
from quarterdeck.server import decision_rows as rows
from quarterdeck.server.approval_views import ApprovalView
from quarterdeck.server.call_watch import CallWatch, Shown
from quarterdeck.server.chores import Chores
from quarterdeck.server.clock import written
from quarterdeck.server.database import HubDatabase
from quarterdeck.server.decision_rows import Decider, Decision, Question
from quarterdeck.server.device import Device
from quarterdeck.server.keeper import Keeper
from quarterdeck.server.left_decisions import settle_left_decisions
from quarterdeck.server.options import Policy
from quarterdeck.server.pending import (
    WITHDRAWN,
    Pending,
    facts_of,
    gone,
    is_same,
    make_pending,
    rejecting,
    said_reason,
    sent_outcome,
    winner,
)
from quarterdeck.server.policy import decide_by_rules
from quarterdeck.server.refusals import not_found
from quarterdeck.server.tables import now

logger = logging.getLogger(__name__)


class Approvals:
    """All requests of all sessions."""

    def __init__(self, host: Host, database: HubDatabase, keeper: Keeper, policy: Policy) -> None:
        self.policy = policy
        self._host = host
        self._database = database
        self._keeper = keeper
        self._calls = CallWatch(host, self._on_mismatch)
        self._pending: dict[str, Pending] = {}
        self._tasks: Chores | None = None

    async def start(self, tasks: Chores) -> None:
        """Settle what an earlier hub left open."""
        self._tasks = tasks
        await settle_left_decisions(self._host.options.storage, self._database)

    # ---- what is asked -------------------------------------------------------------------------

    @property
    def pending(self) -> list[ApprovalView]:
        """What waits for an answer, the oldest first."""
        return [each.view for each in self._pending.values()]

    def get(self, request_id: str) -> ApprovalView | None:
        pending = self._pending.get(request_id)
        return None if pending is None else pending.view

    def set_policy(self, policy: Policy) -> None:
        """Decide by other rules from now on, also what waits already."""
        self.policy = policy
        assert self._tasks is not None
        for pending in tuple(self._pending.values()):
            self._tasks.start_soon(self._apply_policy, pending)

    def on_event(self, event: Event) -> None:
        """Follow the host's stream."""
        self._calls.on_host_event(event)
        if event.type != "permission-updated":
            return
        request_id = event.payload["requestId"]
        if event.payload["status"] == "pending":
            self._arrived(request_id)
        else:
            self._left(request_id, event.payload)

    def _arrived(self, request_id: str) -> None:
        request = next(
            (each for each in self._host.get_permissions() if each.request_id == request_id), None
        )
        if request is None or request.status != "pending" or request_id in self._pending:
            return
        asked: Any = request.tool_call
        tool_call = asked if isinstance(asked, dict) else {}
        expiry = self.policy.expiry_seconds
        try:
            pending = make_pending(
                request,
                self._host.get_session(request.session_id),
                self._calls.facts(request.session_id, tool_call),
                asked_at=now(),
                expires_at=None if expiry is None else written(time.time() + expiry),
            )
        except Exception as error:  # noqa: BLE001 - an agent's words, in whatever shape
            assert self._tasks is not None
            self._tasks.start_soon(self._refuse, request, error)
            return
        self._pending[request_id] = pending
        assert self._tasks is not None
        self._tasks.start_soon(self._take, pending)

    async def _refuse(self, request: HostPermissionSnapshot, error: Exception) -> None:
        """Answer what cannot be shown to anybody: else its agent would wait for ever."""
        self._host.diagnose(
            "error",
            "permission/cannot-be-shown",
            f"a request of the agent cannot be shown ({type(error).__name__}); it was cancelled",
            session_id=request.session_id,
        )
        await self._host.respond_permission(request.request_id, {"outcome": "cancelled"})

    async def _take(self, pending: Pending) -> None:
        """Note a request, decide it by the policy, or wait until it expires."""
        try:
            await self._database.write(lambda connection: rows.add(connection, pending.question))
        except HubDatabaseFailed as error:  # it is noted again with its answer
            logger.warning("a request could not be noted", extra={"reason": str(error)})
        await self._apply_policy(pending)
        expiry = self.policy.expiry_seconds
        if expiry is None or pending.over.is_set():
            return
        with anyio.move_on_after(expiry):
            await pending.over.wait()
        if not pending.over.is_set():
            await self._decide(pending, rejecting(pending.view.options), Decider(kind="expiry"))

    def is_for_people(self, request_id: str) -> bool:
        """Whether a request that waits is left to people, or is about to be decided by a rule."""
        pending = self._pending.get(request_id)
        return pending is None or self._by_policy(pending) is None

    async def _apply_policy(self, pending: Pending) -> None:
        if pending.over.is_set():
            return
        decided = self._by_policy(pending)
        if decided is not None:
            await self._decide(pending, *decided)

    def _by_policy(self, pending: Pending) -> tuple[str | None, Decider] | None:
        """Return the option that the rules choose, and by which of them; None leaves it open."""
        view = pending.view
        agent = None if view.agent is UNSET else view.agent
        decision, rule = decide_by_rules(
            self.policy, pending.call.parsed, agent=agent, project=view.cwd
        )
        by = Decider(kind="policy", rule=rule)
        if decision == "deny":
            return rejecting(view.options), by
        if decision == "allow" and not view.is_ambiguous:
            allowing = [each for each in view.options if each.kind == "allow_once"]
            if allowing:  # else a person has to say for how long
                return allowing[0].option_id, by
        return None

    async def _decide(self, pending: Pending, option_id: str | None, by: Decider) -> None:
        try:
            await self.answer(pending.view.request_id, option_id, by=by)
        except RequestRefused as error:  # somebody was faster
            logger.info("a request was decided already", extra={"reason": error.message})
        except QuarterdeckError as error:
            logger.warning("a request could not be decided", extra={"reason": str(error)})

    def _left(self, request_id: str, payload: Mapping[str, Any]) -> None:
        """A request does not wait any more."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return
        pending.over.set()
        assert self._tasks is not None
        self._tasks.start_soon(self._note_left, pending, payload)

    async def _note_left(self, pending: Pending, payload: Mapping[str, Any]) -> None:
        """Note how a request ended that the inbox did not answer."""

        def note(connection: Any) -> None:
            rows.add(connection, pending.question)
            found = rows.find(connection, pending.view.request_id)
            if found is None or found[0].state != "pending":
                return
            if payload["status"] == "answered":
                by = Decider(kind="client")
                _note_answer(pending.question, payload.get("outcome"), by, connection)
            else:
                rows.supersede(connection, pending.view.request_id, WITHDRAWN)

        try:
            await self._database.write(note)
        except HubDatabaseFailed as error:
            logger.warning("a decision could not be noted", extra={"reason": str(error)})

    # ---- answers -------------------------------------------------------------------------------

    async def answer(
        self,
        request_id: str,
        option_id: str | None,
        *,
        by: Decider,
        digest: str | None = None,
        key: str | None = None,
    ) -> Decision:
        """Answer a request, with an option or, if that is None, with "cancelled".

        Raises:
            RequestRefused: if it is not asked (any more), something else is, or there is no such
                option. The same key and device again get what they got before.
        """
        pending = self._pending.get(request_id)
        if pending is None:
            return await self._told(request_id, by, key)
        if digest is not None and digest != pending.view.digest:
            message = "this is not what is asked; look at the request again"
            raise RequestRefused(409, "stale", message, data={"digest": pending.view.digest})
        outcome, kind = pending.outcome(option_id)
        has_won = await self._database.write(
            lambda connection: rows.answer(
                connection, pending.question, outcome, by, kind=kind, key=key
            )
        )
        if not has_won:
            return await self._told(request_id, by, key)
        await self._deliver(pending, outcome, kind, by)
        return await self._told(request_id, by, key, is_winner=True)

    async def _deliver(
        self, pending: Pending, outcome: dict[str, Any], kind: str | None, by: Decider
    ) -> None:
        """Give the answer that won to the host; the shield: half of it must not stay undone."""
        view = pending.view
        facts = {**facts_of(by), "digest": view.digest, "at": now()}
        if kind is not None and kind.startswith("allow"):
            self._calls.allowed(
                view.session_id, pending.call.tool_call_id, view.request_id, pending.facts
            )
        with anyio.CancelScope(shield=True):
            try:
                stored = self._host.respond_permission(
                    view.request_id, sent_outcome(outcome, by), by=facts
                )
            except AcpError as error:
                await self._database.write(
                    lambda connection: rows.supersede(connection, view.request_id, WITHDRAWN)
                )
                raise gone(view.request_id) from error
            await stored
            await self._database.write(
                lambda connection: rows.delivered(connection, view.request_id)
            )

    async def _told(
        self, request_id: str, by: Decider, key: str | None, *, is_winner: bool = False
    ) -> Decision:
        """Return the decision to whoever made it; refuse everybody else."""
        found = await self._database.read(lambda connection: rows.find(connection, request_id))
        if found is None:
            raise not_found(f"request {request_id!r}", "GET /api/permissions lists what waits")
        decision, winning_key = found
        if is_winner or (decision.state == "answered" and is_same(decision, winning_key, by, key)):
            return decision
        if decision.state == "superseded":
            raise gone(request_id)
        if decision.state == "pending":
            message = f"request {request_id} was asked before this hub started; it is gone"
            raise RequestRefused(410, "gone", message)
        message = f"request {request_id} is answered already; data has the answer that counts"
        raise RequestRefused(409, "already-answered", message, data=winner(decision))

    async def answer_outcome(
        self, request_id: str, outcome: Mapping[str, Any], device: Device
    ) -> None:
        """Answer a permission request or a question for a client that speaks the host's words.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        try:
            if request_id.startswith("elic-"):
                await self.answer_question(request_id, outcome, by=self.decider(device))
            else:
                by = self.decider(device, said_reason(outcome))
                await self.answer(request_id, _chosen(outcome), by=by)
        except RequestRefused as error:
            is_over = error.status in (404, 409, 410)
            code = ERROR_CODES["already_answered" if is_over else "config_invalid"]
            raise AcpError(code, error.message, data=error.data) from error

    async def answer_question(
        self, request_id: str, response: Mapping[str, Any], *, by: Decider
    ) -> Decision:
        """Answer a question; what is answered is the agent's alone, how it was is in the audit.

        Raises:
            RequestRefused: if it is not asked (any more).
            AcpError: `acpjs/config-invalid` if it is no answer.
        """
        asked = next(
            (each for each in self._host.get_elicitations() if each.request_id == request_id), None
        )
        if asked is None:
            raise not_found(f"question {request_id!r}", "GET /api/elicitations lists what waits")
        if asked.status == "superseded":
            raise gone(request_id)
        if asked.status == "answered":
            message = f"question {request_id} is answered already"
            raise RequestRefused(409, "already-answered", message)
        question = Question(
            request_id=request_id,
            session_id=None if asked.session_id is UNSET else asked.session_id,
            agent=None,
            digest="",
            asked=dict(asked.request),
            asked_at=now(),
        )
        stored = self._host.respond_elicitation(request_id, response)
        with anyio.CancelScope(shield=True):
            await stored
            outcome = {"action": response.get("action")}
            await self._database.write(partial(_note_answer, question, outcome, by))
        return await self._told(request_id, by, None, is_winner=True)

    @staticmethod
    def decider(device: Device, reason: str = "") -> Decider:
        """Return a device as who decides, and why, if that is said."""
        return Decider(
            kind="device",
            device_id=device.id,
            device_name=device.name,
            reason=reason.strip() or UNSET,
        )

    async def decisions(
        self, *, before: int | None, session_id: str | None, limit: int
    ) -> list[Decision]:
        """Return the audit, the newest first."""
        return await self._database.read(
            lambda connection: rows.listed(connection, before, session_id, limit)
        )

    def _on_mismatch(
        self, session_id: str, call_id: str, shown: Shown, different: list[str]
    ) -> None:
        names = ", ".join(different)
        self._host.diagnose(
            "warn",
            "approval-mismatch",
            f"call {call_id} was allowed as it was shown; now the agent says another {names}",
            session_id=session_id,
            data={"requestId": shown.request_id, "toolCallId": call_id, "different": different},
        )


def _note_answer(
    question: Question, outcome: Any, by: Decider, connection: sqlite3.Connection
) -> None:
    """Note an answer that its agent has already."""
    rows.answer(connection, question, outcome, by)
    rows.delivered(connection, question.request_id)


def _chosen(outcome: Mapping[str, Any]) -> str | None:
    option_id = outcome.get("optionId")
    if outcome.get("outcome") == "selected" and isinstance(option_id, str):
        return option_id
    if outcome.get("outcome") == "cancelled":
        return None
    message = "an outcome is {outcome: 'cancelled'} or {outcome: 'selected', optionId: …}"
    raise AcpError(ERROR_CODES["config_invalid"], message)

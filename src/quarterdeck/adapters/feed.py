"""One session of the host as a stream of context events, shared by all who are attached to it.

The log is projected from its beginning, so that every event has the number it always had; what is
stored is read in pages, and the live events follow where the pages end. A permission policy is kept
here as well: it decides what is pending and what will be asked, whether anybody is attached or not.
So does the time after which a request is refused, if there is one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from quarterdeck.dialects.context import (
    ContextEvent,
    ContextProjector,
    PendingApproval,
    PendingQuestion,
    PermissionPolicy,
    SessionFacts,
    decide,
    resolution,
    response_to,
)
from quarterdeck.errors import AcpError, QuarterdeckError
from quarterdeck.host import Host
from quarterdeck.protocol import ERROR_CODES, Event, decode_event

logger = logging.getLogger(__name__)

PAGE: Final = 1_000  # events that are read from storage at a time

Listener = Callable[[ContextEvent], None]


async def stored_events(host: Host, session_id: str) -> AsyncIterator[Event]:
    """Yield what the log of a session has at this moment."""
    after = 0
    while page := await host.options.storage.read(session_id, after, PAGE):
        for record in page:
            event = decode_event(record)
            after = event.seq
            yield event


class SessionFeed:
    """Follows one session of a host."""

    def __init__(
        self, host: Host, facts: SessionFacts, tasks: TaskGroup, expiry_ms: float | None
    ) -> None:
        self._host = host
        self._facts = facts
        self._tasks = tasks
        self._expiry_ms = expiry_ms
        self._projector = self._new_projector()
        self._listeners: dict[object, Listener] = {}
        self._prompted: list[anyio.Event] = []
        self._unsubscribe: Callable[[], None] | None = None
        self._answers: dict[str, dict[str, str]] = {}
        self.users = 0
        self.policy: PermissionPolicy | None = None

    @classmethod
    async def open(
        cls, host: Host, facts: SessionFacts, tasks: TaskGroup, expiry_ms: float | None
    ) -> Self:
        """Project what is stored and go on with what happens."""
        feed = cls(host, facts, tasks, expiry_ms)
        last, asked = 0, list[Event]()
        async for event in stored_events(host, facts.session_id):
            feed._projector.feed(event)
            last = event.seq
            if event.type == "permission-request-created":
                asked.append(event)
        waiting = {each.request_id for each in feed._projector.pending}
        for event in asked:
            if event.payload.get("requestId") in waiting:
                feed._expire_later(event)
        feed._unsubscribe = host.subscribe(facts.session_id, last, feed._on_event)
        return feed

    def _new_projector(self) -> ContextProjector:
        return ContextProjector(self._facts, approval_expiry_ms=self._expiry_ms)

    @property
    def session_id(self) -> str:
        return self._facts.session_id

    @property
    def cwd(self) -> str:
        return self._facts.cwd

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs it any more."""
        return self.users == 0 and self.policy is None and self._expiry_ms is None

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._listeners.clear()

    def listen(self, callback: Listener) -> Callable[[], None]:
        key = object()
        self._listeners[key] = callback
        return lambda: self._listeners.pop(key, None) and None

    async def history(self) -> list[ContextEvent]:
        """Project the log once more, from its beginning to now."""
        projector = self._new_projector()
        return [
            told
            async for event in stored_events(self._host, self.session_id)
            for told in projector.feed(event)
        ]

    def _on_event(self, event: Event) -> None:
        told = self._projector.feed(event)
        if event.type == "session-status-change" and event.payload.get("status") == "prompting":
            for waiting in self._prompted:
                waiting.set()
        for each in told:
            for listener in list(self._listeners.values()):
                self._tell(listener, each)
        if event.type == "permission-request-created":
            self._apply_policy()
            self._expire_later(event)

    def _tell(self, listener: Listener, event: ContextEvent) -> None:
        try:
            listener(event)
        except Exception:
            # One listener's mistake is not the others' loss, nor the policy's.
            logger.exception("listener failed", extra={"event": event.type})

    # ---- prompts ---------------------------------------------------------------------------

    async def prompt(self, blocks: list[dict[str, Any]]) -> None:
        """Send a prompt and return when it runs; how it ends is in the log.

        Raises:
            AcpError: if it was refused.
        """
        running, failures = anyio.Event(), list[QuarterdeckError]()

        async def run() -> None:
            try:
                await self._host.prompt(self.session_id, blocks)
            except QuarterdeckError as error:
                failures.append(error)
            finally:
                running.set()

        self._prompted.append(running)
        try:
            self._tasks.start_soon(run)
            await running.wait()
        finally:
            self._prompted.remove(running)
        if failures:
            raise failures[0]

    # ---- permission ------------------------------------------------------------------------

    def pending(self, request_id: str) -> PendingApproval:
        """Find a request that waits.

        Raises:
            AcpError: `acpjs/already-answered` if it does not.
        """
        for each in self._projector.pending:
            if each.request_id == request_id:
                return each
        message = f"permission request {request_id} is not pending; it was answered or withdrawn"
        raise AcpError(ERROR_CODES["already_answered"], message)

    def pending_of_call(self, tool_call_id: str) -> PendingApproval | None:
        pending = [each for each in self._projector.pending if each.tool_call_id == tool_call_id]
        return pending[0] if pending else None

    # ---- questions -------------------------------------------------------------------------

    def pending_question(self, question_id: str) -> PendingQuestion | None:
        """Return the form that a question is of, if it waits for an answer."""
        for pending in self._projector.questions:
            if any(question.id == question_id for question in pending.questions):
                return pending
        return None

    def take_answer(
        self, pending: PendingQuestion, question_id: str, answer: str
    ) -> dict[str, Any] | None:
        """Take the answer to a question; return that to its form, None until it is complete.

        Raises:
            AcpError: `acpjs/config-invalid` if that is no answer to it.
        """
        waiting = {each.request_id for each in self._projector.questions}
        self._answers = {key: each for key, each in self._answers.items() if key in waiting}
        answers = {**self._answers.get(pending.request_id, {}), question_id: answer}
        response = response_to(pending, answers)
        self._answers[pending.request_id] = answers
        return response

    def set_policy(self, policy: PermissionPolicy) -> None:
        self.policy = policy
        self._apply_policy()

    def _apply_policy(self) -> None:
        if self.policy is None:
            return
        for pending in self._projector.pending:
            decision = decide(self.policy, pending.call, self.cwd)
            if decision == "ask":
                continue
            outcome = _selected(pending, "allow_once") if decision == "allow" else denial(pending)
            if outcome is None:
                continue  # it cannot be allowed once: a person has to say for how long
            outcome["_meta"] = resolution("policy", f"the permission policy says {decision}")
            self._respond(pending, outcome)

    def _expire_later(self, event: Event) -> None:
        """Refuse a request when its time is up, unless somebody was faster."""
        if self._expiry_ms is not None:
            left_ms = event.ts + self._expiry_ms - 1000 * time.time()
            seconds = min(max(left_ms, 0.0), self._expiry_ms) / 1000
            self._tasks.start_soon(self._expire, str(event.payload.get("requestId")), seconds)

    async def _expire(self, request_id: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        for pending in self._projector.pending:
            if pending.request_id == request_id:
                outcome = denial(pending)
                outcome["_meta"] = resolution("timeout", "nobody answered in time")
                self._respond(pending, outcome)

    def _respond(self, pending: PendingApproval, outcome: dict[str, Any]) -> None:
        try:
            _ = self._host.respond_permission(pending.request_id, outcome)
        except AcpError as error:
            if error.code != ERROR_CODES["already_answered"]:
                raise


def approval(pending: PendingApproval) -> dict[str, Any] | None:
    """Return the outcome that allows a request, once if it can be; None if it cannot be allowed."""
    return _selected(pending, "allow_once") or _selected(pending, "allow_always")


def denial(pending: PendingApproval) -> dict[str, Any]:
    """Return the outcome that refuses a request; never one that refuses for ever."""
    return _selected(pending, "reject_once") or {"outcome": "cancelled"}


def _selected(pending: PendingApproval, kind: str) -> dict[str, Any] | None:
    for option in pending.options:
        if option.get("kind") == kind:
            return selected(option)
    return None


def selected(option: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": "selected", "optionId": str(option.get("optionId"))}

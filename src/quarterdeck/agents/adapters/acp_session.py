"""A session of an ACP agent as a stream of context events, and the commands for it.

`SessionFeed` follows one session of a host and is shared by all its `AcpSession` attachments. It
projects the log from its beginning, so that every event keeps its number: stored events are read in
pages, and live events follow where the pages end.

A feed also holds the permission policy and the expiry of the session. Both decide requests that are
pending and later ones, with or without an attachment. So a feed stays open after the last
attachment is gone, until it has neither.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol, Self, assert_never

import anyio
from anyio.abc import TaskGroup

from quarterdeck.errors import AcpError, QuarterdeckError, RpcError
from quarterdeck.host import Host
from quarterdeck.policy import PermissionPolicy, Policy, decide, policy_of
from quarterdeck.protocol import ERROR_CODES, Event, decode_event, has_ended
from quarterdeck.protocol.results import resolution_meta
from quarterdeck.views.context import (
    ACPCapabilities,
    ACPCommand,
    ACPError,
    AnswerQuestionCommand,
    ApproveToolCallCommand,
    CancelCommand,
    ContextEvent,
    ContextProjector,
    DenyToolCallCommand,
    PauseCommand,
    ResumeCommand,
    SendMessageCommand,
    SetPermissionPolicyCommand,
    TerminateCommand,
)
from quarterdeck.views.context.contract import SessionFacts
from quarterdeck.views.context.requests import PendingApproval, PendingForm, response_to

logger = logging.getLogger(__name__)

PAGE: Final = 1_000  # events per read from storage

OnContextEvent = Callable[[ContextEvent], None]


async def stored_events(host: Host, session_id: str) -> AsyncIterator[Event]:
    """Yield the events that are in the log of a session now."""
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
        self._subscribers: dict[object, OnContextEvent] = {}
        self._prompted: list[anyio.Event] = []
        self._unsubscribe: Callable[[], None] | None = None
        self._answers: dict[str, dict[str, str]] = {}
        self.users = 0
        self.policy: Policy | None = None

    @classmethod
    async def open(
        cls, host: Host, facts: SessionFacts, tasks: TaskGroup, expiry_ms: float | None
    ) -> Self:
        """Project the stored events and subscribe to live ones."""
        feed = cls(host, facts, tasks, expiry_ms)
        last, requests = 0, list[Event]()
        async for event in stored_events(host, facts.session_id):
            feed._projector.feed(event)
            last = event.seq
            if event.type == "permission-request-created":
                requests.append(event)
        pending = {each.request_id for each in feed._projector.pending}
        for event in requests:
            if event.payload.get("requestId") in pending:
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
        """Whether it has no attachment and nothing to decide."""
        return self.users == 0 and self.policy is None and self._expiry_ms is None

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._subscribers.clear()

    def listen(self, callback: OnContextEvent) -> Callable[[], None]:
        key = object()
        self._subscribers[key] = callback
        return lambda: self._subscribers.pop(key, None) and None

    async def history(self) -> list[ContextEvent]:
        """Project the log once more, from its beginning to now."""
        projector = self._new_projector()
        return [
            emitted
            async for event in stored_events(self._host, self.session_id)
            for emitted in projector.feed(event)
        ]

    def _on_event(self, event: Event) -> None:
        emitted = self._projector.feed(event)
        if event.type == "session-status-change" and event.payload.get("status") == "prompting":
            for running in self._prompted:
                running.set()
        for each in emitted:
            for subscriber in list(self._subscribers.values()):
                self._publish(subscriber, each)
        if event.type == "permission-request-created":
            self._expire_later(event)

    def _publish(self, subscriber: OnContextEvent, event: ContextEvent) -> None:
        try:
            subscriber(event)
        except Exception:
            # A failing subscriber must stop neither other subscribers nor the policy.
            logger.exception("subscriber failed", extra={"event": event.type})

    # ---- prompts ---------------------------------------------------------------------------

    async def prompt(self, blocks: list[dict[str, Any]]) -> None:
        """Send a prompt and return when it runs; the log has its end.

        Raises:
            AcpError: if the host or the agent rejects it.
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

    # ---- permission requests -----------------------------------------------------------------

    def pending(self, request_id: str) -> PendingApproval:
        """Return a pending request.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending.
        """
        for each in self._projector.pending:
            if each.request_id == request_id:
                return each
        message = f"permission request {request_id} is not pending; it was answered or withdrawn"
        raise AcpError(ERROR_CODES["already_answered"], message)

    def pending_of_call(self, tool_call_id: str) -> PendingApproval | None:
        pending = [each for each in self._projector.pending if each.tool_call_id == tool_call_id]
        return pending[0] if pending else None

    # ---- elicitations ------------------------------------------------------------------------

    def pending_question(self, question_id: str) -> PendingForm | None:
        """Return the pending form that has a question."""
        for pending in self._projector.questions:
            if any(question.id == question_id for question in pending.questions):
                return pending
        return None

    def take_answer(
        self, pending: PendingForm, question_id: str, answer: str
    ) -> dict[str, Any] | None:
        """Store the answer to a question; return the response to its form once it is complete.

        Raises:
            AcpError: `acpjs/config-invalid` if the answer does not fit the question.
        """
        open_forms = {each.request_id for each in self._projector.questions}
        self._answers = {key: each for key, each in self._answers.items() if key in open_forms}
        answers = {**self._answers.get(pending.request_id, {}), question_id: answer}
        response = response_to(pending, answers)
        self._answers[pending.request_id] = answers
        return response

    def set_policy(self, policy: PermissionPolicy) -> None:
        """Decide by a policy: later requests before they can be seen, and what waits already."""
        self.policy = policy_of(policy)
        self._host.set_session_policy(self.session_id, self.policy)
        self._apply_policy()

    def end_policy(self) -> None:
        """Decide nothing any more: the session has ended."""
        if self.policy is not None and self._host.get_session(self.session_id) is not None:
            self._host.set_session_policy(self.session_id, None)
        self.policy = None

    def _apply_policy(self) -> None:
        if self.policy is None:
            return
        for pending in self._projector.pending:
            decision = decide(self.policy, pending.call, workspace=self.cwd).decision
            if decision == "ask":
                continue
            outcome = _selected(pending, "allow_once") if decision == "allow" else denial(pending)
            if outcome is None:
                continue  # no option allows it once: a person has to choose for how long
            outcome["_meta"] = resolution_meta(
                "policy", f"the permission policy decides: {decision}"
            )
            self._respond(pending, outcome)

    def _expire_later(self, event: Event) -> None:
        """Reject a request when it expires, unless it is decided before."""
        if self._expiry_ms is not None:
            left_ms = event.ts + self._expiry_ms - 1000 * time.time()
            seconds = min(max(left_ms, 0.0), self._expiry_ms) / 1000
            self._tasks.start_soon(self._expire, str(event.payload.get("requestId")), seconds)

    async def _expire(self, request_id: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        for pending in self._projector.pending:
            if pending.request_id == request_id:
                outcome = denial(pending)
                outcome["_meta"] = resolution_meta("timeout", "not answered in time")
                self._respond(pending, outcome)

    def _respond(self, pending: PendingApproval, outcome: dict[str, Any]) -> None:
        try:
            _ = self._host.respond_permission(pending.request_id, outcome)
        except AcpError as error:
            if error.code != ERROR_CODES["already_answered"]:
                raise


def approval(pending: PendingApproval) -> dict[str, Any] | None:
    """Return the outcome that allows a request, once if possible; None if no option allows it."""
    return _selected(pending, "allow_once") or _selected(pending, "allow_always")


def denial(pending: PendingApproval) -> dict[str, Any]:
    """Return the outcome that rejects a request, never permanently."""
    return _selected(pending, "reject_once") or {"outcome": "cancelled"}


def _selected(pending: PendingApproval, kind: str) -> dict[str, Any] | None:
    for option in pending.options:
        if option.get("kind") == kind:
            return selected(option)
    return None


def selected(option: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": "selected", "optionId": str(option.get("optionId"))}


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)")


class SessionOwner(Protocol):
    """What a session needs of its adapter."""

    def get_capabilities(self) -> ACPCapabilities: ...
    async def revive(self, session_id: str) -> None: ...
    async def acquire(self, session_id: str) -> SessionFeed: ...
    async def release(self, feed: SessionFeed, *, is_ended: bool) -> None: ...


class AcpSession:
    """One attachment to a session; a session may have several."""

    def __init__(self, host: Host, owner: SessionOwner, feed: SessionFeed) -> None:
        self._host = host
        self._owner = owner
        self._feed = feed
        self._callbacks: dict[object, OnContextEvent] = {}
        self._subscriptions: dict[object, Callable[[], None]] = {}
        self._is_attached = True
        self._is_terminated = False

    @property
    def session_id(self) -> str:
        return self._feed.session_id

    @property
    def capabilities(self) -> ACPCapabilities:
        return self._owner.get_capabilities()

    def on_event(self, callback: Callable[[ContextEvent], None]) -> Callable[[], None]:
        """Call `callback` with every event from now on; return a function that ends it.

        Events have the same numbers in `get_history`: subscribe, then read the history, and drop
        duplicates. If the session is terminated, a `resume` continues the subscription.
        """
        key = object()
        self._callbacks[key] = callback
        self._subscriptions[key] = self._feed.listen(callback)

        def unsubscribe() -> None:
            self._callbacks.pop(key, None)
            self._subscriptions.pop(key, _nothing)()

        return unsubscribe

    async def get_history(self) -> list[ContextEvent]:
        return await self._feed.history()

    async def detach(self) -> None:
        """End the subscriptions; the agent keeps running and a permission policy keeps deciding."""
        await self._detach(is_ended=False)

    async def _detach(self, *, is_ended: bool) -> None:
        if self._is_attached:
            self._is_attached = False
            for unsubscribe in self._subscriptions.values():
                unsubscribe()
            self._subscriptions.clear()
            await self._owner.release(self._feed, is_ended=is_ended)

    # ---- commands --------------------------------------------------------------------------

    async def execute(self, command: ACPCommand) -> None:
        """Carry out a command.

        Raises:
            AcpError: if it cannot be carried out, with a code for the reason.
        """
        if self._is_terminated and isinstance(command, ResumeCommand):
            await self._attach_again()
        if not self._is_attached:
            message = f"detached from session {self.session_id}; attach to it again"
            raise AcpError(ERROR_CODES["session_closed"], message)
        try:
            await self._execute(command)
        except RpcError as error:
            facts = {"code": error.code, "message": error.message, "data": error.data}
            code = ERROR_CODES["agent_error"]
            raise AcpError(code, f"the agent refused: {error.explanation}", data=facts) from error

    async def _attach_again(self) -> None:
        """Continue after `terminate`: the same callbacks get the events of the same session."""
        self._feed = await self._owner.acquire(self.session_id)
        self._is_attached, self._is_terminated = True, False
        for key, callback in self._callbacks.items():
            self._subscriptions[key] = self._feed.listen(callback)

    async def _execute(self, command: ACPCommand) -> None:
        match command:
            case SendMessageCommand():
                accepts_images = self.capabilities.features.multimodal
                await self._feed.prompt(blocks_of(command, accepts_images=accepts_images))
            case ApproveToolCallCommand() | DenyToolCallCommand():
                await self._decide(command)
            case AnswerQuestionCommand():
                await self._answer(command)
            case CancelCommand():
                await self._host.cancel(self.session_id)
            case PauseCommand():
                raise unsupported("ACP agents cannot pause; cancel the turn and prompt again")
            case ResumeCommand(prompt=prompt):
                await self._owner.revive(self.session_id)
                if prompt:
                    await self._feed.prompt([{"type": "text", "text": prompt}])
            case TerminateCommand():
                await self._terminate()
            case SetPermissionPolicyCommand(policy=policy):
                self._feed.set_policy(policy)
            case _:
                assert_never(command)

    async def _decide(self, command: ApproveToolCallCommand | DenyToolCallCommand) -> None:
        pending = self._feed.pending(command.request_id)
        if command.tool_call_id != pending.tool_call_id:
            message = f"request {command.request_id} is not about call {command.tool_call_id}"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        if isinstance(command, DenyToolCallCommand):
            outcome = denial(pending)
            outcome["_meta"] = resolution_meta("user", command.reason)
        else:
            allowed = approval(pending)
            if allowed is None:
                raise unsupported("the agent offers no option that allows this call")
            outcome = allowed
        await self._host.respond_permission(pending.request_id, outcome)

    async def _answer(self, command: AnswerQuestionCommand) -> None:
        """Answer a question of a form, or a permission request whose options are answers."""
        form = self._feed.pending_question(command.question_id)
        if form is not None:
            response = self._feed.take_answer(form, command.question_id, command.answer)
            if response is not None:
                await self._host.respond_elicitation(form.request_id, response)
            return
        request_id = command.question_id.partition("#")[0]
        pending = self._feed.pending_of_call(request_id)
        if pending is not None:
            option = _option(pending, command.answer)
            await self._host.respond_permission(pending.request_id, selected(option))
        elif any(each.request_id == request_id for each in self._host.get_elicitations()):
            message = f"question {command.question_id} was answered or withdrawn"
            raise AcpError(ERROR_CODES["already_answered"], message)
        else:
            raise unsupported(
                f"question {command.question_id} takes no answer here; "
                "cancel the turn and send the answer as a message"
            )

    async def _terminate(self) -> None:
        snapshot = self._host.get_session(self.session_id)
        if snapshot is not None and snapshot.status == "prompting":
            await self._host.cancel(self.session_id)
        if snapshot is not None and not has_ended(snapshot.status):
            await self._host.close_session(self.session_id)
        await self._detach(is_ended=True)
        self._is_terminated = True


def _nothing() -> None:
    pass


def blocks_of(command: SendMessageCommand, *, accepts_images: bool) -> list[dict[str, Any]]:
    """Return the content blocks of a message: its text, then images and links.

    Raises:
        AcpError: `acpjs/capability-unsupported` for an image if the agent does not accept it.
    """
    blocks: list[dict[str, Any]] = [{"type": "text", "text": command.message}]
    for attachment in command.attachments:
        image = _DATA_URL.fullmatch(attachment.url)
        if image is None:
            name = attachment.url.rpartition("/")[2] or "image"
            blocks.append({"type": "resource_link", "uri": attachment.url, "name": name})
        elif accepts_images:
            blocks.append({"type": "image", "mimeType": image[1], "data": image[2]})
        else:
            raise unsupported("the agent does not accept images; send a link")
    return blocks


def _option(pending: PendingApproval, answer: str) -> Any:
    wanted = answer.strip().casefold()
    for option in pending.options:
        names = (option.get("optionId"), option.get("name"))
        if any(isinstance(name, str) and name.casefold() == wanted for name in names):
            return option
    choices = ", ".join(str(option.get("name")) for option in pending.options)
    raise AcpError(ERROR_CODES["config_invalid"], f"{answer!r} is not one of: {choices}")


def unsupported(message: str) -> AcpError:
    return AcpError(ERROR_CODES["capability_unsupported"], message)


def context_error(error: QuarterdeckError) -> ACPError:
    """Convert an error into one of the Agent Context Protocol."""
    if not isinstance(error, AcpError):
        return ACPError(code="INTERNAL", message=str(error), recoverable=True)
    is_final = error.code in (ERROR_CODES["session_closed"], ERROR_CODES["agent_exited"])
    facts = error.data if isinstance(error.data, dict) else {}
    agent_code = facts.get("code")
    return ACPError(
        code=error.code.rpartition("/")[2].replace("-", "_").upper(),
        message=error.message,
        recoverable=not is_final,
        details=error.data,
        agent_code=None if agent_code is None else str(agent_code),
    )

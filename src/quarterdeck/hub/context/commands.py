"""Commands of the context protocol: scopes checked, then carried out by the runner.

Decisions, answers, cancellation and termination are commands of the runner itself. The runner
carries out the others too (messages, pause, resume, a permission policy): a turn or a policy
continues when the client that sent it disconnects. A message is a prompt of the queue: a client
whose message has to wait gets a `prompt_queued` frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.context.frames import StartSession
from quarterdeck.hub.fleet.identifiers import machine_of
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.protocol import ERROR_CODES, HostPermissionSnapshot, has_ended
from quarterdeck.protocol.results import resolution_meta
from quarterdeck.runner import (
    META_SCOPE,
    PromptEntry,
    SessionOverview,
    check_absolute,
    check_started,
    permitted_blocks,
)
from quarterdeck.views.context import (
    ACPCommand,
    AnswerQuestionCommand,
    ApproveToolCallCommand,
    CancelCommand,
    DenyToolCallCommand,
    ResumeCommand,
    SendMessageCommand,
    TerminateCommand,
)
from quarterdeck.views.context.requests import PendingForm, questions_of, response_to

COMMAND_SCOPES: Final[Mapping[str, Scope]] = {
    "send_message": "prompt",
    "cancel": "prompt",
    "pause": "prompt",
    "resume": "prompt",
    "terminate": "prompt",
    "approve_tool_call": "approve",
    "deny_tool_call": "approve",
    "answer_question": "approve",
    "set_permission_policy": "admin",
}
"""A policy answers every later request, so it needs the scope for everything."""


class Commander:
    """Carries out commands for all connections of a hub."""

    def __init__(self, sources: StreamSources) -> None:
        self._runner = sources.runner
        self._sources = sources
        self._given: dict[str, dict[str, str]] = {}
        """Answers to fields of forms that are not complete yet, by the form."""

    async def start(self, wanted: StartSession, device: Device) -> SessionOverview:
        """Create a session.

        Raises:
            QuarterdeckError: if there is no such agent, or it rejects the session.
        """
        check_absolute(wanted.project_path)
        return await self._runner.create_session(
            wanted.agent, cwd=wanted.project_path, by=device.actor
        )

    async def execute(
        self,
        session_id: str,
        command: ACPCommand,
        device: Device,
        on_queued: Callable[[PromptEntry], None] | None = None,
    ) -> None:
        """Carry out a command; `on_queued` is called with a message that has to wait.

        Raises:
            QuarterdeckError: if it cannot be carried out, with a code that says why.
        """
        needed = COMMAND_SCOPES[command.command]
        device = device.on(machine_of(session_id).machine_id)
        check_scope(device, needed, command.command)
        session = self._session(session_id)
        match command:
            case ApproveToolCallCommand() | DenyToolCallCommand():
                await self._decide(session_id, command, device)
            case AnswerQuestionCommand():
                await self._answer(session_id, command, device)
            case CancelCommand():
                await self._runner.cancel_turn(session_id, by=device.actor)
            case TerminateCommand():
                await self._terminate(session, device)
            case _:
                permitted_blocks(_prompt_of(command), may_send_meta=device.may(META_SCOPE))
                entry = await self._runner.execute_context_command(
                    session_id, command, by=device.actor
                )
                if entry is not None and entry.state == "queued":
                    if on_queued is not None:
                        on_queued(entry)
                    check_started(await self._runner.wait_prompt(session_id, entry.key))

    async def _decide(
        self,
        session_id: str,
        command: ApproveToolCallCommand | DenyToolCallCommand,
        device: Device,
    ) -> None:
        request = self._pending(command.request_id)
        if (request.session_id, _call_id(request)) != (session_id, command.tool_call_id):
            about = f"call {command.tool_call_id} of session {session_id}"
            message = f"request {command.request_id} is not about {about}; look at it again"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        if isinstance(command, DenyToolCallCommand):
            outcome = _selected(request, "reject_once") or {"outcome": "cancelled"}
            outcome["_meta"] = resolution_meta("user", command.reason)
        else:
            allowed = _selected(request, "allow_once") or _selected(request, "allow_always")
            if allowed is None:
                message = "the agent offers no option that allows this call"
                raise AcpError(ERROR_CODES["capability_unsupported"], message)
            outcome = allowed
        await self._sources.answer(request.request_id, outcome, device)

    async def _answer(
        self, session_id: str, command: AnswerQuestionCommand, device: Device
    ) -> None:
        """Answer a field of a form, or a permission request with answers as options."""
        request_id = command.question_id.partition("#")[0]
        form = self._runner.elicitation(request_id)
        if form is not None and form.session_id == session_id:
            await self._fill_in(command, device)
            return
        for pending in self._runner.pending_permissions():
            request = pending.request
            if request.session_id == session_id and _call_id(request) == request_id:
                outcome = {"outcome": "selected", "optionId": _option(request, command.answer)}
                await self._sources.answer(request.request_id, outcome, device)
                return
        message = (
            f"question {command.question_id} takes no answer here; "
            "cancel the turn and send the answer as a message"
        )
        raise AcpError(ERROR_CODES["capability_unsupported"], message)

    async def _fill_in(self, command: AnswerQuestionCommand, device: Device) -> None:
        """Keep the answer to one field; the agent gets its form when the last one is there."""
        waiting = {
            each.request_id: PendingForm(
                each.request_id, questions_of(each.request_id, each.request)
            )
            for each in self._runner.pending_elicitations()
        }
        self._given = {form: given for form, given in self._given.items() if form in waiting}
        form = waiting.get(command.question_id.partition("#")[0])
        if form is None or all(each.id != command.question_id for each in form.questions):
            message = f"question {command.question_id} is not pending; it was answered or withdrawn"
            raise AcpError(ERROR_CODES["already_answered"], message)
        given = {**self._given.get(form.request_id, {}), command.question_id: command.answer}
        response = response_to(form, given)
        self._given[form.request_id] = given
        if response is not None:
            await self._sources.answer(form.request_id, response, device)

    async def _terminate(self, session: SessionOverview, device: Device) -> None:
        if session.status == "prompting":
            await self._runner.cancel_turn(session.session_id, by=device.actor)
        if not has_ended(session.status):
            await self._runner.close_session(session.session_id, by=device.actor)

    # ---- inside ----------------------------------------------------------------------------

    def _session(self, session_id: str) -> SessionOverview:
        session = self._runner.find_session(session_id)
        if session is None:
            raise AcpError(ERROR_CODES["session_closed"], f"there is no session {session_id}")
        return session

    def _pending(self, request_id: str) -> HostPermissionSnapshot:
        pending = self._runner.pending_permission(request_id)
        if pending is not None:
            return pending.request
        message = f"request {request_id} is not pending; it was answered or withdrawn"
        raise AcpError(ERROR_CODES["already_answered"], message)


def _prompt_of(command: ACPCommand) -> str | None:
    match command:
        case SendMessageCommand(message=text) | ResumeCommand(prompt=text):
            return text
        case _:
            return None


def check_scope(device: Device, needed: Scope, what: str) -> None:
    """Reject what a device may not do.

    Raises:
        AcpError: `quarterdeck/forbidden`.
    """
    if not device.may(needed):
        message = f"this device has the scope {device.scope}; {what} needs {needed}"
        raise AcpError("quarterdeck/forbidden", message)


def _selected(request: HostPermissionSnapshot, kind: str) -> dict[str, Any] | None:
    for option in _options(request):
        if option.get("kind") == kind:
            return {"outcome": "selected", "optionId": str(option.get("optionId"))}
    return None


def _option(request: HostPermissionSnapshot, answer: str) -> str:
    wanted = answer.strip().casefold()
    for option in _options(request):
        names = (option.get("optionId"), option.get("name"))
        if any(isinstance(name, str) and name.casefold() == wanted for name in names):
            return str(option.get("optionId"))
    choices = ", ".join(str(option.get("name")) for option in _options(request))
    raise AcpError(ERROR_CODES["config_invalid"], f"{answer!r} is not one of: {choices}")


def _call_id(request: HostPermissionSnapshot) -> Any:
    call: Any = request.tool_call  # an agent's words
    return call.get("toolCallId") if isinstance(call, Mapping) else None


def _options(request: HostPermissionSnapshot) -> list[Mapping[str, Any]]:
    options: Any = request.options
    return [each for each in options or () if isinstance(each, Mapping)]

"""What a client of the context protocol commands, done through the adapters of the hub's agents.

An adapter belongs to the hub, not to a connection: a turn or a policy goes on when the client that
wanted it is gone.

What sessions are listed by in the context protocol: names, and times that are times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
from msgspec import UNSET

from quarterdeck.agents.adapters import AcpAdapter
from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.context.frames import KnownSession, StartSession
from quarterdeck.hub.streams.answers import Answers
from quarterdeck.hub.streams.needs import StreamSources
from quarterdeck.hub.streams.tasks import start_in_background
from quarterdeck.protocol import ERROR_CODES, HostPermissionSnapshot, SessionSnapshotWire
from quarterdeck.protocol.snapshots import AgentDefinition
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionTitle
from quarterdeck.runner.workspaces.files import check_absolute
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
from quarterdeck.views.context.requests import PendingForm, questions_of, resolution, response_to

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
"""A policy answers whatever will be asked: that is for who may do everything."""
_STARTING_SECONDS: Final = 30.0


class Commander:
    """Carries out commands for all connections of a hub."""

    def __init__(self, sources: StreamSources, answers: Answers) -> None:
        self._create = sources.create_session
        self._host: Host = sources.host
        self._answers = answers
        self._manager = sources.manager
        self._adapters: dict[str, AcpAdapter] = {}
        self._given: dict[str, dict[str, str]] = {}
        """Answers to questions of forms that are not complete yet, by the form."""

    async def start(self, asked: StartSession) -> SessionSnapshotWire:
        """Begin a session.

        Raises:
            QuarterdeckError: if there is no such agent, or it refuses.
        """
        check_absolute(asked.project_path)
        if self._create is not None:
            return await self._create(asked.agent, cwd=asked.project_path)
        return await self._host.create_session(self._running(asked.agent), cwd=asked.project_path)

    async def execute(self, session_id: str, command: ACPCommand, device: Device) -> None:
        """Carry out a command.

        Raises:
            QuarterdeckError: if it cannot be carried out, with a code that says why.
        """
        needed = COMMAND_SCOPES[command.command]
        check_scope(device, needed, command.command)
        session = self._session(session_id)
        match command:
            case ApproveToolCallCommand() | DenyToolCallCommand():
                await self._decide(session_id, command, device)
            case AnswerQuestionCommand():
                await self._answer(session_id, command, device)
            case CancelCommand():
                await self._host.cancel(session_id)
            case TerminateCommand():
                await self._terminate(session)
            case _:
                if self._manager is not None and isinstance(
                    command, SendMessageCommand | ResumeCommand
                ):
                    await self._manager.active(session_id)
                await self._by_adapter(session, command)

    async def _by_adapter(self, session: SessionSnapshotWire, command: ACPCommand) -> None:
        adapter = await self._adapter(self._session(session.session_id))
        attached = await adapter.attach_to_session(session.session_id)
        try:
            await attached.execute(command)
        finally:
            with anyio.CancelScope(shield=True):
                await attached.detach()

    async def _decide(
        self,
        session_id: str,
        command: ApproveToolCallCommand | DenyToolCallCommand,
        device: Device,
    ) -> None:
        asked = self._pending(command.request_id)
        if (asked.session_id, _call_id(asked)) != (session_id, command.tool_call_id):
            about = f"call {command.tool_call_id} of session {session_id}"
            message = f"request {command.request_id} is not about {about}; look at it again"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        if isinstance(command, DenyToolCallCommand):
            outcome = _selected(asked, "reject_once") or {"outcome": "cancelled"}
            outcome["_meta"] = resolution("user", command.reason)
        else:
            allowed = _selected(asked, "allow_once") or _selected(asked, "allow_always")
            if allowed is None:
                message = "the agent offers no option that allows this call"
                raise AcpError(ERROR_CODES["capability_unsupported"], message)
            outcome = allowed
        await self._answers.give(asked.request_id, outcome, device)

    async def _answer(
        self, session_id: str, command: AnswerQuestionCommand, device: Device
    ) -> None:
        """Answer a question: one of a form, or a permission request with answers as options."""
        asked_id = command.question_id.partition("#")[0]
        form = self._host.get_elicitation(asked_id)
        if form is not None and form.session_id == session_id:
            await self._fill_in(command, device)
            return
        for pending in self._host.pending_permissions():
            asked = pending.snapshot()
            if asked.session_id == session_id and _call_id(asked) == asked_id:
                outcome = {"outcome": "selected", "optionId": _option(asked, command.answer)}
                await self._answers.give(asked.request_id, outcome, device)
                return
        message = (
            f"question {command.question_id} takes no answer here; "
            "cancel the turn and send the answer as a message"
        )
        raise AcpError(ERROR_CODES["capability_unsupported"], message)

    async def _fill_in(self, command: AnswerQuestionCommand, device: Device) -> None:
        """Take the answer to one question; the agent gets its form when the last one is there."""
        waiting = {
            each.request_id: PendingForm(
                each.request_id, questions_of(each.request_id, each.request)
            )
            for each in self._host.pending_elicitations()
        }
        self._given = {form: given for form, given in self._given.items() if form in waiting}
        form = waiting.get(command.question_id.partition("#")[0])
        if form is None or all(each.id != command.question_id for each in form.questions):
            message = f"question {command.question_id} is not asked; it was answered or withdrawn"
            raise AcpError(ERROR_CODES["already_answered"], message)
        given = {**self._given.get(form.request_id, {}), command.question_id: command.answer}
        response = response_to(form, given)
        self._given[form.request_id] = given
        if response is not None:
            await self._answers.give(form.request_id, response, device)

    async def _terminate(self, session: SessionSnapshotWire) -> None:
        if session.status == "prompting":
            await self._host.cancel(session.session_id)
        if session.status not in ("closed", "deleted"):
            await self._host.close_session(session.session_id)

    # ---- inside ----------------------------------------------------------------------------

    def _session(self, session_id: str) -> SessionSnapshotWire:
        session = self._host.get_session(session_id)
        if session is None:
            raise AcpError(ERROR_CODES["session_closed"], f"there is no session {session_id}")
        return session

    def _pending(self, request_id: str) -> HostPermissionSnapshot:
        pending = self._host.pending_permission(request_id)
        if pending is not None:
            return pending.snapshot()
        message = f"request {request_id} is not pending; it was answered or withdrawn"
        raise AcpError(ERROR_CODES["already_answered"], message)

    def _running(self, name: str) -> str:
        for session in self._host.get_sessions():
            if session.agent_definition_id == name and session.agent_id is not UNSET:
                return session.agent_id
        ready = [each.agent_id for each in self._host.get_agents() if each.agent_id == name]
        if not ready:
            raise AcpError(ERROR_CODES["agent_exited"], f"there is no agent {name!r}")
        return ready[0]

    async def _adapter(self, session: SessionSnapshotWire) -> AcpAdapter:
        if session.agent_id is UNSET or session.agent_definition_id is UNSET:
            message = f"session {session.session_id} has no agent; resume or load it"
            raise AcpError(ERROR_CODES["session_closed"], message)
        agent_id, name = session.agent_id, session.agent_definition_id
        adapter = self._adapters.get(agent_id)
        if adapter is None:
            # Never to be started by it: the agent runs, and who keeps agents starts them.
            definition = AgentDefinition(name, "-")
            adapter = AcpAdapter(self._host, definition, agent_id=agent_id)
            await self._keep(agent_id, adapter)
        return adapter

    async def _keep(self, agent_id: str, adapter: AcpAdapter) -> None:
        """Enter an adapter in a task of the host, which ends with it."""
        entered = anyio.Event()

        async def keep() -> None:
            async with adapter:
                self._adapters[agent_id] = adapter
                entered.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    del self._adapters[agent_id]

        start_in_background(self._host, keep)
        with anyio.fail_after(_STARTING_SECONDS):
            await entered.wait()


def check_scope(device: Device, needed: Scope, what: str) -> None:
    """Refuse what a device may not do.

    Raises:
        AcpError: `quarterdeck/forbidden`.
    """
    if not device.may(needed):
        message = f"this device may {device.scope}; {what} needs {needed}"
        raise AcpError("quarterdeck/forbidden", message)


def _selected(asked: HostPermissionSnapshot, kind: str) -> dict[str, Any] | None:
    for option in _options(asked):
        if option.get("kind") == kind:
            return {"outcome": "selected", "optionId": str(option.get("optionId"))}
    return None


def _option(asked: HostPermissionSnapshot, answer: str) -> str:
    wanted = answer.strip().casefold()
    for option in _options(asked):
        names = (option.get("optionId"), option.get("name"))
        if any(isinstance(name, str) and name.casefold() == wanted for name in names):
            return str(option.get("optionId"))
    choices = ", ".join(str(option.get("name")) for option in _options(asked))
    raise AcpError(ERROR_CODES["config_invalid"], f"{answer!r} is not one of: {choices}")


def _call_id(asked: HostPermissionSnapshot) -> Any:
    call: Any = asked.tool_call  # an agent's words
    return call.get("toolCallId") if isinstance(call, Mapping) else None


def _options(asked: HostPermissionSnapshot) -> list[Mapping[str, Any]]:
    options: Any = asked.options
    return [each for each in options or () if isinstance(each, Mapping)]


_UNKNOWN: Final = iso_seconds(0)  # its clients read a time there, whatever is known


class Catalogue:
    """Knows what a hub's library knows; of a bare host it is what agents say."""

    def __init__(self, library: SessionCatalogue | None) -> None:
        self._library = library

    async def learn(self) -> None:
        """Look at what has happened since the last time."""
        if self._library is not None:
            await self._library.learn()

    def known(self, session: SessionSnapshotWire) -> KnownSession:
        library = self._library
        heading = SessionTitle() if library is None else library.heading(session.session_id)
        last_at = heading.last_at or _text(session.updated_at) or _UNKNOWN
        title = _text(session.title) or heading.title
        return KnownSession(title, heading.first_at or last_at, last_at)


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given.strip() else None

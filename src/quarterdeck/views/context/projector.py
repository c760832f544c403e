"""A session's log as context events: a pure, stateful projection.

The same log gives the same events with the same numbers, in any process, on any day: time comes
from the events of the log, ids from it or from counters. Nothing here reads a clock or a file.

    status                 as long as
    starting               the session is not ready, or is being resumed
    idle                   nothing runs
    running, thinking      a prompt runs; thinking while the agent's last event is a thought
    waiting_for_approval   a permission request is pending; takes precedence over running
    waiting_for_input      an elicitation is pending
    paused                 the agent has exited, and no prompt ran
    error                  the agent has exited while a prompt ran; briefly if a prompt failed
    completed              the session is closed or deleted

When a session is loaded, the agent sends its history again: everything between `session-reset` and
the next status. Those events are marked `replay`: whole messages without deltas, no approvals, no
statuses, no questions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, assert_never

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
    AnyEvent,
    ApprovalMismatchEvent,
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    ForegroundEvent,
    HostEvent,
    MessageUpdateEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PlanRemovedEvent,
    PlanUpdateEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionSnapshotWire,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    UsageUpdateEvent,
    UserMessageChunkEvent,
    any_event,
)
from quarterdeck.protocol.tool_calls import is_closed_by_host
from quarterdeck.views.context.contract import SessionFacts, session_facts
from quarterdeck.views.context.drafts import ContextDrafts
from quarterdeck.views.context.events import ContextEvent, SessionResumedEvent
from quarterdeck.views.context.lifecycle import Lifecycle
from quarterdeck.views.context.messages import Messages
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.requests import (
    ApprovalProjector,
    ElicitationProjector,
    PendingApproval,
    PendingForm,
)
from quarterdeck.views.context.session_settings import SettingsProjector
from quarterdeck.views.context.tool_calls import ToolCallProjector
from quarterdeck.views.context.usage import Resources

_NOTHING: dict[str, Any] = {}

_SettingsEvent: TypeAlias = (
    AvailableCommandsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | ConfigOptionsUpdateEvent
)
_ProgressEvent: TypeAlias = (
    PlanEvent
    | SessionInfoUpdateEvent
    | UsageUpdateEvent
    | PromptFinishedEvent
    | SessionStatusChangeEvent
    | SessionResetEvent
)
_RequestEvent: TypeAlias = (
    PermissionRequestCreatedEvent
    | PermissionRequestResolvedEvent
    | ApprovalMismatchEvent
    | TerminalOutputEvent
    | UnrecognizedUpdateEvent
)
_WorkEvent: TypeAlias = (
    ForegroundEvent
    | MessageUpdateEvent
    | PlanRemovedEvent
    | PlanUpdateEvent
    | TerminalUpdateEvent
    | ToolCallContentChunkEvent
)
_Reader: TypeAlias = Callable[["ContextProjector", Any], None]
_READERS: Final[dict[type[Event], _Reader]] = {}
"""The method for each class of events. `_reader` finds it once: mypy checks its `match` for
completeness, but run for every event it would be slow."""


class ContextProjector:
    """Turns the events of one session into context events."""

    def __init__(
        self,
        session: SessionFacts | SessionSnapshotWire | Mapping[str, Any] | str,
        *,
        approval_expiry_ms: float | None = None,
        derive_on_replay: Collection[str] = ("file",),
    ) -> None:
        """Start before the first event of a session.

        `session` has the facts that no log contains: `SessionFacts`, or a snapshot of the host, its
        JSON, or a bare id. Approvals expire after `approval_expiry_ms`, if given.
        `derive_on_replay` names what is derived from replayed calls too: "file", "git", "web".
        """
        facts = session_facts(session)
        self._session_id = facts.session_id
        self._numbering = numbering = EventNumbering(facts.session_id)
        self._messages = Messages(numbering)
        self._settings = SettingsProjector(numbering, facts)
        self._calls = ToolCallProjector(numbering, self._settings, facts.cwd, derive_on_replay)
        self._approvals = ApprovalProjector(numbering, self._calls, facts.cwd, approval_expiry_ms)
        self._resources = Resources(numbering)
        self._drafts = ContextDrafts(numbering, self._settings)
        self._questions = ElicitationProjector(numbering)
        self._lifecycle = Lifecycle(
            numbering,
            facts,
            self._messages,
            self._calls,
            self._approvals,
            self._questions,
            self._settings,
            self._resources,
        )
        self._commands: Any = None

    @property
    def seq(self) -> int:
        """The number of the last context event; 0 before the first."""
        return self._numbering.seq

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The pending permission requests."""
        return self._approvals.pending

    @property
    def questions(self) -> tuple[PendingForm, ...]:
        """The pending elicitations, as the questions of this protocol."""
        return self._questions.pending

    def feed(self, event: Event) -> list[ContextEvent]:
        """Return the context events of the next event of the log.

        Events of other sessions and of the host have none.
        """
        if event.session_id != self._session_id:
            return []
        context_events = self._numbering.begin(event.ts)
        read = _READERS.get(type(event))
        if read is None:
            read = _READERS[type(event)] = self._reader(any_event(event))
        if isinstance(event.payload, dict) or isinstance(event, UnknownEvent):
            read(self, event)
        return context_events

    # ---- which method reads an event -----------------------------------------------------------

    @staticmethod
    def _reader(event: AnyEvent) -> _Reader:
        match event:
            case UserMessageChunkEvent():
                return ContextProjector._user_chunk
            case AgentMessageChunkEvent():
                return ContextProjector._agent_chunk
            case AgentThoughtChunkEvent():
                return ContextProjector._thought_chunk
            case ToolCallEvent() | ToolCallUpdateEvent():
                return ContextProjector._tool_call
            case SessionEvent():
                return ContextProjector._reader_of_other(event)
            case UnknownEvent():
                return ContextProjector._unknown
            case HostEvent():
                return ContextProjector._ignored
            case _:
                assert_never(event)

    @staticmethod
    def _reader_of_other(
        event: _SettingsEvent | _ProgressEvent | _RequestEvent | _WorkEvent,
    ) -> _Reader:
        match event:
            case PermissionRequestCreatedEvent():
                return ContextProjector._permission_created
            case PermissionRequestResolvedEvent():
                return ContextProjector._permission_resolved
            case ApprovalMismatchEvent():
                return ContextProjector._approval_mismatch
            case TerminalOutputEvent():
                return ContextProjector._terminal_output
            case UnrecognizedUpdateEvent():
                return ContextProjector._unrecognized
            case (
                AvailableCommandsUpdateEvent()
                | CurrentModeUpdateEvent()
                | SessionConfigInitEvent()
                | ConfigOptionsUpdateEvent()
            ):
                return ContextProjector._reader_of_settings(event)
            case (
                PlanEvent()
                | SessionInfoUpdateEvent()
                | UsageUpdateEvent()
                | PromptFinishedEvent()
                | SessionStatusChangeEvent()
                | SessionResetEvent()
            ):
                return ContextProjector._reader_of_progress(event)
            case (
                ForegroundEvent()
                | MessageUpdateEvent()
                | PlanRemovedEvent()
                | PlanUpdateEvent()
                | TerminalUpdateEvent()
                | ToolCallContentChunkEvent()
            ):
                return ContextProjector._reader_of_work(event)
            case _:
                assert_never(event)

    @staticmethod
    def _reader_of_work(event: _WorkEvent) -> _Reader:
        match event:
            case MessageUpdateEvent():
                return ContextProjector._message_update
            case ToolCallContentChunkEvent():
                return ContextProjector._tool_content
            case TerminalUpdateEvent():
                return ContextProjector._terminal_update
            case PlanUpdateEvent() | PlanRemovedEvent():
                return ContextProjector._other_plan
            case ForegroundEvent():
                return ContextProjector._ignored  # turns and requests show it
            case _:
                assert_never(event)

    @staticmethod
    def _reader_of_settings(event: _SettingsEvent) -> _Reader:
        match event:
            case AvailableCommandsUpdateEvent():
                return ContextProjector._available_commands
            case CurrentModeUpdateEvent():
                return ContextProjector._mode
            case SessionConfigInitEvent():
                return ContextProjector._config_init
            case ConfigOptionsUpdateEvent():
                return ContextProjector._config_options
            case _:
                assert_never(event)

    @staticmethod
    def _reader_of_progress(event: _ProgressEvent) -> _Reader:
        match event:
            case PlanEvent():
                return ContextProjector._plan
            case SessionInfoUpdateEvent():
                return ContextProjector._session_info
            case UsageUpdateEvent():
                return ContextProjector._usage
            case PromptFinishedEvent():
                return ContextProjector._prompt_finished
            case SessionStatusChangeEvent():
                return ContextProjector._status_change
            case SessionResetEvent():
                return ContextProjector._reset
            case _:
                assert_never(event)

    def _ignored(self, _event: Event) -> None:
        pass

    def _unknown(self, event: UnknownEvent) -> None:
        self._numbering.custom(event.type, event.raw, namespace="quarterdeck")

    # ---- messages, calls, requests -------------------------------------------------------------

    def _user_chunk(self, event: Event) -> None:
        self._messages.chunk("user", event.payload)

    def _agent_chunk(self, event: Event) -> None:
        was_thinking = self._messages.is_thinking
        self._messages.chunk("assistant", event.payload)
        if was_thinking:
            self._lifecycle.update_status("the agent speaks")

    def _thought_chunk(self, event: Event) -> None:
        was_thinking = self._messages.is_thinking
        self._messages.thought(event.payload, (event.extensions or _NOTHING).get("_meta"))
        if not was_thinking:
            self._lifecycle.update_status("the agent thinks")

    def _message_update(self, event: Event) -> None:
        """Show the new content of a message as a message that replaces it."""
        payload, content = event.payload, event.payload.get("content")
        self._messages.end()
        for block in content if isinstance(content, list) else ():
            chunk = {"messageId": payload.get("messageId"), "content": block}
            if payload.get("kind") == "thought":
                self._messages.thought(chunk)
            else:
                self._messages.chunk(
                    "user" if payload.get("kind") == "user" else "assistant", chunk
                )
        self._messages.end()

    def _tool_content(self, event: Event) -> None:
        self._calls.content_chunk(event.payload)

    def _terminal_update(self, event: Event) -> None:
        self._calls.terminal_update(event.payload)

    def _other_plan(self, event: Event) -> None:
        if event.payload.get("type") != "items":  # a list of entries has a `plan` as well
            self._numbering.custom(event.type, event.payload, namespace="quarterdeck")

    def _tool_call(self, event: Event) -> None:
        payload = event.payload
        if is_closed_by_host(event.extensions):
            return  # the end of the turn ends what is open
        if not isinstance(payload.get("toolCallId"), str):
            self._numbering.custom(event.type, payload)
            return
        was_open, was_waiting = self._messages.is_open, bool(self._calls.awaiting_answer)
        if was_open:
            self._interrupt(payload["toolCallId"])
        self._calls.update(
            payload,
            event.extensions or _NOTHING,
            is_announcement=event.type == "tool-call",
        )
        is_waiting = bool(self._calls.awaiting_answer)
        if was_open or is_waiting != was_waiting:  # nothing else about a call changes the status
            reason = "the agent asks a question" if is_waiting else "a tool is called"
            self._lifecycle.update_status(reason)

    def _interrupt(self, call_id: object) -> None:
        if self._calls.is_new(call_id):
            self._messages.at_tool_call()
        else:
            self._messages.end_thought()

    def _terminal_output(self, event: Event) -> None:
        self._calls.terminal_output(event.payload)

    def _permission_created(self, event: Event) -> None:
        tool_call = event.payload.get("toolCall")
        self._interrupt(tool_call.get("toolCallId") if isinstance(tool_call, dict) else None)
        self._approvals.requested(event.payload, event.extensions or _NOTHING)
        self._lifecycle.update_status("the agent asks for permission")

    def _permission_resolved(self, event: Event) -> None:
        self._approvals.resolved(event.payload)
        self._lifecycle.update_status("permission was decided")

    def _approval_mismatch(self, event: Event) -> None:
        self._approvals.mismatched(event.payload)

    # ---- settings and usage --------------------------------------------------------------------

    def _plan(self, event: Event) -> None:
        self._messages.end_thought()
        self._settings.todos(event.payload.get("entries"))
        self._lifecycle.update_status("the agent plans")

    def _available_commands(self, event: Event) -> None:
        commands = event.payload.get("availableCommands")
        if commands != self._commands:
            self._commands = commands
            self._numbering.custom("available_commands", event.payload)

    def _mode(self, event: Event) -> None:
        mode = event.payload.get("currentModeId") or (event.extensions or _NOTHING).get("modeId")
        self._settings.mode_changed(mode if isinstance(mode, str) else None)

    def _config_init(self, event: Event) -> None:
        self._settings.learn(event.payload)
        self._settings.learn_agent((event.extensions or _NOTHING).get("agentInfo"))
        self._lifecycle.learn_model()

    def _config_options(self, event: Event) -> None:
        self._settings.changed(event.payload, "config_options")
        self._lifecycle.learn_model()

    def _session_info(self, event: Event) -> None:
        if "title" in event.payload:
            self._numbering.custom("title", {"title": event.payload["title"]})

    def _usage(self, event: Event) -> None:
        self._resources.usage_update(event.payload)

    def _unrecognized(self, event: Event) -> None:
        payload = event.payload
        if payload.get("sessionUpdate") == ELICITATION_UPDATED and _is_ours(event):
            self._messages.end_thought()
            self._lifecycle.update_status(self._questions.update(payload))
        else:
            self._drafts.read(payload)

    # ---- turns and statuses --------------------------------------------------------------------

    def _prompt_finished(self, event: Event) -> None:
        self._lifecycle.turn_ended(event.payload, (event.extensions or _NOTHING).get("_meta"))

    def _status_change(self, event: Event) -> None:
        self._lifecycle.status_change(event.payload)

    def _reset(self, _event: Event) -> None:
        self._lifecycle.close_all("the session was loaded again")
        self._calls.forget()
        self._messages.count = 0
        self._numbering.is_replay = True
        self._numbering.emit(SessionResumedEvent, previous_session_id=self._session_id)
        self._lifecycle.reset()


def _is_ours(event: Event) -> bool:
    """Return whether the host wrote this; an agent's own unknown update has no such mark."""
    return "quarterdeck" in (event.extensions or _NOTHING)

"""The log as session updates of ACP 2, whichever version its agent speaks. Pure.

`AcpV2Updates` is the inverse of `quarterdeck.protocol.acp2_updates.UpdateFold`: the updates that it
makes of the events of a fold give a client the same state as the agent's own. Events of an agent
with ACP 1 become the nearest updates: a message without an id gets one that is made of the `seq` of
its first event, so it is the same after a restart and for every client; a diff of two texts becomes
a patch; a mode becomes an option; the beginning and the end of a turn become states, and so do
requests that wait. While the agent of a session is disconnected, its state is `unknown`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
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
    SessionState,
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
    to_json,
)
from quarterdeck.protocol.acp2_fields import ACP2
from quarterdeck.protocol.acp2_options import options_to_acp2
from quarterdeck.protocol.acp2_words import (
    ONLY_PLAN,
    command_to_acp2,
    content_to_acp2,
    modes_as_option,
)
from quarterdeck.protocol.config_options import mode_ids
from quarterdeck.protocol.shown_events import terminal_payloads, with_terminals
from quarterdeck.protocol.tool_calls import is_final_status, tool_call_key

_WORKING: Final = ("running", "requires_action")
_NAMES: Final = {"user": "user_message", "agent": "agent_message", "thought": "agent_thought"}

Update: TypeAlias = dict[str, Any]
_ChunkEvent: TypeAlias = UserMessageChunkEvent | AgentMessageChunkEvent | AgentThoughtChunkEvent
_CallEvent: TypeAlias = ToolCallEvent | ToolCallUpdateEvent | ToolCallContentChunkEvent
_SettingsEvent: TypeAlias = (
    AvailableCommandsUpdateEvent
    | ConfigOptionsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | SessionInfoUpdateEvent
    | UsageUpdateEvent
)
_WorkEvent: TypeAlias = (
    ForegroundEvent
    | PlanEvent
    | PlanRemovedEvent
    | PlanUpdateEvent
    | PromptFinishedEvent
    | SessionStatusChangeEvent
)


class AcpV2Updates:
    """The updates of one session, event by event."""

    def __init__(self) -> None:
        self._open: tuple[str, str] | None = None
        """The kind and our id of the newest message, if it has none of its own."""
        self._is_working = False
        self._is_unknown = False
        self._reports_states = False
        """Whether the agent reports its states itself."""
        self._waiting: set[str] = set()
        """Pending requests, of an agent that does not."""
        self._last: Update = {"sessionUpdate": "state_update", "state": "idle"}
        self._modes: Sequence[Any] = ()
        self._mode: Any = None
        self._has_options = False
        self._terminals: dict[str, list[Any]] = {}
        """The terminals in the content of open calls."""

    @property
    def state(self) -> Update:
        """The newest state, as an update: what a client gets that joins here."""
        return dict(self._last)

    def updates(self, event: Event) -> Iterator[Update]:
        """Yield the updates of the next event."""
        for update in self._updates(event):
            if update.get("sessionUpdate") == "state_update":
                self._last = update
            yield update

    def _updates(self, event: Event) -> Iterator[Update]:
        known = any_event(event)
        match known:
            case UserMessageChunkEvent() | AgentMessageChunkEvent() | AgentThoughtChunkEvent():
                yield self._chunk(known)
            case MessageUpdateEvent():
                yield _message(known)
            case ToolCallEvent() | ToolCallUpdateEvent() | ToolCallContentChunkEvent():
                yield _call(known)
                yield from self._outputs(known)
            case TerminalOutputEvent() | TerminalUpdateEvent():
                yield from _terminal(known)
            case SessionEvent():
                yield from self._other(known)
            case HostEvent() | UnknownEvent():
                pass
            case _:
                assert_never(known)

    def _outputs(self, event: _CallEvent) -> Iterator[Update]:
        """Yield the output that a call has in its `_meta`, as a terminal (see `shown_events`)."""
        payload: Any = event.payload
        call_id, content = tool_call_key(payload), payload.get("content")
        if isinstance(event, ToolCallContentChunkEvent):
            return
        known = self._terminals.pop(call_id, [])
        if isinstance(content, list):
            known = [each for each in content if _is_terminal(each)]
        outputs = tuple(terminal_payloads(event.extensions, call_id))
        shown = with_terminals(known, outputs) or known
        for added in shown[len(known) :]:
            update = {"toolCallId": call_id, "content": added}
            yield {"sessionUpdate": "tool_call_content_chunk", **update}
        for each in outputs:
            output: Any = each
            yield from _terminal(
                TerminalOutputEvent(
                    session_id=event.session_id, seq=event.seq, ts=event.ts, payload=output
                )
            )
        if shown and not is_final_status(payload.get("status")):
            self._terminals[call_id] = shown

    def _other(
        self,
        event: _SettingsEvent
        | _WorkEvent
        | ApprovalMismatchEvent
        | PermissionRequestCreatedEvent
        | PermissionRequestResolvedEvent
        | SessionResetEvent
        | UnrecognizedUpdateEvent,
    ) -> Iterator[Update]:
        match event:
            case (
                AvailableCommandsUpdateEvent()
                | ConfigOptionsUpdateEvent()
                | CurrentModeUpdateEvent()
                | SessionConfigInitEvent()
                | SessionInfoUpdateEvent()
                | UsageUpdateEvent()
            ):
                yield from self._settings(event)
            case (
                ForegroundEvent()
                | PlanEvent()
                | PlanRemovedEvent()
                | PlanUpdateEvent()
                | PromptFinishedEvent()
                | SessionStatusChangeEvent()
            ):
                yield from self._work(event)
            case UnrecognizedUpdateEvent():
                if event.payload.get("sessionUpdate") == ELICITATION_UPDATED:
                    yield from self._request(event, event.payload.get("status") == "pending")
                yield from _unrecognized(event)
            case SessionResetEvent():
                self._open = None
            case PermissionRequestCreatedEvent() | PermissionRequestResolvedEvent():
                is_pending = isinstance(event, PermissionRequestCreatedEvent)
                yield from self._request(event, is_pending)
            case ApprovalMismatchEvent():
                pass  # ours alone
            case _:
                assert_never(event)

    def _chunk(self, event: _ChunkEvent) -> Update:
        payload: Any = event.payload
        name = event.type.replace("-", "_")
        message_id = payload.get("messageId")
        if not isinstance(message_id, str):
            message_id = self._own_id(name, event.seq)
        else:
            self._open = None
        own = _own(event)
        content = payload.get("content")
        if own.get("whole") is True:
            name, content = name.removesuffix("_chunk"), [content]
        update = {"sessionUpdate": name, "messageId": message_id, "content": content}
        return _with_extensions(update, event)

    def _own_id(self, name: str, seq: int) -> str:
        """Return the id of a message that has none: chunks of one kind in a row are one message."""
        if self._open is None or self._open[0] != name:
            self._open = (name, f"qd-{seq}")
        return self._open[1]

    # ---- work ----------------------------------------------------------------------------------

    def _request(self, event: Event, is_pending: bool) -> Iterator[Update]:  # noqa: FBT001 - a fact
        """Yield the state of an agent that waits for a request, or does so no more."""
        before = bool(self._waiting)
        change = self._waiting.add if is_pending else self._waiting.discard
        change(str(event.payload.get("requestId")))
        if self._is_working and not self._reports_states and before != bool(self._waiting):
            yield _state("requires_action" if self._waiting else "running")

    def _status(self, status: Any) -> Iterator[Update]:
        if status == "prompting" and not self._is_working:
            self._is_working, self._is_unknown = True, False
            yield _state("running")
        elif status == "disconnected" and not self._is_unknown:
            self._is_working, self._is_unknown = False, True
            self._waiting.clear()
            yield _state("unknown")
        elif status in ("closed", "deleted") and self._is_working:
            self._is_working = False
            yield {**_state("idle"), "stopReason": "cancelled"}
        elif status in ("active", "closed", "deleted") and self._is_unknown:
            self._is_unknown = False
            yield _state("idle")

    def _work(self, event: _WorkEvent) -> Iterator[Update]:
        payload: Any = event.payload
        match event:
            case ForegroundEvent():
                self._is_working = payload.get("state") in _WORKING
                self._reports_states, self._is_unknown = True, False
                state = {key: value for key, value in payload.items() if key != "promptKey"}
                yield _with_extensions(
                    {"sessionUpdate": "state_update", **state, **_own(event)}, event
                )
            case PlanEvent() | PlanRemovedEvent() | PlanUpdateEvent():
                yield from _plan(event)
            case PromptFinishedEvent():
                self._open = None
                if self._is_working:
                    self._is_working = False
                    yield _idle(payload)
            case SessionStatusChangeEvent():
                yield from self._status(payload.get("status"))
            case _:
                assert_never(event)

    # ---- settings ------------------------------------------------------------------------------

    def _settings(self, event: _SettingsEvent) -> Iterator[Update]:
        payload: Any = event.payload
        match event:
            case AvailableCommandsUpdateEvent():
                commands = [
                    command_to_acp2(each) for each in payload.get("availableCommands") or ()
                ]
                update = {"sessionUpdate": "available_commands_update"}
                yield _with_extensions({**update, "availableCommands": commands}, event)
            case ConfigOptionsUpdateEvent():
                yield self._options(payload.get("configOptions"), event)
            case SessionConfigInitEvent():
                yield from self._initial(payload, event)
            case CurrentModeUpdateEvent():
                self._mode = payload.get("currentModeId")
                if not self._has_options and self._modes:
                    yield self._options([], event)
            case SessionInfoUpdateEvent():
                yield _with_extensions({"sessionUpdate": "session_info_update", **payload}, event)
            case UsageUpdateEvent():
                yield _with_extensions({"sessionUpdate": "usage_update", **payload}, event)
            case _:
                assert_never(event)

    def _initial(self, payload: Mapping[str, Any], event: Event) -> Iterator[Update]:
        modes, options = payload.get("modes"), payload.get("configOptions")
        if isinstance(modes, Mapping):
            self._modes, self._mode = modes.get("availableModes") or (), modes.get("currentModeId")
        if isinstance(options, list) or self._modes:
            yield self._options(options or [], event)

    def _options(self, options: Any, event: Event) -> Update:
        given = options if isinstance(options, list) else []
        self._has_options = bool(given)
        verbatim = _own(event).get("configOptions")
        shown = verbatim if isinstance(verbatim, list) else options_to_acp2(given)
        if not given and self._modes:
            shown = [modes_as_option(self._modes, self._mode)]
        update = {"sessionUpdate": "config_option_update", "configOptions": shown}
        return _with_extensions(update, event)


def session_settings_v2(state: SessionState) -> dict[str, Any]:
    """Return the settings in the response to `session/new`, `session/resume`, `session/fork`."""
    plain = to_json(state)
    options, modes = options_to_acp2(plain["configOptions"]), plain["modes"]
    if not options and mode_ids(modes):
        options = [modes_as_option(modes["availableModes"], modes.get("currentModeId"))]
    commands = [command_to_acp2(each) for each in plain["availableCommands"]]
    settings = {"configOptions": options, "availableCommands": commands}
    return {name: value for name, value in settings.items() if value}


def _message(event: MessageUpdateEvent) -> Update:
    payload: Any = event.payload
    update = {
        "sessionUpdate": _NAMES.get(str(payload.get("kind")), "agent_message"),
        "messageId": payload.get("messageId"),
    }
    if "content" in payload:
        update["content"] = payload["content"]
    return _with_extensions(update, event)


def _call(event: _CallEvent) -> Update:
    payload: Any = event.payload
    if isinstance(event, ToolCallContentChunkEvent):
        content = content_to_acp2(payload.get("content"))
        update = {"toolCallId": payload.get("toolCallId"), "content": content}
        return _with_extensions({"sessionUpdate": "tool_call_content_chunk", **update}, event)
    own = _own(event)
    update = {"sessionUpdate": "tool_call_update", **payload}
    if isinstance(payload.get("content"), list):
        update["content"] = [content_to_acp2(each) for each in payload["content"]]
    for name in own.get("cleared") or ():
        update[name] = None
    if "capabilities" in own:
        update["capabilities"] = own["capabilities"]
    return _with_extensions(update, event)


def _is_terminal(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "terminal"


def _terminal(event: TerminalOutputEvent | TerminalUpdateEvent) -> Iterator[Update]:
    payload: Any = event.payload
    own, terminal_id = _own(event), payload.get("terminalId")
    if isinstance(event, TerminalOutputEvent):
        if payload.get("delta") is not None:
            data = own.get("data") or _base64(payload["delta"])
            chunk = {"terminalId": terminal_id, "data": data}
            yield _with_extensions({"sessionUpdate": "terminal_output_chunk", **chunk}, event)
        if payload.get("exit") is not None:
            facts = {"terminalId": terminal_id, "exitStatus": payload["exit"]}
            yield {"sessionUpdate": "terminal_update", **facts}
        return
    update: Update = {"sessionUpdate": "terminal_update", "terminalId": terminal_id}
    update |= {key: payload[key] for key in ("command", "cwd", "size") if key in payload}
    if "output" in payload:
        output = payload["output"]
        data = own.get("data") or (None if output is None else _base64(output.get("text", "")))
        update["output"] = None if output is None else {"data": data}
    if "exit" in payload:
        update["exitStatus"] = payload["exit"]
    if "capabilities" in own:
        update["capabilities"] = own["capabilities"]
    yield _with_extensions(update, event)


def _plan(event: PlanEvent | PlanRemovedEvent | PlanUpdateEvent) -> Iterator[Update]:
    payload: Any = event.payload
    own = _own(event)
    if own.get("derived"):
        return
    match event:
        case PlanRemovedEvent():
            yield _with_extensions({"sessionUpdate": "plan_removed", **payload}, event)
        case PlanUpdateEvent():
            yield _with_extensions({"sessionUpdate": "plan_update", "plan": dict(payload)}, event)
        case PlanEvent():
            plan = {"type": "items", "planId": own.get("planId", ONLY_PLAN), **payload}
            plan |= own.get("plan") or {}
            yield _with_extensions({"sessionUpdate": "plan_update", "plan": plan}, event)
        case _:
            assert_never(event)


def _unrecognized(event: UnrecognizedUpdateEvent) -> Iterator[Update]:
    payload: Any = event.payload
    ours = (event.extensions or {}).get("quarterdeck")
    is_invalid = isinstance(ours, Mapping) and "invalid" in ours
    if not is_invalid and payload.get("sessionUpdate") not in (None, ELICITATION_UPDATED):
        yield dict(payload)


def _state(state: str) -> Update:
    return {"sessionUpdate": "state_update", "state": state}


def _idle(payload: Mapping[str, Any]) -> Update:
    update: Update = {"sessionUpdate": "state_update", "state": "idle"}
    error = payload.get("error")
    update["stopReason"] = "error" if error is not None else payload.get("stopReason")
    for key in ("usage", "error"):
        if payload.get(key) is not None:
            update[key] = payload[key]
    return update


def _own(event: Event) -> Mapping[str, Any]:
    own = (event.extensions or {}).get(ACP2)
    return own if isinstance(own, Mapping) else {}


def _with_extensions(update: Update, event: Event) -> Update:
    """Add what an agent sent beside the fields of its type, and what we added as `_meta`."""
    for key, value in (event.extensions or {}).items():
        if key == "quarterdeck":
            meta = update.get("_meta")
            update["_meta"] = {**(meta if isinstance(meta, dict) else {}), key: value}
        elif key == "_meta" and isinstance(update.get("_meta"), dict) and isinstance(value, dict):
            update["_meta"] = {**value, **update["_meta"]}
        elif key != ACP2:
            update[key] = value
    return update


def _base64(text: Any) -> str:
    return base64.b64encode(str(text).encode(errors="replace")).decode()

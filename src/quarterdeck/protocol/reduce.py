"""`reduce`: the next state of a session, from the previous one and an event.

Pure: it changes nothing, reads no clock and returns the same state everywhere. Of `seq` and `ts` it
stores only `seq`, and it does not check which session an event belongs to: ordering, deduplication
and repair happen earlier. Constant cost: an event costs the same at position 10 and at position
100,000 (`persistent`, `terminal_output`). Nothing validates an agent's payload before it arrives
here, so any JSON is accepted: a missing value is None, and a value that should be a list and is not
becomes its only element.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol.events import (
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
)
from quarterdeck.protocol.payloads import MessageKind, has_agent, is_session_status
from quarterdeck.protocol.persistent import Blocks
from quarterdeck.protocol.state import (
    PendingPermissionRequest,
    ResolvedPermissionRequest,
    SessionConnectionState,
    SessionInfoState,
    SessionMessage,
    SessionState,
    SessionUsageState,
    TerminalOutputState,
    initial_state,
)
from quarterdeck.protocol.terminal_output import TailBuffer
from quarterdeck.protocol.tool_calls import (
    documented_announcement,
    documented_chunk,
    documented_update,
)

TERMINAL_OUTPUT_LIMIT: Final = 1024 * 1024
"""Bytes kept of one terminal's output, the newest."""

RESOLVED_PERMISSIONS_LIMIT: Final = 100
"""Resolved permission requests kept, the newest."""

TERMINAL_FACTS: Final = ("exit", "command", "cwd", "size", "cancellable")

PLANS_LIMIT: Final = 100
"""Plans kept by their ids, those that changed last."""

_ConfigEvent: TypeAlias = (
    AvailableCommandsUpdateEvent
    | ConfigOptionsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
)
_WorkEvent: TypeAlias = (
    ForegroundEvent
    | MessageUpdateEvent
    | PlanRemovedEvent
    | PlanUpdateEvent
    | TerminalUpdateEvent
    | ToolCallContentChunkEvent
)
"""What only agents with ACP 2 report."""
_ProgressEvent: TypeAlias = (
    PlanEvent
    | PromptFinishedEvent
    | SessionInfoUpdateEvent
    | SessionStatusChangeEvent
    | UsageUpdateEvent
)


def reduce(state: SessionState, event: Event) -> SessionState:
    """Return the state after `event`, or the same object if the event does not affect states.

    Those events are `unrecognized-update`, all host events, events of unknown types, an update or
    content chunk of an unknown tool call, a `message-update` without content, and the removal of an
    unknown plan.
    """
    known: AnyEvent = event  # type: ignore[assignment]  # as `any_event`, without a call
    match known:  # the frequent ones first: each case costs 40 ns
        case AgentMessageChunkEvent():
            return _with_chunk(state, "agent", known)
        case ToolCallUpdateEvent():
            return _with_tool_call_update(state, known)
        case AgentThoughtChunkEvent():
            return _with_chunk(state, "thought", known)
        case TerminalOutputEvent():
            return _with_terminal_output(state, known)
        case ToolCallEvent():
            return _with_tool_call(state, known)
        case UserMessageChunkEvent():
            return _with_chunk(state, "user", known)
        case SessionEvent():
            return _with_rare_event(state, known)
        case HostEvent() | UnknownEvent():
            return state
        case _:
            assert_never(known)


def _with_rare_event(
    state: SessionState,
    event: _ConfigEvent
    | _ProgressEvent
    | PermissionRequestCreatedEvent
    | PermissionRequestResolvedEvent
    | ApprovalMismatchEvent
    | SessionResetEvent
    | UnrecognizedUpdateEvent
    | _WorkEvent,
) -> SessionState:
    match event:
        case (
            PlanEvent()
            | PromptFinishedEvent()
            | SessionInfoUpdateEvent()
            | SessionStatusChangeEvent()
            | UsageUpdateEvent()
        ):
            return _with_progress(state, event)
        case PermissionRequestCreatedEvent():
            return _with_permission_request(state, event)
        case PermissionRequestResolvedEvent():
            return _with_permission_resolved(state, event)
        case SessionResetEvent(session_id=session_id):
            return initial_state(session_id)
        case ApprovalMismatchEvent() | UnrecognizedUpdateEvent():
            return state  # the states of the seed have no place for them
        case (
            AvailableCommandsUpdateEvent()
            | ConfigOptionsUpdateEvent()
            | CurrentModeUpdateEvent()
            | SessionConfigInitEvent()
        ):
            return _with_config(state, event)
        case (
            ForegroundEvent()
            | MessageUpdateEvent()
            | PlanRemovedEvent()
            | PlanUpdateEvent()
            | TerminalUpdateEvent()
            | ToolCallContentChunkEvent()
        ):
            return _with_work(state, event)
        case _:
            assert_never(event)


def _with_work(state: SessionState, event: _WorkEvent) -> SessionState:
    payload: Any = event.payload
    match event:
        case ToolCallContentChunkEvent():
            return _with_tool_call_content(state, payload)
        case TerminalUpdateEvent():
            return _with_terminal_update(state, payload)
        case MessageUpdateEvent():
            return _with_message(state, event)
        case ForegroundEvent():
            return replace(state, foreground=payload)
        case PlanUpdateEvent():
            plans = {} if state.plans is UNSET else dict(state.plans)
            key = _text(payload.get("planId"))
            plans.pop(key, None)  # the one that changed last is the last
            plans[key] = payload
            if len(plans) > PLANS_LIMIT:
                del plans[next(iter(plans))]
            return replace(state, plans=plans)
        case PlanRemovedEvent():
            key = _text(payload.get("planId"))
            if state.plans is UNSET or key not in state.plans:
                return state
            return replace(state, plans={k: v for k, v in state.plans.items() if k != key})
        case _:
            assert_never(event)


def _with_message(state: SessionState, event: MessageUpdateEvent) -> SessionState:
    """Replace the content of a message, or start one; one without an id cannot be named."""
    payload: Any = event.payload
    kind, message_id, content = (payload.get(name) for name in ("kind", "messageId", "content"))
    if content is None or message_id is None:
        return state
    messages, key = state.messages, _message_key(kind, message_id)
    position, blocks = messages.position(key), Blocks.of(_elements(content))
    if position < 0:
        message = SessionMessage(kind, message_id, blocks, event.seq)
        return replace(state, messages=messages.appended(key, message))
    message = SessionMessage(kind, message_id, blocks, messages.at(position).seq)
    return replace(state, messages=messages.replaced(position, message))


def _with_tool_call_content(state: SessionState, payload: Any) -> SessionState:
    position = state.tool_calls.position(_text(payload.get("toolCallId")))
    if position < 0:
        return state
    call = documented_chunk(state.tool_calls.at(position), payload)
    return replace(state, tool_calls=state.tool_calls.replaced(position, call))


def _with_terminal_update(state: SessionState, payload: Any) -> SessionState:
    """Change what the update names; null removes it."""
    key = _text(payload.get("terminalId"))
    position = state.terminals.position(key)
    old = TerminalOutputState(TailBuffer.empty()) if position < 0 else state.terminals.at(position)
    changes: dict[str, Any] = {
        name: UNSET if payload[name] is None else payload[name]
        for name in TERMINAL_FACTS
        if name in payload
    }
    if "output" in payload:
        output = payload["output"] if isinstance(payload["output"], dict) else {}
        text, is_cut = output.get("text"), bool(output.get("truncated"))
        piece = "" if text is None else _text(text)
        buffer, was_cut = TailBuffer.empty().extended(piece, TERMINAL_OUTPUT_LIMIT)
        changes |= {"buffer": buffer, "truncated": is_cut or was_cut}
    terminal = replace(old, **changes)
    return replace(state, terminals=state.terminals.with_entry(key, terminal))


def _with_chunk(
    state: SessionState,
    kind: MessageKind,
    event: AgentMessageChunkEvent | AgentThoughtChunkEvent | UserMessageChunkEvent,
) -> SessionState:
    """Append a chunk to its message, or start a new one.

    A chunk with a `messageId` belongs to the message of the same kind and id, at any position.
    (acpjs scans from the end; there is at most one, so a lookup finds the same.) A chunk without
    one belongs to the newest message, if that has the same kind and no id either.
    """
    payload: Any = event.payload
    messages, message_id, block = state.messages, payload.get("messageId"), payload.get("content")
    newest, position = messages.newest, -1
    # A message without an id is never looked up; its position makes a key that is its own.
    key: object = len(messages)
    if not isinstance(message_id, str | None):
        key = _message_key(kind, message_id)
        position = messages.position(key)
    elif newest is not None and newest.kind == kind and newest.message_id == message_id:
        position = len(messages) - 1
    elif message_id is not None:
        key = _message_key(kind, message_id)
        position = messages.position(key)
    if position < 0:
        message = SessionMessage(kind, message_id, Blocks(block), event.seq)
        return replace(state, messages=messages.appended(key, message))
    found = messages.at(position)
    message = SessionMessage(kind, message_id, found.content.appended(block), found.seq)
    return replace(state, messages=messages.replaced(position, message))


def _message_key(kind: MessageKind, message_id: object) -> object:
    """Return a key for kind and id; the most frequent one is the id itself: no new object."""
    if kind == "agent" and isinstance(message_id, str):
        return message_id
    return (kind, message_id if isinstance(message_id, str) else encode_json(message_id))


def _with_tool_call(state: SessionState, event: ToolCallEvent) -> SessionState:
    payload: Any = event.payload
    call = documented_announcement(payload, event.extensions, event.seq)
    key = _text(call.tool_call_id)
    return replace(state, tool_calls=state.tool_calls.with_entry(key, call))


def _with_tool_call_update(state: SessionState, event: ToolCallUpdateEvent) -> SessionState:
    payload: Any = event.payload
    position = state.tool_calls.position(_text(payload.get("toolCallId")))
    if position < 0:
        return state
    call = documented_update(state.tool_calls.at(position), payload, event.extensions)
    return replace(state, tool_calls=state.tool_calls.replaced(position, call))


def _with_terminal_output(state: SessionState, event: TerminalOutputEvent) -> SessionState:
    payload: Any = event.payload
    key, delta, end = _text(payload.get("terminalId")), payload.get("delta"), payload.get("exit")
    position = state.terminals.position(key)
    old = TerminalOutputState(TailBuffer.empty()) if position < 0 else state.terminals.at(position)
    buffer, was_cut = old.buffer, False
    if delta is not None:
        buffer, was_cut = buffer.extended(_text(delta), TERMINAL_OUTPUT_LIMIT)
    terminal = TerminalOutputState(
        buffer,
        old.truncated or was_cut or bool(payload.get("truncated")),
        old.exit if end is None else end,
        old.command,
        old.cwd,
        old.size,
        old.cancellable,
    )
    return replace(state, terminals=state.terminals.with_entry(key, terminal))


def _with_permission_request(
    state: SessionState, event: PermissionRequestCreatedEvent
) -> SessionState:
    payload: Any = event.payload
    request = PendingPermissionRequest(
        payload.get("requestId"), payload.get("toolCall"), _elements(payload.get("options"))
    )
    pending = (*state.pending_permission_requests, request)
    return replace(state, pending_permission_requests=pending)


def _with_permission_resolved(
    state: SessionState, event: PermissionRequestResolvedEvent
) -> SessionState:
    """Move a request from pending to resolved; an unknown one gets a placeholder tool call."""
    payload: Any = event.payload
    request_id, requests = payload.get("requestId"), state.pending_permission_requests
    tool_calls = [one.tool_call for one in requests if one.request_id == request_id]
    resolved = ResolvedPermissionRequest(
        request_id,
        tool_calls[0] if tool_calls else {"toolCallId": request_id},
        payload.get("status"),
        payload.get("outcome", UNSET),
    )
    kept = (*state.resolved_permission_requests, resolved)[-RESOLVED_PERMISSIONS_LIMIT:]
    return replace(
        state,
        pending_permission_requests=tuple(one for one in requests if one.request_id != request_id),
        resolved_permission_requests=kept,
    )


def _with_config(state: SessionState, event: _ConfigEvent) -> SessionState:
    payload: Any = event.payload
    match event:
        case AvailableCommandsUpdateEvent():
            return replace(state, available_commands=_elements(payload.get("availableCommands")))
        case ConfigOptionsUpdateEvent():
            return replace(state, config_options=_elements(payload.get("configOptions")))
        case CurrentModeUpdateEvent():
            modes: Any = state.modes if isinstance(state.modes, dict) else {"availableModes": []}
            current = payload.get("currentModeId")
            return replace(state, modes={**modes, "currentModeId": current})
        case SessionConfigInitEvent():
            modes, options = payload.get("modes"), payload.get("configOptions")
            return replace(
                state,
                modes=state.modes if modes is None else modes,
                config_options=state.config_options if options is None else _elements(options),
            )
        case _:
            assert_never(event)


def _with_progress(state: SessionState, event: _ProgressEvent) -> SessionState:
    payload: Any = event.payload
    match event:
        case PlanEvent():
            return replace(state, plan=payload)
        case UsageUpdateEvent():
            used, size, cost = payload.get("used"), payload.get("size"), payload.get("cost")
            return replace(state, usage=SessionUsageState(used, size, cost))
        case SessionInfoUpdateEvent():
            info = SessionInfoState(
                payload.get("title", state.info.title),
                payload.get("updatedAt", state.info.updated_at),
            )
            return replace(state, info=info)
        case PromptFinishedEvent():
            return replace(
                state,
                last_stop_reason=payload.get("stopReason"),
                last_turn_usage=payload.get("usage"),
                last_prompt_error=payload.get("error"),
            )
        case SessionStatusChangeEvent():
            status, resumed = payload.get("status"), payload.get("resumed")
            if resumed is None:
                resumed = state.connection.resumed and _has_agent(status)
            return replace(state, connection=SessionConnectionState(status, resumed))
        case _:
            assert_never(event)


def _has_agent(status: object) -> bool:
    """Return whether a session with this status has an agent; so has one of an unknown status."""
    return not is_session_status(status) or has_agent(status)


def _text(value: object) -> str:
    """Return an id or a text unchanged, any other JSON value as its JSON text."""
    return value if isinstance(value, str) else encode_json(value).decode()


def _elements(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    return () if value is None else (value,)

"""Events to packets, one by one; `PacketProjector` and `PacketRows` are the two ways to use it.

    event                          packets
    agent-message-chunk            agent_message_chunk; then artifact_created. A link that only
                                   stands for the artifact has no chunk of its own
    agent-thought-chunk            agent_thought_chunk
    user-message-chunk             user_message_chunk: not part of the stream, only rows use it
    tool-call, tool-call-update    tool_call_start if it is new, tool_call_progress if it is not
                                   or has begun; then artifact_created
    permission-request-created     tool_call_start if the call is new; approval_requested
    approval-mismatch              tool_call_progress, with the mismatch in its _meta
    plan                           agent_plan_update
    current-mode-update            current_mode_update
    usage-update                   context_usage
    prompt-finished                tool_call_progress for every call left open;
                                   prompt_response, or error
    session-status-change          the same with error, if the agent exited during a turn
    unrecognized-update            `PacketDrafts`: the drafts of ACP that have a packet
    everything else                none

A packet of a tool call carries everything known of the call, not only what changed (`tool_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, assert_never

from quarterdeck.protocol import (
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
    any_event,
    is_session_status,
)
from quarterdeck.protocol.shown_events import terminal_payloads, with_terminals
from quarterdeck.protocol.tool_calls import is_closed_by_host
from quarterdeck.views.packets import builders
from quarterdeck.views.packets.tool_calls import PacketToolCall, PacketToolCalls
from quarterdeck.views.packets.tools import as_code, as_number, as_object, as_text, text_of
from quarterdeck.views.packets.types import Json, Packet

_CHILD_KEYS: Final = ("subagentSessionId", "childSessionId", "sessionId", "subagentId")

_MOST_COMPACTIONS: Final = 16  # in progress at a time; an agent has one


class PacketDrafts:
    """Reads updates that ACP has as drafts; holds the summaries of compactions in progress."""

    def __init__(self) -> None:
        self._summaries: dict[str, list[str]] = {}
        self._ended: dict[str, None] = {}
        """Compactions that have ended: some agents report the end twice."""
        self._children: dict[str, None] = {}
        """Sub-agents that were announced."""

    def packets(self, update: Mapping[str, Any], session_id: str, time: str) -> list[Packet]:
        match update.get("sessionUpdate"):
            case "plan_update":
                plan = as_object(update.get("plan"))
                is_list = isinstance(plan.get("entries"), list)
                return [builders.agent_plan_update(plan["entries"], time)] if is_list else []
            case "plan_removed":
                return [builders.agent_plan_update([], time)]
            case "compaction_summary_chunk":
                self._summary(update).append(text_of(update.get("content")))
                return []
            case "compaction_update":
                return self._compaction(update, time)
            case "subagent_spawned" | "subagent_update":
                named = (as_text(update.get(key)) for key in _CHILD_KEYS)
                child = next((name for name in named if name), "")
                if not child or not _is_first(self._children, child):
                    return []
                return [builders.subagent_started(child, session_id, time)]
            case _:
                return []

    def _compaction(self, update: Mapping[str, Any], time: str) -> list[Packet]:
        summary = self._summary(update)
        if "summary" in update:
            summary[:] = [text_of(update["summary"])]
        if update.get("status") == "in_progress":
            return []
        key = as_text(update.get("compactionId"))
        del self._summaries[key]
        is_done = update.get("status") == "completed" and _is_first(self._ended, key)
        return [builders.compaction("".join(summary) or None, time)] if is_done else []

    def _summary(self, update: Mapping[str, Any]) -> list[str]:
        key = as_text(update.get("compactionId"))
        if key not in self._summaries and len(self._summaries) >= _MOST_COMPACTIONS:
            del self._summaries[next(iter(self._summaries))]
        return self._summaries.setdefault(key, [])


def _is_first(known: dict[str, None], key: str) -> bool:
    """Note a key; return whether it is new. The oldest are forgotten."""
    if key in known:
        return False
    if len(known) >= _MOST_COMPACTIONS:
        del known[next(iter(known))]
    known[key] = None
    return True


Style: TypeAlias = Literal["plain", "tagged"]

_PacketEvent: TypeAlias = (
    ApprovalMismatchEvent
    | PlanEvent
    | CurrentModeUpdateEvent
    | UsageUpdateEvent
    | PromptFinishedEvent
    | SessionStatusChangeEvent
    | SessionResetEvent
)
_IgnoredEvent: TypeAlias = (
    AvailableCommandsUpdateEvent
    | ForegroundEvent
    | PlanRemovedEvent
    | PlanUpdateEvent
    | SessionConfigInitEvent
    | ConfigOptionsUpdateEvent
    | SessionInfoUpdateEvent
    | PermissionRequestResolvedEvent
)
_Handler: TypeAlias = Callable[["Projection", Event, Json], list[Packet]]
_HANDLERS: Final[dict[type[Event], _Handler]] = {}
"""The method for each class of events. `_handler` finds it once: mypy checks its `match` for
completeness, but run for every event it would be slow."""


class HasSessionId(Protocol):
    """Any object with a session id, for example a snapshot of the host."""

    @property
    def session_id(self) -> str: ...


class Projection:
    """Makes packets from events; holds what later events need of earlier ones."""

    def __init__(self, session: str | HasSessionId, style: Style) -> None:
        self.session_id = session if isinstance(session, str) else session.session_id
        self._is_tagged = style == "tagged"
        self._calls = PacketToolCalls()
        self._drafts = PacketDrafts()
        self._is_prompting = False
        self._is_replaying = False

    def feed(self, event: Event) -> list[Packet]:
        """Return the packets of one event; an event of another session is a subagent's."""
        if event.session_id is None:
            return []
        handler = _HANDLERS.get(type(event))
        if handler is None:
            handler = _HANDLERS[type(event)] = self._handler(any_event(event))
        packets = handler(self, event, event.payload)
        return self._tag(packets, event) if self._is_tagged else packets

    @staticmethod
    def _handler(event: AnyEvent) -> _Handler:
        match event:
            case UserMessageChunkEvent() | AgentMessageChunkEvent() | AgentThoughtChunkEvent():
                return Projection._chunk
            case ToolCallEvent() | ToolCallUpdateEvent():
                return Projection._tool
            case TerminalOutputEvent():
                return Projection._terminal
            case PermissionRequestCreatedEvent():
                return Projection._permission
            case UnrecognizedUpdateEvent():
                return Projection._draft
            case MessageUpdateEvent() | TerminalUpdateEvent() | ToolCallContentChunkEvent():
                return Projection._handler_of_work(event)
            case SessionEvent():
                return Projection._handler_of_other(event)
            case HostEvent() | UnknownEvent():
                return Projection._ignored
            case _:
                assert_never(event)

    @staticmethod
    def _handler_of_work(
        event: MessageUpdateEvent | TerminalUpdateEvent | ToolCallContentChunkEvent,
    ) -> _Handler:
        match event:
            case MessageUpdateEvent():
                return Projection._message
            case TerminalUpdateEvent():
                return Projection._terminal_update
            case ToolCallContentChunkEvent():
                return Projection._tool_content
            case _:
                assert_never(event)

    @staticmethod
    def _handler_of_other(event: _PacketEvent | _IgnoredEvent) -> _Handler:
        match event:
            case PlanEvent():
                return Projection._plan
            case ApprovalMismatchEvent():
                return Projection._mismatch
            case CurrentModeUpdateEvent():
                return Projection._mode
            case UsageUpdateEvent():
                return Projection._usage
            case PromptFinishedEvent():
                return Projection._finished
            case SessionStatusChangeEvent():
                return Projection._status
            case SessionResetEvent():
                return Projection._reset
            case (
                AvailableCommandsUpdateEvent()
                | ForegroundEvent()
                | PlanRemovedEvent()
                | PlanUpdateEvent()  # a list of entries has a `plan` as well
                | SessionConfigInitEvent()
                | ConfigOptionsUpdateEvent()
                | SessionInfoUpdateEvent()
                | PermissionRequestResolvedEvent()
            ):
                return Projection._ignored
            case _:
                assert_never(event)

    def _ignored(self, _event: Event, _payload: Json) -> list[Packet]:
        return []

    def _tag(self, packets: list[Packet], event: Event) -> list[Packet]:
        """Add to every packet the keys that newer readers look for first."""
        timestamp = builders.iso_time(event.ts)
        for packet in packets:
            if packet.get("sessionUpdate") == "tool_call":
                packet["type"] = "tool_call_start"
            packet.setdefault("timestamp", timestamp)
        return packets

    def _meta(self, event: Event) -> Json | None:
        """Return the `_meta` of a packet: the agent's own, and the session of a subagent."""
        extensions = event.extensions
        meta = None if extensions is None else extensions.get("_meta")
        if event.session_id == self.session_id:
            return meta if isinstance(meta, dict) else None
        origin = {"sessionId": event.session_id, "parentSessionId": self.session_id}
        return {**meta, **origin} if isinstance(meta, dict) else origin

    def _chunk(self, event: Event, payload: Json) -> list[Packet]:
        meta = self._meta(event)
        message_id = payload.get("messageId")
        if isinstance(message_id, str):
            meta = {"messageId": message_id, **(meta or {})}
        is_agents = event.type != "user-message-chunk"
        artifact = _artifact(meta) if meta is not None and is_agents else None
        if artifact is not None and meta is not None:
            # Not in both packets: a reader that converts them back would announce it twice.
            meta = {key: value for key, value in meta.items() if key != "artifact"} or None
        block = builders.whole_block(payload.get("content"))
        created = [] if artifact is None else [artifact]
        if block is None or (created and _is_link_to(artifact, block)):
            return created
        name = event.type.replace("-", "_")
        return [{"_meta": meta, "content": block, "sessionUpdate": name, "type": name}, *created]

    def _message(self, event: Event, payload: Json) -> list[Packet]:
        """Show a replaced message as a new one: packets cannot replace a message."""
        content, message_id = payload.get("content"), payload.get("messageId")
        replaced = {"messageId": f"{message_id}~{event.seq}"}
        meta = {**replaced, **(self._meta(event) or {}), "quarterdeck": {"replaces": message_id}}
        name = {"user": "user_message_chunk", "thought": "agent_thought_chunk"}.get(
            as_text(payload.get("kind")), "agent_message_chunk"
        )
        blocks = map(builders.whole_block, content if isinstance(content, list) else [])
        return [
            {"_meta": meta, "content": block, "sessionUpdate": name, "type": name}
            for block in blocks
            if block is not None
        ]

    def _tool_content(self, event: Event, payload: Json) -> list[Packet]:
        """Add an element to a call; the next packet of the call has it."""
        call_id, session = payload.get("toolCallId"), event.session_id
        if isinstance(call_id, str) and session is not None:
            call = self._calls.find(session, call_id)
            if call is not None:
                call.extend(payload)
        return []

    def _tool(self, event: Event, payload: Json) -> list[Packet]:
        if is_closed_by_host(event.extensions):
            return []  # the end of the turn ends what is open
        call_id, session = payload.get("toolCallId"), event.session_id
        if not isinstance(call_id, str) or session is None:
            return []
        call = self._calls.find(session, call_id)
        if call is not None and event.type == "tool-call" and not call.is_open(self._calls.turn):
            call = None  # a new call with the id of an old one
        is_new = call is None
        if call is None:
            call = self._calls.begin(session, call_id)
        is_ours = event.extensions is not None and "quarterdeck" in event.extensions
        before = call.snapshot(None, names=False) if is_ours and not is_new else None
        outputs = tuple(terminal_payloads(event.extensions, call_id))
        if outputs:
            payload = self._take_terminals(call, session, payload, outputs)
        meta = self._apply_call(call, event, payload)
        packets = [builders.tool_call_start(self._snapshot(call, meta))] if is_new else []
        is_repeated = before is not None and _is_same(before, call.snapshot(None, names=False))
        if (not is_new or call.status != "pending" or _is_update(event)) and not is_repeated:
            packets.append(self._progress(call, event, meta))
        artifact = _artifact(meta) if meta else None
        return packets if artifact is None else [*packets, artifact]

    def _apply_call(self, call: PacketToolCall, event: Event, payload: Json) -> Json | None:
        meta = self._meta(event)
        if meta is not None or event.extensions is not None:
            call.declare(_declared_name(event.extensions or {}, meta or {}), meta or {})
        if event.type == "tool-call":
            call.announce(payload)
        else:
            call.update(payload)
        self._calls.sort(call)
        return meta

    def _snapshot(self, call: PacketToolCall, meta: Json | None) -> builders.ToolSnapshot:
        return call.snapshot(meta, names=self._is_tagged)

    def _progress(self, call: PacketToolCall, event: Event, meta: Json | None) -> Packet:
        return builders.tool_call_progress(self._snapshot(call, meta), builders.iso_time(event.ts))

    def _permission(self, event: Event, payload: Json) -> list[Packet]:
        request_id, tool_call = payload.get("requestId"), payload.get("toolCall")
        session = event.session_id or self.session_id
        packets: list[Packet] = []
        if isinstance(tool_call, dict) and isinstance(call_id := tool_call.get("toolCallId"), str):
            call = self._calls.find(session, call_id)
            is_new = call is None or not call.is_open(self._calls.turn)
            if call is None or is_new:
                call = self._calls.begin(session, call_id)
            call.request(tool_call)
            self._calls.sort(call)
            packets = [builders.tool_call_start(self._snapshot(call, None))] if is_new else []
        if isinstance(request_id, str):
            time = builders.iso_time(event.ts)
            packets.append(builders.approval_requested(request_id, session, time))
        return packets

    def _plan(self, event: Event, payload: Json) -> list[Packet]:
        time = builders.iso_time(event.ts)
        return [builders.agent_plan_update(payload.get("entries"), time, self._meta(event))]

    def _mode(self, event: Event, payload: Json) -> list[Packet]:
        mode = payload.get("currentModeId") or (event.extensions or {}).get("modeId")
        return (
            [builders.current_mode_update(mode, self._meta(event))] if isinstance(mode, str) else []
        )

    def _usage(self, event: Event, payload: Json) -> list[Packet]:
        used, cost = as_number(payload.get("used")), payload.get("cost")
        if used is None:
            return []
        amount = as_number(cost.get("amount")) if isinstance(cost, dict) else None
        return [builders.context_usage(int(used), amount, builders.iso_time(event.ts))]

    def _finished(self, event: Event, payload: Json) -> list[Packet]:
        if event.session_id != self.session_id:
            return self._close(event, payload.get("stopReason"))
        self._is_prompting = False
        failure, reason = payload.get("error"), payload.get("stopReason")
        packets = self._close(event, reason)
        self._calls.turn += 1
        if isinstance(failure, dict):
            text = as_text(failure.get("message")) or "the agent failed and did not say why"
            return [*packets, builders.error(text, as_code(failure.get("code")) or None)]
        reason = reason if isinstance(reason, str) and reason else "end_turn"
        return [*packets, builders.prompt_response(reason)]

    def _close(self, event: Event, reason: object) -> list[Packet]:
        """End the calls that were left open: a subagent's, or all when the turn has ended."""
        is_all = event.session_id == self.session_id
        packets = [
            self._progress(call, event, None)
            for call in self._calls.end_open(None if is_all else event.session_id)
        ]
        if self._is_tagged and reason == "cancelled":
            for packet in packets:
                packet["status"] = "cancelled"
        return packets

    def _status(self, event: Event, payload: Json) -> list[Packet]:
        if event.session_id != self.session_id:
            return []
        status, was_prompting = payload.get("status"), self._is_prompting
        self._is_prompting = status == "prompting"
        if self._is_prompting:
            self._calls.turn += 1
        failure = _failure(status) if was_prompting else None
        if failure is not None:
            self._calls.turn += 1
            return [*self._close(event, None), builders.error(failure, f"session_{status}")]
        if self._is_replaying:
            self._is_replaying = False
            self._calls.turn += 1
            return self._close(event, None)
        return []

    def _reset(self, event: Event, _payload: Json) -> list[Packet]:
        if event.session_id == self.session_id:
            self._calls.clear()
            self._is_prompting = False
            self._is_replaying = True
        return []

    def _terminal(self, event: Event, payload: Json) -> list[Packet]:
        terminal, delta = payload.get("terminalId"), payload.get("delta")
        session = event.session_id
        if session is not None and isinstance(terminal, str) and isinstance(delta, str) and delta:
            self._calls.terminals.extend((session, terminal), delta)
        return []

    def _take_terminals(
        self, call: PacketToolCall, session: str, payload: Json, outputs: Sequence[Json]
    ) -> Json:
        """Take the output of an agent's own terminals; return an update that shows them."""
        for output in outputs:
            if "delta" in output:
                self._calls.terminals.extend((session, output["terminalId"]), output["delta"])
        sent = payload.get("content")
        content = with_terminals(sent if isinstance(sent, list) else call.content, outputs)
        return payload if content is None else {**payload, "content": content}

    def _terminal_update(self, event: Event, payload: Json) -> list[Packet]:
        terminal, output = payload.get("terminalId"), payload.get("output")
        if event.session_id is not None and isinstance(terminal, str) and "output" in payload:
            text = as_text(as_object(output).get("text"))
            self._calls.terminals.replace((event.session_id, terminal), text)
        return []

    def _mismatch(self, event: Event, payload: Json) -> list[Packet]:
        call_id = payload.get("toolCallId")
        session = event.session_id or self.session_id
        call = self._calls.find(session, call_id) if isinstance(call_id, str) else None
        if call is None:
            return []
        return [self._progress(call, event, {"quarterdeck": {"approvalMismatch": payload}})]

    def _draft(self, event: Event, payload: Json) -> list[Packet]:
        return self._drafts.packets(payload, self.session_id, builders.iso_time(event.ts))


def _is_same(before: builders.ToolSnapshot, after: builders.ToolSnapshot) -> bool:
    try:
        return before == after
    except RecursionError:  # an agent can nest its input to any depth
        return False


def _failure(status: object) -> str | None:
    """Return why a turn cannot continue in a session of this status."""
    if not is_session_status(status):
        return None
    match status:
        case "disconnected":
            return "the agent is gone; resume the session to go on"
        case "closed":
            return "the session was closed"
        case "deleted":
            return "the session was deleted"
        case "creating" | "active" | "prompting" | "resuming":
            return None
        case _:
            assert_never(status)


def _is_update(event: Event) -> bool:
    return event.type == "tool-call-update"


def _artifact(meta: Json) -> Packet | None:
    """Return the packet of the artifact in `_meta.artifact`, if it is complete."""
    artifact = meta.get("artifact")
    if not isinstance(artifact, dict):
        return None
    if not all(isinstance(artifact.get(key), str) for key in ("id", "type", "name", "path")):
        return None
    kept = {key: artifact[key] for key in ("id", "type", "name", "path")}
    if "preview_url" in artifact:
        url = artifact["preview_url"]
        kept["preview_url"] = url if isinstance(url, str) else None
    return builders.artifact_created(kept)


def _is_link_to(artifact: Packet | None, block: Json) -> bool:
    """Return whether a block is nothing but the link to an artifact, or has no text at all."""
    if block.get("type") == "text":
        return not block["text"]
    path = as_object(as_object(artifact).get("artifact")).get("path")
    return block.get("type") == "resource_link" and block.get("uri") == path


def _declared_name(extensions: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Return the agent's name of the tool: next to the call, in `_meta`, or in a vendor's part."""
    vendors = [value for value in meta.values() if isinstance(value, dict)]
    for source in (extensions, meta, *vendors):
        for key in ("toolName", "tool_name"):
            if isinstance(name := source.get(key), str) and name:
                return name
    name = extensions.get("name")
    return name if isinstance(name, str) else ""

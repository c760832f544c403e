"""The log as ACP session updates, for editors.

`session_updates` returns the updates of one event. What Quarterdeck added to an event is sent as
`_meta.quarterdeck`: ACP reserves the other keys of an update.

`AcpTerminals` replaces terminals by their output. The host runs the agent's terminals, so an editor
cannot look them up by id: where a tool call shows a terminal, the editor gets the text so far, and
again as the output grows. It is sent again after each growth by a quarter, so that the total stays
within a few times the length of the output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

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
    denormalize_session_update,
    to_json,
    truncate_utf8_tail,
)
from quarterdeck.protocol.config_options import mode_ids, models_of, modes_of
from quarterdeck.protocol.diffs import is_patch, shown_content
from quarterdeck.protocol.shown_events import terminal_payloads, with_terminals
from quarterdeck.protocol.tool_calls import FINAL_STATUSES

_NEWER_STATUSES: Final = {"cancelled": "failed", "paused": "in_progress"}
"""Statuses of tool calls that ACP 1 does not have; editors check its closed list."""
ACP2: Final = "acp2"
"""The key in `extensions` of what the types of ACP 1 cannot say."""


def session_updates(event: Event) -> Iterator[dict[str, Any]]:
    """Yield the ACP updates of an event of the log."""
    known = any_event(event)
    match known:
        case SessionConfigInitEvent():
            yield from _settings(event.payload)
        case (
            UserMessageChunkEvent()
            | AgentMessageChunkEvent()
            | AgentThoughtChunkEvent()
            | ToolCallEvent()
            | ToolCallUpdateEvent()
            | PlanEvent()
            | AvailableCommandsUpdateEvent()
            | CurrentModeUpdateEvent()
            | ConfigOptionsUpdateEvent()
            | SessionInfoUpdateEvent()
            | UsageUpdateEvent()
            | UnrecognizedUpdateEvent()
        ):
            yield from _update(known)
        case MessageUpdateEvent():
            yield from _replacement(known)
        case PlanUpdateEvent():
            yield from _other_plan(known.payload)
        case TerminalOutputEvent() | TerminalUpdateEvent() | ToolCallContentChunkEvent():
            pass  # `AcpTerminals` shows them
        case (
            PromptFinishedEvent()
            | SessionStatusChangeEvent()
            | SessionResetEvent()
            | PermissionRequestCreatedEvent()
            | PermissionRequestResolvedEvent()
            | ApprovalMismatchEvent()
            | ForegroundEvent()
            | PlanRemovedEvent()  # a `plan` follows if it was shown
            | HostEvent()
            | UnknownEvent()
        ):
            pass  # ACP has requests and responses for these, or nothing
        case _:
            assert_never(known)


def _update(event: Event) -> Iterator[dict[str, Any]]:
    update = denormalize_session_update(event)
    if event.extensions is not None and ACP2 in event.extensions and update is not None:
        update.pop(ACP2, None)  # what only ACP 2 can say
    if update is not None and update.get("status") in _NEWER_STATUSES:
        meta = update.get("_meta")
        note = {"quarterdeck": {"status": update["status"]}}
        update["_meta"] = {**(meta if isinstance(meta, dict) else {}), **note}
        update["status"] = _NEWER_STATUSES[update["status"]]
    if update is None or update.get("sessionUpdate") == ELICITATION_UPDATED:
        return  # an elicitation is a request of its own
    ours = update.pop("quarterdeck", None)
    if ours is not None:
        meta = update.get("_meta")
        table = meta if isinstance(meta, dict) else {}
        update["_meta"] = {**table, "quarterdeck": {**table.get("quarterdeck", {}), **ours}}
    yield update


def _replacement(event: MessageUpdateEvent) -> Iterator[dict[str, Any]]:
    """Yield the new content of a message as a message of its own: ACP 1 cannot replace one."""
    payload: Any = event.payload
    name = {"user": "user_message_chunk", "thought": "agent_thought_chunk"}.get(
        str(payload.get("kind")), "agent_message_chunk"
    )
    content = payload.get("content")
    for block in content if isinstance(content, list) else ():
        yield {
            "sessionUpdate": name,
            "messageId": f"{payload.get('messageId')}~{event.seq}",
            "content": block,
            "_meta": {"quarterdeck": {"replaces": payload.get("messageId")}},
        }


def _other_plan(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a plan that is not a list as a plan of one entry; lists have a `plan` as well."""
    words = payload.get("content") or payload.get("uri")
    if payload.get("type") != "items" and isinstance(words, str):
        entry = {"content": words, "priority": "medium", "status": "in_progress"}
        yield {"sessionUpdate": "plan", "entries": [entry]}


def commands_update(commands: Sequence[Any]) -> dict[str, Any]:
    """Return the update with the available commands, for an editor that skipped the history."""
    return {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}


def prompt_key(event: Event) -> str | None:
    """Return the key of the prompt that an event is a part of."""
    if event.type != "user-message-chunk" or event.extensions is None:
        return None
    ours: Any = event.extensions.get("quarterdeck")
    key = ours.get("promptKey") if isinstance(ours, Mapping) else None
    return key if isinstance(key, str) else None


def _settings(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    options = payload.get("configOptions")
    if isinstance(options, list):
        yield {"sessionUpdate": "config_option_update", "configOptions": options}
    modes = payload.get("modes")
    if isinstance(modes, Mapping) and isinstance(modes.get("currentModeId"), str):
        yield {"sessionUpdate": "current_mode_update", "currentModeId": modes["currentModeId"]}


_CHILD_STATUSES: Final = {"idle": "completed", "unknown": "failed"}


def without_children(update: dict[str, Any]) -> dict[str, Any]:
    """Return an update for editors that know of no sub-agents: they are calls, and their words.

    What the agent sent is in `_meta.quarterdeck.update`.
    """
    kind = update.get("sessionUpdate")
    meta = {"quarterdeck": {"update": update}}
    if kind == "subagent_update":
        state = update.get("state")
        named = state.get("state") if isinstance(state, Mapping) else None
        return {
            "sessionUpdate": "tool_call",
            "toolCallId": f"sub-agent-{update.get('sessionId')}",
            "title": str(update.get("title") or "Sub-agent"),
            "kind": "other",
            "status": _CHILD_STATUSES.get(str(named), "in_progress"),
            "_meta": meta,
        }
    if kind in ("session_message", "session_message_chunk"):
        content = update.get("content")
        blocks = content if isinstance(content, list) else [content]
        texts = [each.get("text") for each in blocks if isinstance(each, Mapping)]
        text = "".join(each for each in texts if isinstance(each, str))
        words = {"type": "text", "text": text}
        return {"sessionUpdate": "agent_thought_chunk", "content": words, "_meta": meta}
    return update


SWITCH_ON: Final = "on"
SWITCH_OFF: Final = "off"


def without_switches(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings, or an update, with a choice of two in place of each boolean option.

    For editors that do not announce boolean options.
    """
    options = settings.get("configOptions")
    if not isinstance(options, list) or not any(map(is_switch, options)):
        return settings
    return {**settings, "configOptions": [_as_choice(each) for each in options]}


def is_switch(option: Any) -> bool:
    """Return whether a config option is boolean."""
    return isinstance(option, Mapping) and option.get("type") == "boolean"


def _as_choice(option: Any) -> Any:
    if not is_switch(option):
        return option
    choices = [{"value": SWITCH_ON, "name": "On"}, {"value": SWITCH_OFF, "name": "Off"}]
    current = SWITCH_ON if option.get("currentValue") else SWITCH_OFF
    return {**option, "type": "select", "currentValue": current, "options": choices}


def session_settings(state: SessionState) -> dict[str, Any]:
    """Return the settings in the response to `session/new`, `session/load`, `session/resume`."""
    settings: dict[str, Any] = {}
    plain = to_json(state)
    if plain["configOptions"]:
        settings["configOptions"] = plain["configOptions"]
    modes = plain["modes"]
    if not mode_ids(modes):  # a log of an agent that never listed them
        modes = modes_of(plain["configOptions"])
    if modes:
        settings["modes"] = modes
    models = models_of(plain["configOptions"])
    if models is not None:
        settings["models"] = models
    return settings


SHOWN_BYTES: Final = 32 * 1024
"""Bytes of a terminal's output that are shown, the newest."""
_GROWTH: Final = 4  # sent again when the output has grown by a quarter
_OPEN_CALLS: Final = 64
_ALL: Final = 1 << 62


@dataclass
class _Terminal:
    text: str = ""
    is_cut: bool = False
    exit: Mapping[str, Any] | None = None
    written: int = 0
    due: int = 1
    """The value of `written` at which it is sent again."""
    calls: dict[str, list[Any]] = field(default_factory=dict)
    """The tool calls that show it, and their content as the agent sent it."""

    def take(self, payload: Mapping[str, Any]) -> None:
        delta = str(payload.get("delta") or "")
        self.written += len(delta)
        self.text, is_cut = truncate_utf8_tail(self.text + delta, SHOWN_BYTES)
        self.is_cut = self.is_cut or is_cut or bool(payload.get("truncated"))
        self.exit = payload.get("exit", self.exit)

    def replace(self, payload: Mapping[str, Any]) -> None:
        """Take the facts of an agent's own terminal: all of its output, how it ended."""
        if "output" in payload:
            output: Any = payload["output"] or {}
            self.text = ""
            self.is_cut = False
            self.take({"delta": output.get("text"), "truncated": output.get("truncated")})
        if "exit" in payload:
            self.exit = payload["exit"]

    def is_due(self, payload: Mapping[str, Any]) -> bool:
        if "exit" not in payload and self.written < self.due:
            return False
        self.due = self.written + max(1, self.written // _GROWTH)
        return True

    def block(self) -> dict[str, Any]:
        fence = "```"
        while fence in self.text:
            fence += "`"
        lines = [fence, *(["…"] if self.is_cut else []), self.text.rstrip("\n"), fence]
        ending = _ending(self.exit)
        text = "\n".join([*lines, *([ending] if ending else [])])
        return {"type": "content", "content": {"type": "text", "text": text}}


class AcpTerminals:
    """All terminals of one session."""

    def __init__(self) -> None:
        self._known: dict[str, _Terminal] = {}
        self._content: OrderedDict[str, list[Any]] = OrderedDict()
        """The content of open calls as the agent sent it, the newest `_OPEN_CALLS`."""
        self._sent: dict[str, int] = {}
        """How many elements were sent, of calls whose content was appended to."""
        self._beside: set[str] = set()
        """Open calls with output in their `_meta`."""

    def learn(self, state: SessionState) -> None:
        """Start from the terminals and tool calls of a state."""
        for terminal_id, known in state.terminals.items():
            payload: dict[str, Any] = {"delta": known.output, "truncated": known.truncated}
            if isinstance(known.exit, Mapping):
                payload["exit"] = known.exit
            self._terminal(terminal_id).take(payload)
        for call in state.tool_calls.values():
            self.shown({"toolCallId": call.tool_call_id, "content": list(call.content)})

    def shown(self, update: dict[str, Any]) -> dict[str, Any]:
        """Return a tool call, or an update of one, with text in place of terminals."""
        call_id = update.get("toolCallId")
        if isinstance(call_id, str):
            update = self._with_appended(call_id, self._with_outputs(call_id, update))
        content = update.get("content")
        if isinstance(content, list) and isinstance(call_id, str) and any(map(is_patch, content)):
            content = list(shown_content(content))
            update = {**update, "content": content}
        if not isinstance(content, list) or not any(map(_terminal_id, content)):
            return update
        for each in content:
            terminal_id = _terminal_id(each)
            if terminal_id is not None and isinstance(call_id, str):
                self._terminal(terminal_id).calls[call_id] = content
        return {**update, "content": self._replaced(content)}

    def _with_outputs(self, call_id: str, update: dict[str, Any]) -> dict[str, Any]:
        """Return an update with the output that it has in its `_meta` (see `shown_events`).

        The content is sent when the output has grown by a quarter, and at the end of the call.
        """
        outputs = tuple(terminal_payloads({"_meta": update.get("_meta")}, call_id))
        sent = update.get("content")
        known = sent if isinstance(sent, list) else self._content.get(call_id, [])
        content = with_terminals(known, outputs) or known
        is_due = False
        for payload in outputs:
            terminal = self._terminal(payload["terminalId"])
            terminal.take(payload)
            is_due |= terminal.is_due(payload)
            self._beside.add(call_id)
        is_final = update.get("status") in FINAL_STATUSES
        has_more = call_id in self._beside and (is_due or is_final)
        if is_final:
            self._beside.discard(call_id)
        if has_more or (outputs and isinstance(sent, list)):
            return {**update, "content": content}
        if outputs:
            self._content[call_id] = content
        return update

    def _with_appended(self, call_id: str, update: dict[str, Any]) -> dict[str, Any]:
        """Store the content of an open call; give an end the elements that were not sent yet."""
        content, is_final = update.get("content"), update.get("status") in FINAL_STATUSES
        if isinstance(content, list):
            self._content[call_id] = list(content)
            self._sent.pop(call_id, None)
        elif is_final and self._sent.get(call_id, _ALL) < len(self._content.get(call_id, ())):
            update = {**update, "content": self._content[call_id]}
        if is_final or len(self._content) > _OPEN_CALLS:
            dropped = call_id if is_final else next(iter(self._content))
            self._content.pop(dropped, None)
            self._sent.pop(dropped, None)
        return update

    def take(
        self, event: TerminalOutputEvent | TerminalUpdateEvent | ToolCallContentChunkEvent
    ) -> Iterator[dict[str, Any]]:
        """Yield the updates of the tool calls that an event changes."""
        match event:
            case TerminalOutputEvent():
                return self.on_output(event.payload)
            case TerminalUpdateEvent():
                return self.on_update(event.payload)
            case ToolCallContentChunkEvent():
                return self.on_content(event.payload)
            case _:
                assert_never(event)

    def on_output(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the updates of tool calls whose terminal has grown."""
        terminal = self._terminal(str(payload.get("terminalId")))
        terminal.take(payload)
        if terminal.calls and terminal.is_due(payload):
            yield from self._calls_of(terminal)

    def on_update(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the updates of tool calls whose terminal has other output, or has ended."""
        terminal = self._terminal(str(payload.get("terminalId")))
        terminal.replace(payload)
        if "output" in payload or payload.get("exit") is not None:
            yield from self._calls_of(terminal)

    def on_content(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the whole content of a tool call that has one more element.

        ACP 1 replaces content, so it is sent again after each growth by a quarter.
        """
        call_id, element = str(payload.get("toolCallId")), payload.get("content")
        content = self._content.setdefault(call_id, [])
        sent = self._sent.setdefault(call_id, len(content))
        content.append(element)
        terminal_id = _terminal_id(element)
        if terminal_id is not None:
            self._terminal(terminal_id).calls[call_id] = content
        if len(content) > sent + sent // _GROWTH:
            self._sent[call_id] = len(content)
            yield self._content_update(call_id, content)

    def _content_update(self, call_id: str, content: list[Any]) -> dict[str, Any]:
        return {
            "sessionUpdate": "tool_call_update",
            "toolCallId": call_id,
            "content": self._replaced(content),
        }

    def _calls_of(self, terminal: _Terminal) -> Iterator[dict[str, Any]]:
        for call_id, content in terminal.calls.items():
            yield self._content_update(call_id, content)

    def _terminal(self, terminal_id: str) -> _Terminal:
        return self._known.setdefault(terminal_id, _Terminal())

    def _replaced(self, content: list[Any]) -> list[Any]:
        return [
            each if (terminal_id := _terminal_id(each)) is None else self._block(terminal_id)
            for each in shown_content(content)
        ]

    def _block(self, terminal_id: str) -> dict[str, Any]:
        return self._terminal(terminal_id).block()


def _terminal_id(block: Any) -> str | None:
    if not isinstance(block, Mapping) or block.get("type") != "terminal":
        return None
    terminal_id = block.get("terminalId")
    return terminal_id if isinstance(terminal_id, str) else None


def _ending(exit_status: Mapping[str, Any] | None) -> str:
    if exit_status is None:
        return ""
    if exit_status.get("signal"):
        return f"ended by {exit_status['signal']}"
    code = exit_status.get("exitCode")
    return "" if code in (None, 0) else f"exit status {code}"

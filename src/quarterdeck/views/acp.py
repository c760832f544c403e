"""The log as ACP session updates, for editors.

`session_updates` returns the updates of one event. What Quarterdeck added to an event is sent as
`_meta.quarterdeck`: ACP reserves the other keys of an update.

`AcpTerminals` replaces terminals by their output. The host runs the agent's terminals, so an editor
cannot look them up by id: where a tool call shows a terminal, the editor gets the text so far, and
again as the output grows. It is sent again after each growth by a quarter, so that the total stays
within a few times the length of the output.
"""

from __future__ import annotations

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
    HostEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionState,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
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
from quarterdeck.protocol.config_options import mode_ids, modes_of


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
        case (
            PromptFinishedEvent()
            | SessionStatusChangeEvent()
            | SessionResetEvent()
            | PermissionRequestCreatedEvent()
            | PermissionRequestResolvedEvent()
            | ApprovalMismatchEvent()
            | TerminalOutputEvent()
            | HostEvent()
            | UnknownEvent()
        ):
            pass  # ACP has requests and responses for these, or nothing
        case _:
            assert_never(known)


def _update(event: Event) -> Iterator[dict[str, Any]]:
    update = denormalize_session_update(event)
    if update is None or update.get("sessionUpdate") == ELICITATION_UPDATED:
        return  # an elicitation is a request of its own
    ours = update.pop("quarterdeck", None)
    if ours is not None:
        meta = update.get("_meta")
        update["_meta"] = {**(meta if isinstance(meta, dict) else {}), "quarterdeck": ours}
    yield update


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
    return settings


SHOWN_BYTES: Final = 32 * 1024
"""Bytes of a terminal's output that are shown, the newest."""
_GROWTH: Final = 4  # sent again when the output has grown by a quarter


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
        content = update.get("content")
        if not isinstance(content, list) or not any(map(_terminal_id, content)):
            return update
        call_id = update.get("toolCallId")
        for each in content:
            terminal_id = _terminal_id(each)
            if terminal_id is not None and isinstance(call_id, str):
                self._terminal(terminal_id).calls[call_id] = content
        return {**update, "content": self._replaced(content)}

    def on_output(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the updates of tool calls whose terminal has grown."""
        terminal = self._terminal(str(payload.get("terminalId")))
        terminal.take(payload)
        if terminal.calls and terminal.is_due(payload):
            for call_id, content in terminal.calls.items():
                yield {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": call_id,
                    "content": self._replaced(content),
                }

    def _terminal(self, terminal_id: str) -> _Terminal:
        return self._known.setdefault(terminal_id, _Terminal())

    def _replaced(self, content: list[Any]) -> list[Any]:
        return [
            each if (terminal_id := _terminal_id(each)) is None else self._block(terminal_id)
            for each in content
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

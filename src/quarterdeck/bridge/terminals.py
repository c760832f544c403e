"""Terminals of an agent, as an editor sees them: their output as text. Pure.

The hub runs them, so the editor does not know them by their ids: where a tool call shows one, the
editor gets what it has written so far, and again as it writes on. How often goes by how much there
is already, so that all of it together costs a few times its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from quarterdeck.protocol import SessionState, truncate_utf8_tail

SHOWN_BYTES: Final = 32 * 1024
"""Of the end of what a terminal has written."""
_GROWTH: Final = 4  # it is shown again when it is longer by a quarter


@dataclass
class _Terminal:
    text: str = ""
    is_cut: bool = False
    exit: Mapping[str, Any] | None = None
    written: int = 0
    due: int = 1
    """How much has to be written before it is shown again."""
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


class Terminals:
    """All terminals of one session."""

    def __init__(self) -> None:
        self._known: dict[str, _Terminal] = {}

    def learn(self, state: SessionState) -> None:
        """Take in what was written before."""
        for terminal_id, known in state.terminals.items():
            payload: dict[str, Any] = {"delta": known.output, "truncated": known.truncated}
            if isinstance(known.exit, Mapping):
                payload["exit"] = known.exit
            self._terminal(terminal_id).take(payload)
        for call in state.tool_calls.values():
            self.shown({"toolCallId": call.tool_call_id, "content": list(call.content)})

    def shown(self, update: dict[str, Any]) -> dict[str, Any]:
        """Return a tool call, or an update of one, with texts instead of terminals."""
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
        """Yield the updates of tool calls that show more now."""
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

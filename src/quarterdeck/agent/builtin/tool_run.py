"""`ToolRuns` runs the tool calls of a turn and reports each to the client.

A call goes from pending, if needed by a permission request, to in progress and to completed or
failed. A tool runs only if the session's mode has it at that moment, even if the mode had it when
permission was requested, and only if the user allowed it where that is required. No response, an
error and an option that was not offered all count as a rejection.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quarterdeck.agent.builtin.history import ToolResult, ToolUse, well_formed
from quarterdeck.agent.builtin.tools import Action, Outcome, SessionGrant, Tool, shortened
from quarterdeck.agent.builtin.tools.base import ToolScope
from quarterdeck.agent.turn import CUT_SHORT
from quarterdeck.errors import AgentError, StorageFailed, ToolFailed

if TYPE_CHECKING:
    from quarterdeck.agent.turn import AgentTurn


ALLOW_ONCE = {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"}
REJECT_ONCE = {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"}

logger = logging.getLogger(__name__)

ToolsNow = Callable[[], Mapping[str, Tool]]
"""Returns the tools of the session's current mode."""


class ToolRuns:
    """The tool calls of one turn."""

    def __init__(self, turn: AgentTurn, scope: ToolScope, allowed: set[str]) -> None:
        self._turn = turn
        self._scope = scope
        self._allowed = allowed
        self._open: dict[str, str] = {}
        """ACP ids of announced calls that have not ended, by the model's call id."""
        self._begun: set[str] = set()
        self.mode: str | None = None
        """A restriction of this turn alone, for error messages; the tools are filtered already."""

    def announce(self, call_id: str, name: str, tools: Mapping[str, Tool]) -> None:
        """Announce a call that the model has begun to write."""
        if call_id in self._open:  # some servers send the beginning twice
            return
        self._open[call_id] = f"call-{uuid.uuid4().hex[:16]}"
        update = {
            "sessionUpdate": "tool_call",
            "toolCallId": self._open[call_id],
            "title": name,
            "kind": tools[name].shown_kind if name in tools else "other",
            "status": "pending",
        }
        self._turn.send(update)

    async def run(self, call: ToolUse, tools: ToolsNow) -> ToolResult:
        """Run a call; every outcome, also a failure, becomes a result for the model."""
        if call.id not in self._open:
            self.announce(call.id, call.name, tools())
        try:
            outcome = await self._run(call, tools)
        except ToolFailed as failure:
            outcome = Outcome(f"Error: {failure}", is_error=True)
        except (AgentError, StorageFailed):
            raise  # not the tool's failure: the client has disconnected or the disk is full
        except Exception as error:  # a bug in a tool must not end the turn
            logger.exception("tool failed", extra={"tool": call.name})
            outcome = Outcome(f"Error: {call.name} failed: {error}", is_error=True)
        self._finish(call, outcome)
        text = well_formed(shortened(outcome.text)).strip("\n") or "[nothing]"
        return ToolResult(call_id=call.id, name=call.name, text=text, is_error=outcome.is_error)

    def abandon(self, reason: str) -> None:
        """Fail every call that is still open: the client must not wait for them."""
        for acp_id in self._open.values():
            ending = _update(acp_id, status="failed", content=[_text(reason)])
            if acp_id in self._begun:  # content shown so far stays
                ending = _update(acp_id, status="failed", rawOutput=CUT_SHORT)
            self._turn.send_ending(ending)
        self._open.clear()

    async def _run(self, call: ToolUse, tools: ToolsNow) -> Outcome:
        acp_id = self._open[call.id]
        if call.invalid is not None:
            raise ToolFailed(f"the arguments of {call.name} are not a JSON object")
        tool = self._find(call.name, tools())
        action = await tool.prepare(call.arguments, self._scope)
        shown: dict[str, Any] = {
            "title": action.title,
            "kind": tool.shown_kind,
            "rawInput": call.arguments,
            "status": "pending" if tool.asks else "in_progress",
        }
        if action.locations:
            shown["locations"] = list(action.locations)
        if action.preview:
            shown["content"] = list(action.preview)
        self._update(acp_id, **shown)
        if tool.asks:
            if not await self._is_allowed(acp_id, tool, action, call.arguments):
                raise ToolFailed("the user refused this; do not try it another way")
            self._find(call.name, tools())  # the mode may have changed meanwhile
            self._update(acp_id, status="in_progress")
        self._begun.add(acp_id)
        return await action.run(self._progress(acp_id))

    def _find(self, name: str, tools: Mapping[str, Tool]) -> Tool:
        if name not in tools:
            mode = self._turn.session.mode
            where = f"in mode {mode}" if self.mode is None else f"in this {self.mode} turn"
            known = ", ".join(sorted(tools))
            raise ToolFailed(f"there is no tool {name} {where}; there are: {known}")
        return tools[name]

    async def _is_allowed(
        self, acp_id: str, tool: Tool, action: Action, arguments: Mapping[str, Any]
    ) -> bool:
        if action.grant is not None and action.grant.key in self._allowed:
            return True
        tool_call: dict[str, Any] = {
            "toolCallId": acp_id,
            "title": action.title,
            "kind": tool.shown_kind,
            "status": "pending",
            "rawInput": arguments,
            "content": list(action.preview),
        }
        if action.locations:
            tool_call["locations"] = list(action.locations)
        chosen = await self._turn.ask_permission(tool_call, permission_options(action.grant))
        if chosen == "allow_always" and action.grant is not None:
            self._allowed.add(action.grant.key)
            return True
        return chosen == "allow_once"

    def _progress(self, acp_id: str) -> Callable[[Sequence[Mapping[str, Any]]], None]:
        def show(content: Sequence[Mapping[str, Any]]) -> None:
            self._update(acp_id, status="in_progress", content=list(content))

        return show

    def _finish(self, call: ToolUse, outcome: Outcome) -> None:
        content = [_text(outcome.text)] if outcome.content is None else list(outcome.content)
        ending: dict[str, Any] = {
            "status": "failed" if outcome.is_error else "completed",
            "content": content,
            "rawInput": call.arguments if call.invalid is None else call.invalid,
            "rawOutput": outcome.text if outcome.raw is None else outcome.raw,
        }
        if outcome.locations is not None:
            ending["locations"] = list(outcome.locations)
        self._update(self._open[call.id], **ending)
        del self._open[call.id]

    def _update(self, acp_id: str, **changes: Any) -> None:
        self._turn.send(_update(acp_id, **changes))


def _update(acp_id: str, **changes: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": acp_id, **changes}


def permission_options(grant: SessionGrant | None) -> list[dict[str, str]]:
    if grant is None:
        return [ALLOW_ONCE, REJECT_ONCE]
    always = {"optionId": "allow_always", "name": grant.words, "kind": "allow_always"}
    return [ALLOW_ONCE, always, REJECT_ONCE]


def _text(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}

"""Tool calls as events, from the first message about one to its effects.

    tool:start        at the first message about a call
    tool:args_delta   while its input is written, by agents that show that
    tool:executing    when it is in progress, when permission is requested, or else before its end
    tool:result | tool:error
    file:*, git:operation, web:operation, subagent:completed    after a result

A call that the turn leaves open is ended with an error. After its end a call is not emitted again:
some agents announce a rejected call a second time and fail it again. The id is free for a new call
in the next turn, or as soon as a permission request names it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

from quarterdeck.policy import (
    RiskLevel,
    categorize_call,
    describe_tool_call,
    risk_of_call,
    text_of,
)
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.shown_events import terminal_payloads
from quarterdeck.protocol.tool_calls import announced, extended, is_open, requested, updated
from quarterdeck.views.context.call_state import NamedToolCall, objects
from quarterdeck.views.context.events import (
    SubAgentProgressEvent,
    SubAgentSpawnedEvent,
    ToolCallArgsDeltaEvent,
    ToolCallErrorEvent,
    ToolCallExecutingEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserQuestionEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.session_settings import SettingsProjector
from quarterdeck.views.context.tool_results import (
    CallEffects,
    TerminalText,
    changes_of,
    content_text,
    output_text,
    structured_output,
    whole_number,
)
from quarterdeck.views.context.types import ACPError

KNOWN: Final = 10_000  # calls that have ended and are remembered as such
TERMINALS: Final = 64  # terminals whose output is kept for the calls that show them


class ToolCallProjector:
    """Holds the open calls of a session, and counts calls and errors."""

    def __init__(
        self,
        numbering: EventNumbering,
        settings: SettingsProjector,
        project: str,
        derive_on_replay: Collection[str],
    ) -> None:
        self._numbering = numbering
        self._settings = settings
        self._project = project
        self._open: dict[str, NamedToolCall] = {}
        self.awaiting_answer: set[str] = set()
        """The calls that wait for a person's answer."""
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._announced_again: dict[str, ToolCallFacts] = {}
        """Calls of this turn with the id of one that has ended, in case they ask for permission."""
        self._terminals: OrderedDict[str, TerminalText] = OrderedDict()
        self._turn = 0
        self.effects = CallEffects(numbering, derive_on_replay)
        self.count = 0
        self.errors = 0

    def decided(self, call_id: str) -> None:
        """Record that the permission request of a call is resolved."""
        self.awaiting_answer.discard(call_id)

    def next_turn(self) -> None:
        self._turn += 1
        self._announced_again.clear()

    def forget(self) -> None:
        """Start over: the agent sends its history again."""
        self._open.clear()
        self.awaiting_answer.clear()
        self._ended.clear()
        self._announced_again.clear()
        self.effects.forget()
        self.count = self.errors = 0

    def is_new(self, call_id: object) -> bool:
        return isinstance(call_id, str) and call_id not in self._open and call_id not in self._ended

    # ---- messages of the agent -----------------------------------------------------------------

    def update(
        self, payload: dict[str, Any], more: dict[str, Any], *, is_announcement: bool
    ) -> None:
        """Apply an announcement or an update of a call."""
        call_id = payload["toolCallId"]
        call = self._find(call_id) if is_announcement else self._open.get(call_id)
        if call is None:
            ended_in = self._ended.get(call_id)
            if ended_in is not None and (not is_announcement or ended_in == self._turn):
                self._fold_silently(call_id, payload, is_announcement=is_announcement)
                return
            facts = announced(None, payload, self._turn)
            call = self._begin(call_id)
        elif is_announcement:
            facts = announced(call.facts, payload, self._turn)
        else:
            facts = updated(call.facts, payload)
        outputs = tuple(terminal_payloads(more, call_id)) if more else ()
        for output in outputs:
            self.terminal_output(output)
            call.add_terminal(output["terminalId"])
        is_first = not call.name
        call.take(facts, more, self._numbering.ts)
        if is_first:
            self._start(call)
        if call.content and "quarterdeck" not in more:  # else it is the host's own update
            self._emit_arguments(call)
        self._emit_progress(call)

    def _fold_silently(
        self, call_id: str, payload: dict[str, Any], *, is_announcement: bool
    ) -> None:
        facts = self._announced_again.get(call_id)
        if is_announcement:
            self._announced_again[call_id] = announced(facts, payload, self._turn)
        elif facts is not None:
            self._announced_again[call_id] = updated(facts, payload)

    def request(self, patch: dict[str, Any]) -> NamedToolCall:
        """Apply the tool call of a permission request, and emit that it waits."""
        call_id = patch.get("toolCallId")
        call = self._find(call_id) if isinstance(call_id, str) else None
        facts = None if call is None else call.facts
        if call is None and isinstance(call_id, str):
            facts = self._announced_again.pop(call_id, None)
            call = self._begin(call_id)
        elif call is None:
            call = NamedToolCall(str(call_id), self._numbering.ts)
        is_first = not call.name
        call.take(requested(facts, patch, self._turn), patch, self._numbering.ts)
        if is_first:
            self._start(call)
        if not call.has_asked:
            self._execute(call, requires_approval=True)
        self._emit_progress(call)
        return call

    def terminal_output(self, payload: dict[str, Any]) -> None:
        terminal = self._terminal(payload.get("terminalId"))
        delta, ending = payload.get("delta"), payload.get("exit")
        if isinstance(delta, str):
            terminal.add(delta)
        if isinstance(ending, dict):
            terminal.exit_code = whole_number(ending.get("exitCode"))

    def terminal_update(self, payload: dict[str, Any]) -> None:
        """Apply the facts of an agent's own terminal: all of its output, how it ended."""
        terminal, ending = self._terminal(payload.get("terminalId")), payload.get("exit")
        if "output" in payload:
            output = payload["output"]
            text = output.get("text") if isinstance(output, dict) else None
            terminal.parts, terminal.size = [], 0
            terminal.add(text if isinstance(text, str) else "")
        if isinstance(ending, dict):
            terminal.exit_code = whole_number(ending.get("exitCode"))

    def content_chunk(self, payload: dict[str, Any]) -> None:
        """Append an element to the content of an open call."""
        call = self._open.get(str(payload.get("toolCallId")))
        if call is not None:
            call.take(extended(call.facts, payload), {}, self._numbering.ts)
            self._emit_progress(call)

    def _terminal(self, terminal_id: Any) -> TerminalText:
        name = str(terminal_id)
        terminal = self._terminals.get(name)
        if terminal is None:
            terminal = self._terminals[name] = TerminalText()
            if len(self._terminals) > TERMINALS:
                self._terminals.popitem(last=False)
        return terminal

    def _find(self, call_id: str) -> NamedToolCall | None:
        """Return the call that an announcement or request continues; None if it is a new one."""
        call = self._open.get(call_id)
        if call is None or is_open(call.facts, self._turn):
            return call
        self._abandon(call, is_cancelled=False)
        del self._ended[call_id]  # it ended with its own turn, not in this one
        return None

    def _begin(self, call_id: str) -> NamedToolCall:
        self._ended.pop(call_id, None)
        call = self._open[call_id] = NamedToolCall(call_id, self._numbering.ts)
        self.count += 1
        return call

    # ---- events of a running call --------------------------------------------------------------

    def _start(self, call: NamedToolCall) -> None:
        numbering = self._numbering
        numbering.add(
            ToolCallStartEvent(
                seq=numbering.take_seq(),
                session_id=numbering.session_id,
                timestamp=numbering.timestamp,
                replay=numbering.is_replay,
                tool_call_id=call.id,
                name=call.name,
                category=category_of(call),
                description=description_of(call),
            )
        )

    def _emit_progress(self, call: NamedToolCall) -> None:
        is_running = call.status == "in_progress" and not (call.arguments and not call.raw_input)
        if not call.has_executed and (is_running or call.is_done):
            self._execute(call, requires_approval=False)
        if call.traits.is_special:
            self._emit_details(call)
        if call.is_done:
            self._end(call)

    def _emit_details(self, call: NamedToolCall) -> None:
        canonical = call.traits.canonical
        if canonical == "Task":
            self._emit_sub_agent(call)
        elif canonical == "AskUserQuestion" and not self._numbering.is_replay:
            self._emit_questions(call)
        elif canonical == "TodoWrite" and "todos" in call.input:
            self._settings.todos(call.input["todos"])
        elif canonical == "ExitPlanMode" or call.kind == "switch_mode":
            self._emit_plan(call)

    def _emit_arguments(self, call: NamedToolCall) -> None:
        """Emit how the input grows, if the agent shows it as text before it is complete."""
        if self._numbering.is_replay or not call.content or call.raw_input:
            return
        if call.has_executed or call.is_done:
            return
        text = content_text(call)
        if text.startswith("{") and text.startswith(call.arguments) and text != call.arguments:
            delta = text[len(call.arguments) :]
            call.arguments = text
            self._numbering.emit(ToolCallArgsDeltaEvent, tool_call_id=call.id, delta=delta)

    def _execute(self, call: NamedToolCall, *, requires_approval: bool) -> None:
        call.has_executed = True
        call.has_asked |= requires_approval
        numbering = self._numbering
        numbering.add(
            ToolCallExecutingEvent(
                seq=numbering.take_seq(),
                session_id=numbering.session_id,
                timestamp=numbering.timestamp,
                replay=numbering.is_replay,
                tool_call_id=call.id,
                name=call.name,
                input=call.input,
                risk_level=risk_of(call),
                requires_approval=requires_approval,
            )
        )

    def _emit_sub_agent(self, call: NamedToolCall) -> None:
        task = text_of(call.raw_input, ("description", "prompt", "task"))
        if not call.is_sub_agent and (task is not None or call.has_executed):
            call.is_sub_agent = True
            self._numbering.emit(
                SubAgentSpawnedEvent,
                sub_agent_id=call.id,
                parent_tool_call_id=call.id,
                task=task or call.title,
                model=text_of(call.raw_input, ("model",)),
            )
        text = content_text(call)
        if not call.is_sub_agent or call.is_done or not text or text == call.last_progress:
            return
        call.last_progress = text
        if text not in (call.input.get("prompt"), task) and not text.startswith("{"):
            line = text.rstrip().rpartition("\n")[2]
            self._numbering.emit(SubAgentProgressEvent, sub_agent_id=call.id, message=line)

    def _emit_questions(self, call: NamedToolCall) -> None:
        listed = objects(call.input.get("questions")) or [call.input]
        for number, each in enumerate(listed, 1):
            question = text_of(each, ("question", "prompt"))
            if question is None:
                continue
            question_id = call.id if len(listed) == 1 else f"{call.id}#{number}"
            options = each.get("options")
            labels = tuple(_labels(options)) if isinstance(options, list) else None
            if call.questions.get(question_id) != (question, labels):
                call.questions[question_id] = (question, labels)
                self.awaiting_answer.add(call.id)
                self._numbering.emit(
                    UserQuestionEvent, question_id=question_id, question=question, options=labels
                )

    def _emit_plan(self, call: NamedToolCall) -> None:
        plan = text_of(call.raw_input, ("plan",)) or content_text(call)
        if plan and plan != call.last_progress and not call.is_done:
            call.last_progress = plan
            self._settings.plan_proposed(plan)
        if call.status == "completed":
            self._settings.plan_accepted()

    # ---- end of a call -------------------------------------------------------------------------

    def _end(self, call: NamedToolCall) -> None:
        output = output_text(call, self._terminals) if call.has_output else ""
        numbering = self._numbering
        duration = max(0.0, float(numbering.ts - call.started_at))
        if call.status == "completed":
            changes = changes_of(call, self._project)
            structured = structured_output(call, output, changes, self._terminals)
            numbering.add(
                ToolCallResultEvent(
                    seq=numbering.take_seq(),
                    session_id=numbering.session_id,
                    timestamp=numbering.timestamp,
                    replay=numbering.is_replay,
                    tool_call_id=call.id,
                    name=call.name,
                    output=output,
                    duration=duration,
                    structured=structured,
                )
            )
            self.effects.emit(call, output, changes, self._terminals)
        elif call.status == "cancelled":
            self._fail(call, "CANCELLED", output or "Cancelled", duration)
        else:
            self._fail(call, "TOOL_ERROR", output or "the tool failed", duration)
        if call.is_sub_agent:
            self.effects.sub_agent_ended(call, output)
        self._forget(call)

    def _fail(self, call: NamedToolCall, code: str, message: str, duration: float) -> None:
        self.errors += 1
        error = ACPError(code=code, message=message, recoverable=True)
        self._numbering.emit(
            ToolCallErrorEvent, tool_call_id=call.id, name=call.name, error=error, duration=duration
        )

    def end_all(self, *, is_cancelled: bool) -> None:
        """End the calls that the turn has left open."""
        for call in list(self._open.values()):
            self._abandon(call, is_cancelled=is_cancelled)

    def _abandon(self, call: NamedToolCall, *, is_cancelled: bool) -> None:
        duration = max(0.0, float(self._numbering.ts - call.started_at))
        if is_cancelled:
            self._fail(call, "CANCELLED", "Cancelled", duration)
        else:
            message = "the turn ended before the agent said how this call ended"
            self._fail(call, "INCOMPLETE", message, duration)
        if call.is_sub_agent:
            self.effects.sub_agent_ended(call, "")
        self._forget(call)

    def _forget(self, call: NamedToolCall) -> None:
        self._open.pop(call.id, None)
        self.awaiting_answer.discard(call.id)
        for terminal_id in call.terminal_ids:
            self._terminals.pop(terminal_id, None)
        self._ended.pop(call.id, None)
        self._ended[call.id] = self._turn
        if len(self._ended) > KNOWN:
            self._ended.popitem(last=False)


def category_of(call: NamedToolCall) -> Any:
    if not call.diffs:
        return call.traits.category
    is_creation = all(old is None for old, _, _ in call.diffs.values())
    return categorize_call(call.name, call.kind, is_creation=is_creation)


def risk_of(call: NamedToolCall) -> Any:
    given = call.decisive_input
    return risk_of_call(call.name, given, call.kind) if given else call.traits.risk


def assess_risk(name: str, given: Any = None) -> RiskLevel:
    """Return the risk of a call by name and input as documented: critical counts as high.

    `quarterdeck.policy.assess_risk` returns all levels, and a reason.
    """
    level = risk_of_call(name, given)
    return "high" if level == "critical" else level


def description_of(call: NamedToolCall) -> str:
    """Return what a call does: the agent's title if it is a sentence, else our description."""
    if " " in call.title and call.title != call.command:
        return call.title
    return describe_tool_call(call.name, call.decisive_input)


def _labels(options: list[Any]) -> list[str]:
    named = [
        each.get("label") or each.get("name") if isinstance(each, dict) else each
        for each in options
    ]
    return [each for each in named if isinstance(each, str)]

"""Prints a session as it progresses: text for people, JSON lines for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TextIO, assert_never

from msgspec import UNSET

from quarterdeck.cli.terminal.call_lines import PrintedCall, grown_lines, is_unfinished
from quarterdeck.cli.terminal.event_text import (
    ASCII_MARKS,
    UNICODE_MARKS,
    Line,
    body,
    chunk_text,
    content_lines,
    is_repetition,
    is_text_chunk,
    mismatch_lines,
    summary,
)
from quarterdeck.cli.terminal.note_lines import (
    NoteLines,
    SettingLines,
    background_words,
    exit_line,
    is_note,
    terminal_lines,
    turn_facts,
)
from quarterdeck.cli.terminal.permission_prompt import KEYS, permission_prompt
from quarterdeck.cli.terminal.screen import OutputGuard, Screen, print_note
from quarterdeck.errors import RpcError
from quarterdeck.jsontext import encode_json
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
    encode_event,
    is_session_status,
)
from quarterdeck.protocol.tool_calls import is_final_status
from quarterdeck.views.text import cells, one_line, plain, shortened, wrapped

_INDENT: Final = "    "
_WRITTEN_LINES: Final = 12  # of a terminal: the last ones
_STATUS_STYLES: Final = {
    "failed": "bad",
    "completed": "good",
    "cancelled": "warn",
    "paused": "warn",
}
_QUIET_STOPS: Final = ("end_turn",)


class SessionPrinter(Protocol):
    """Prints a session."""

    def event(self, event: Event, state: SessionState) -> None:
        """Print an event; `state` is the one after it."""
        ...

    def heading(self, text: str) -> None:
        """Name the session of the events that follow."""
        ...

    def note(self, text: str) -> None:
        """Print a message that is not an event."""
        ...

    def end(self) -> None:
        """End the line that is being written."""
        ...

    def form(self, form: Mapping[str, Any]) -> None:
        """Print a form of the agent, for programs."""
        ...

    def result(self, result: Mapping[str, Any]) -> None:
        """Print how a prompt ended."""
        ...


class GuardedPrinter:
    """A printer behind an `OutputGuard`."""

    def __init__(self, printer: SessionPrinter, on_failure: Callable[[], None]) -> None:
        self._printer = printer
        self._guard = OutputGuard(on_failure)

    @property
    def failure(self) -> OSError | None:
        return self._guard.failure

    def event(self, event: Event, state: SessionState) -> None:
        self._guard.attempt(lambda: self._printer.event(event, state))

    def heading(self, text: str) -> None:
        self._guard.attempt(lambda: self._printer.heading(text))

    def note(self, text: str) -> None:
        self._guard.attempt(lambda: self._printer.note(text))

    def end(self) -> None:
        self._guard.attempt(self._printer.end)

    def form(self, form: Mapping[str, Any]) -> None:
        self._guard.attempt(lambda: self._printer.form(form))

    def result(self, result: Mapping[str, Any]) -> None:
        self._guard.attempt(lambda: self._printer.result(result))


class JsonPrinter:
    """One JSON object per line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def event(self, event: Event, _state: SessionState) -> None:
        self._stream.write(encode_event(event).decode() + "\n")
        self._stream.flush()

    def heading(self, text: str) -> None:
        """Nothing: every event names its session."""

    def form(self, form: Mapping[str, Any]) -> None:
        self.result({"type": "elicitation", **form})

    def result(self, result: Mapping[str, Any]) -> None:
        self._stream.write(encode_json(dict(result)).decode() + "\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        print_note(plain(text))

    def end(self) -> None:
        pass


class TextPrinter:
    """Text flows as it arrives; thoughts are dim; a tool call is a line when it starts and ends."""

    def __init__(
        self,
        screen: Screen,
        *,
        cwd: str = "",
        shows_requests: bool = True,
        shows_all: bool = False,
    ) -> None:
        """Leave out requests if a `TerminalResponder` shows them; show all settings if asked to."""
        self._screen = screen
        self._shows_requests = shows_requests
        self._cwd = cwd
        self._marks = UNICODE_MARKS if screen.is_fancy else ASCII_MARKS
        self._flowing: tuple[str, Any] | None = None
        self._column = 0
        self._blank_lines = 1  # at the end of what is written so far
        self._printed: dict[str, PrintedCall] = {}
        self._call_on_screen: tuple[str, str | None] | None = None  # printed last, with its title
        self._options: dict[str, list[Any]] = {}  # of the pending requests
        self._notes = NoteLines()
        self._settings = SettingLines(shows_all=shows_all)
        self._work = ""  # in the background, as printed last

    def event(self, event: Event, state: SessionState) -> None:
        self._lines([] if is_note(event) else self._notes.rest())
        text = chunk_text(event)
        if text is not None:
            self._flow(event, text)
            return
        known = any_event(event)
        match known:
            case ToolCallEvent() | ToolCallUpdateEvent():
                self._call(event, state)
            case PlanEvent():
                self._block(event, state, "plan: ")
            case MessageUpdateEvent() | PlanUpdateEvent() | ToolCallContentChunkEvent():
                self._changed(known, state)
            case PromptFinishedEvent():
                self._finished(event.payload, state)
            case PermissionRequestCreatedEvent() | PermissionRequestResolvedEvent():
                self._request(known, state)
            case SessionStatusChangeEvent() | SessionResetEvent() | ApprovalMismatchEvent():
                self._lifecycle(known)
            case SessionEvent() | HostEvent() | UnknownEvent():
                self._quiet(known, state)
            case _:
                assert_never(known)

    def _quiet(
        self,
        event: UserMessageChunkEvent
        | AgentMessageChunkEvent
        | AgentThoughtChunkEvent
        | AvailableCommandsUpdateEvent
        | CurrentModeUpdateEvent
        | SessionConfigInitEvent
        | ConfigOptionsUpdateEvent
        | SessionInfoUpdateEvent
        | UsageUpdateEvent
        | TerminalOutputEvent
        | TerminalUpdateEvent
        | ForegroundEvent
        | PlanRemovedEvent
        | UnrecognizedUpdateEvent
        | UnknownEvent
        | HostEvent,
        state: SessionState,
    ) -> None:
        """Print what is worth a quiet line, or nothing: chunks, outputs and usage have places."""
        match event:
            case (
                AvailableCommandsUpdateEvent()
                | CurrentModeUpdateEvent()
                | SessionConfigInitEvent()
                | ConfigOptionsUpdateEvent()
                | SessionInfoUpdateEvent()
            ):
                self._lines(self._settings.take(event, state))
            case UnrecognizedUpdateEvent() | UnknownEvent():
                self._noted(event)
            case ForegroundEvent():
                self._background(state)
            case PlanRemovedEvent():
                self._lines([Line(f"plan {one_line(event.payload.get('planId'))} removed", "dim")])
            case _:
                pass

    def _background(self, state: SessionState) -> None:
        """Print what runs in the background, when it changes."""
        work, self._work = background_words(state), self._work
        if work != self._work:
            words = f"working in the background: {work}" if work else "background work has ended"
            self._lines([Line(words, "dim")])
        self._work = work

    def _noted(self, event: UnrecognizedUpdateEvent | UnknownEvent) -> None:
        payload: Any = event.payload
        is_question = payload.get("sessionUpdate") == ELICITATION_UPDATED
        if is_question and payload.get("status") == "pending" and not self._shows_requests:
            return  # a `TerminalResponder` shows it
        self._lines(self._notes.take(event))

    def _lines(self, lines: Sequence[Line]) -> None:
        if lines:
            self._paragraph()
        for line in lines:
            self._line(line.text, line.style)

    def note(self, text: str) -> None:
        self.end()
        self._screen.flush()
        print_note(plain(text))

    def result(self, result: Mapping[str, Any]) -> None:
        """Print an error that no event reported."""
        error = result.get("error")
        if isinstance(error, Mapping):
            self.note(one_line(error.get("message")))

    def heading(self, text: str) -> None:
        self.end()
        rule = "─" if self._screen.is_fancy else "-"
        words = f"{rule * 2} {shortened(text, self._screen.width - 6)} "
        self._screen.line(words.ljust(self._screen.width, rule), "strong")
        self._blank_lines = 1

    def form(self, form: Mapping[str, Any]) -> None:
        """Nothing: a `TerminalResponder` shows it."""

    def end(self) -> None:
        if self._column:
            self._screen.line()
            self._column = 0
            self._blank_lines = 0
        self._flowing = None
        self._call_on_screen = None

    def _flow(self, event: Event, text: str) -> None:
        key = (event.type, event.payload.get("messageId"))
        style = {"agent-thought-chunk": "dim", "user-message-chunk": "strong"}.get(event.type, "")
        if not is_text_chunk(event):  # what is not text stands on lines of its own
            text = f"\n{text}\n" if self._column and key == self._flowing else f"{text}\n"
        if key != self._flowing:
            self._paragraph()
            self._flowing = key
            if event.type == "user-message-chunk":
                self._write("> ", style)
        for number, line in enumerate(text.split("\n")):
            if number:
                self._screen.line()
                self._blank_lines = 0 if self._column else min(self._blank_lines + 1, 2)
                self._column = 0
            self._words(line, style)
        self._screen.flush()

    def _words(self, line: str, style: str) -> None:
        """Write as much of a line as fits, and the rest on the next."""
        ready = ""
        for word in line.replace(" ", " \0").split("\0"):
            if self._column and self._column + cells(word.rstrip()) > self._screen.width:
                self._screen.line(ready, style)
                ready, self._column = "", 0
            ready += word
            self._column += cells(word)
        self._screen.write(ready, style)

    def _write(self, text: str, style: str) -> None:
        self._screen.write(text, style)
        self._column += cells(text)

    def _call(self, event: Event, state: SessionState) -> None:
        if is_repetition(event):
            return
        call_id = str(event.payload.get("toolCallId"))
        call = state.tool_calls.get(call_id)
        status, title = (None, None) if call is None else (call.status, call.title)
        before = self._printed.get(call_id)
        printed = () if before is None else before.lines
        lines = _shown_lines(body(event, self._marks, self._cwd))
        grown = grown_lines(printed, lines)
        more = list(lines if grown is None else grown)
        if call is not None and is_final_status(status):
            if not lines:  # output that came beside the content
                known = content_lines({"content": list(call.content)}, self._cwd)
                more = list(grown_lines(printed, _shown_lines(known)) or ())
            more += _written(call.content, state)
        elif is_unfinished(printed, more):
            more = []
        is_same = before is not None and before.status == status
        if is_same and not more:
            return
        is_continued = is_same and grown is not None and self._call_on_screen == (call_id, title)
        self._printed[call_id] = PrintedCall(status, lines if lines and more else printed)
        if not is_continued:
            self._paragraph()
            style = _STATUS_STYLES.get(str(status), "strong")
            self._line(summary(event, state, self._marks), style)
        self._body(more)
        self._call_on_screen = (call_id, title)

    def _block(self, event: Event, state: SessionState, title: str) -> None:
        self._paragraph()
        self._line(title + summary(event, state, self._marks), "strong")
        self._body(body(event, self._marks, self._cwd))

    def _changed(
        self,
        event: MessageUpdateEvent | PlanUpdateEvent | ToolCallContentChunkEvent,
        state: SessionState,
    ) -> None:
        """Print what cannot be printed over: a message's new content, a plan in words."""
        lines = body(event, self._marks, self._cwd)
        match event:
            case ToolCallContentChunkEvent():
                self._body(_shown_lines(lines))
            case PlanUpdateEvent():
                if event.payload.get("type") != "items":  # a list of entries has a `plan` as well
                    self._block(event, state, "plan: ")
            case MessageUpdateEvent():
                if lines:
                    self._paragraph()
                    self._line("the message now reads:", "dim")
                    self._body(lines)
            case _:
                assert_never(event)

    def _body(self, lines: list[Line]) -> None:
        for line in lines:
            room = self._screen.width - len(_INDENT)
            self._line(_INDENT + shortened(line.text, room), line.style)

    def _finished(self, payload: Mapping[str, Any], state: SessionState) -> None:
        error = payload.get("error")
        if isinstance(error, Mapping):
            self._paragraph()
            failure = RpcError(0, str(error.get("message")), error.get("data"))
            self._line(f"the agent failed: {one_line(failure.explanation)}", "bad")
        elif payload.get("stopReason") not in _QUIET_STOPS:
            self._paragraph()
            self._line(f"the turn ended: {one_line(payload.get('stopReason'))}", "warn")
        used = turn_facts(payload, state)
        if used:
            self._lines([Line(used, "dim")])
        self.end()

    def _request(
        self,
        event: PermissionRequestCreatedEvent | PermissionRequestResolvedEvent,
        state: SessionState,
    ) -> None:
        if isinstance(event, PermissionRequestCreatedEvent):
            self._requested(event, state)
        else:
            self._resolved(event.payload)

    def _requested(self, event: PermissionRequestCreatedEvent, state: SessionState) -> None:
        payload: Any = event.payload
        call, options = payload.get("toolCall"), payload.get("options")
        listed = options if isinstance(options, list) else []
        self._options[str(payload.get("requestId"))] = listed
        self._paragraph()
        if self._shows_requests:
            given = _known_call(call if isinstance(call, Mapping) else {}, state)
            read = _card(event).get("call")
            prompt = permission_prompt(given, listed, self._screen.width, read=read)
            for line in prompt.opening("`show --as events --json` has them"):
                self._screen.line(line.text, line.style)
            self._blank_lines = 0

    def _resolved(self, payload: Mapping[str, Any]) -> None:
        options = self._options.pop(str(payload.get("requestId")), [])
        self._paragraph()
        self._line(f"-> {_outcome(payload, options)}", "dim")

    def _lifecycle(
        self, event: SessionStatusChangeEvent | SessionResetEvent | ApprovalMismatchEvent
    ) -> None:
        match event:
            case SessionStatusChangeEvent(payload=payload):
                self._status(payload)
            case SessionResetEvent():
                self._paragraph()
                self._line("the agent replays the session from the start", "dim")
            case ApprovalMismatchEvent(payload=payload):
                self._mismatch(payload)
            case _:
                assert_never(event)

    def _mismatch(self, payload: Mapping[str, Any]) -> None:
        self._paragraph()
        self._line("the agent did something other than what was approved", "bad")
        for line in mismatch_lines(payload):
            self._line(f"  {line.text}", line.style)

    def _status(self, payload: Mapping[str, Any]) -> None:
        status = payload.get("status")
        if not is_session_status(status):
            return
        match status:
            case "disconnected" | "closed" | "deleted":
                self._paragraph()
                self._line(f"the session is {status}", "dim")
            case "creating" | "active" | "prompting" | "resuming":
                pass  # the turn itself shows it
            case _:
                assert_never(status)

    def _paragraph(self) -> None:
        """Begin a line, after a blank one if text was flowing."""
        was_flowing = self._flowing is not None
        self.end()
        if was_flowing and not self._blank_lines:
            self._screen.line()
            self._blank_lines = 1

    def _line(self, text: str, style: str) -> None:
        for part in wrapped(text, self._screen.width):
            self._screen.line(part, style)
        self._blank_lines = 0


def _outcome(payload: Mapping[str, Any], options: list[Any]) -> str:
    """Return the decision, named by the option's kind."""
    outcome = payload.get("outcome")
    if payload.get("status") == "superseded" or not isinstance(outcome, Mapping):
        return "withdrawn"
    if outcome.get("outcome") != "selected":
        return "cancelled"
    kinds = {
        str(each.get("optionId")): each.get("kind") for each in options if isinstance(each, dict)
    }
    words = dict(KEYS.values())
    return words.get(str(kinds.get(str(outcome.get("optionId")))), "answered")


def _shown_lines(lines: Sequence[Line]) -> list[Line]:
    """Return lines without those that only name a terminal, which means nothing to people."""
    return [
        line for line in lines if not (line.style == "dim" and line.text.startswith("terminal "))
    ]


def _card(event: PermissionRequestCreatedEvent) -> Mapping[str, Any]:
    """Return what a hub derived from a request."""
    ours = (event.extensions or {}).get("quarterdeck")
    card = ours.get("request") if isinstance(ours, Mapping) else None
    return card if isinstance(card, Mapping) else {}


def _known_call(given: Mapping[str, Any], state: SessionState) -> Mapping[str, Any]:
    """Return the call of a request with the input and the diffs that were announced before it."""
    known = state.tool_calls.get(str(given.get("toolCallId")))
    if known is None:
        return given
    more: dict[str, Any] = {"content": list(known.content)}
    if known.raw_input is not UNSET:
        more["rawInput"] = known.raw_input
    return {**more, **{name: value for name, value in given.items() if value is not None}}


def _written(content: Sequence[Any], state: SessionState) -> list[Line]:
    """Return the last output of the terminals of a call."""
    lines: list[Line] = []
    for part in content:
        terminal_id = part.get("terminalId") if isinstance(part, Mapping) else None
        terminal = state.terminals.get(str(terminal_id))
        if terminal is not None:
            lines += terminal_lines(terminal)
            written = plain(terminal.output).splitlines()
            hidden = len(written) - _WRITTEN_LINES
            if hidden > 0:
                lines.append(Line(f"| ... {hidden} lines before", "dim"))
            lines += (Line(f"| {line}", "dim") for line in written[-_WRITTEN_LINES:])
            ended = exit_line(terminal)
            lines += [] if ended is None else [ended]
    return lines

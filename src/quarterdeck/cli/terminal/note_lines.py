"""Lines of a terminal for what is neither a message nor a tool call: notes, settings, usage.

`NoteLines` collects the updates about one thing (`quarterdeck.views.notes`) and returns its lines
when its words change; a text that arrives in pieces is printed once. `SettingLines` returns what
changed of mode and options, and on request of commands and title. Pure: lines of styled text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quarterdeck.cli.terminal.event_text import Line, text_lines, turn_usage, usage_words
from quarterdeck.protocol import (
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    SessionConfigInitEvent,
    SessionInfoUpdateEvent,
    SessionState,
    TerminalOutputState,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    to_json,
)
from quarterdeck.views.block_words import compact
from quarterdeck.views.notes import Note, NoteText, note_key, note_text, noted_update
from quarterdeck.views.text import one_line

_STYLES: Final = {"info": "dim", "warning": "warn", "error": "bad"}
_INDENT: Final = "    "
_SettingEvent = (
    AvailableCommandsUpdateEvent
    | ConfigOptionsUpdateEvent
    | CurrentModeUpdateEvent
    | SessionConfigInitEvent
    | SessionInfoUpdateEvent
)


class NoteLines:
    """The notes of a session, as they are printed."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._printed: dict[str, NoteText] = {}
        self._growing: str | None = None
        """The note whose pieces are arriving."""

    def take(self, event: UnrecognizedUpdateEvent | UnknownEvent) -> list[Line]:
        """Return the lines that an event adds."""
        update = noted_update(event) or {}
        key = note_key(update)
        before = self.rest() if key is None or key != self._growing else []
        if key is None:
            return [*before, *_lines(note_text(update, str(event.session_id)), update)]
        note = self._notes.setdefault(key, Note(event))
        note.add(update)
        if str(update.get("sessionUpdate")).endswith("_chunk"):
            self._growing = key
            return before
        return [*before, *self._news(key, str(event.session_id))]

    def rest(self) -> list[Line]:
        """Return the lines of a text whose pieces have all arrived."""
        key, self._growing = self._growing, None
        return [] if key is None else self._news(key, "")

    def _news(self, key: str, session_id: str) -> list[Line]:
        self._growing = None
        note = self._notes[key]
        words, before = note_text(note.update, session_id), self._printed.get(key)
        if words == before:
            return []
        self._printed[key] = words
        if before is not None and words.text == before.text:
            words = words._replace(text="")
        return _lines(words, note.update)


def _lines(words: NoteText, update: Mapping[str, Any]) -> list[Line]:
    style = _STYLES[words.severity]
    rest = {key: value for key, value in update.items() if key != "sessionUpdate"}
    prefix = "" if words.severity == "info" else f"{words.severity}: "
    title = prefix + one_line(words.title)
    if title == update.get("sessionUpdate") and rest:  # an update that we do not know
        return [Line(f"{title}: {one_line(compact(rest))}", style)]
    below = (Line(_INDENT + line.text, style) for line in text_lines(words.text))
    return [Line(title, style), *below]


class SettingLines:
    """The settings of a session; returns a line for each that changes."""

    def __init__(self, *, shows_all: bool) -> None:
        """With `shows_all`, also the settings it begins with, commands and titles."""
        self._shows_all = shows_all
        self._known: dict[str, str] = {}

    def take(self, event: _SettingEvent, state: SessionState) -> list[Line]:
        """Return the lines that an event adds; `state` is the one after it."""
        lines = []
        is_start = isinstance(event, SessionConfigInitEvent)
        for name, value in _settings(event, state):
            before, self._known[name] = self._known.get(name), value
            is_quiet = name in ("commands", "title") or is_start
            if value != before and (self._shows_all or not is_quiet):
                lines.append(Line(f"{name}: {value}", "dim"))
        return lines


def _settings(event: _SettingEvent, state: SessionState) -> Iterator[tuple[str, str]]:
    facts = to_json(state)
    if isinstance(event, AvailableCommandsUpdateEvent):
        names = (each.get("name") for each in _tables(facts["availableCommands"]))
        yield "commands", ", ".join(f"/{one_line(name)}" for name in names) or "none"
        return
    if isinstance(event, SessionInfoUpdateEvent):
        if state.info.title:
            yield "title", one_line(state.info.title)
        return
    modes = facts["modes"] if isinstance(facts["modes"], Mapping) else {}
    if modes.get("currentModeId") is not None:
        yield "mode", _named(modes.get("availableModes"), modes["currentModeId"], "id")
    for option in _tables(facts["configOptions"]):
        name = one_line(option.get("name") or option.get("id"))
        chosen = _named(_choices(option), option.get("currentValue"), "value")
        yield ("mode" if option.get("category") == "mode" else name), chosen


def _choices(option: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the values of an option, those in groups included."""
    choices: list[Mapping[str, Any]] = []
    for each in _tables(option.get("options")):
        choices += _tables(each["options"]) if "options" in each else [each]
    return choices


def _named(choices: object, value: object, key: str) -> str:
    """Return a value by its name, if the agent gives one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    names = (each.get("name") for each in _tables(choices) if each.get(key) == value)
    return one_line(next((name for name in names if name), value))


def turn_facts(payload: Mapping[str, Any], state: SessionState) -> str:
    """Return what a turn used, and the session so far; empty if the agent does not report it."""
    facts = [turn_usage(payload.get("usage"))]
    if state.usage is not None:
        facts.append(usage_words(to_json(state)["usage"]))
    return "; ".join(filter(None, facts))


def background_words(state: SessionState) -> str:
    """Return what the agent works on in the background; empty if it reports nothing."""
    if not isinstance(state.foreground, Mapping):
        return ""
    return ", ".join(_work(each, state) for each in _tables(state.foreground.get("background")))


def _work(work: Mapping[str, Any], state: SessionState) -> str:
    kind, terminal, call = work.get("type"), work.get("terminalId"), work.get("toolCallId")
    if kind == "terminal" and isinstance(terminal, str):
        found = state.terminals.get(terminal)
        command = found.command if found is not None else None
        return one_line(command if isinstance(command, str) else f"terminal {terminal}")
    if kind == "tool_call" and isinstance(call, str):
        known = state.tool_calls.get(call)
        return one_line(known.title if known is not None and known.title else f"tool call {call}")
    if kind == "subagent":
        return one_line(f"sub-agent {work.get('title') or work.get('sessionId')}")
    return one_line(compact(work))


def terminal_lines(terminal: TerminalOutputState) -> Sequence[Line]:
    """Return the command and the folder of a terminal, as far as they are known."""
    if not terminal.command:
        return []
    folder = f" (in {one_line(terminal.cwd)})" if terminal.cwd else ""
    return [Line(f"$ {one_line(terminal.command)}{folder}", "dim")]


def exit_line(terminal: TerminalOutputState) -> Line | None:
    """Return how the program of a terminal ended, if it failed."""
    ended = terminal.exit
    if not isinstance(ended, Mapping):
        return None
    if ended.get("signal"):
        return Line(f"ended by signal {one_line(ended['signal'])}", "warn")
    if ended.get("exitCode"):
        return Line(f"exit code {one_line(ended['exitCode'])}", "warn")
    return None


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))


def is_note(event: Event) -> bool:
    """Return whether an event is printed as a note."""
    return isinstance(event, UnrecognizedUpdateEvent | UnknownEvent)

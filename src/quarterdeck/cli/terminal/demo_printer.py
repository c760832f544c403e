"""Prints a session of `demo --plain`: every event with its number, then the final state."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from quarterdeck.cli.terminal.event_text import (
    ASCII_MARKS,
    UNICODE_MARKS,
    Line,
    body,
    choices,
    chunk_text,
    final_lines,
    summary,
)
from quarterdeck.cli.terminal.screen import STYLES, OutputGuard, is_fancy
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import Event, SessionState, encode_event, to_json
from quarterdeck.views.text import plain

_INDENT: Final = " " * 14  # of the type of an event, and of its body
_TYPE: Final = 21  # the width of the usual types; longer ones move the text to the right
_TITLE: Final = 13  # the width of the titles in the final state
_NARROWEST, _WIDEST = 40, 100


class DemoPrinter(Protocol):
    """Prints a session of the demo: its events with their numbers, and the final state."""

    def event(self, event: Event, state: SessionState) -> None:
        """Print an event; `state` is the one after it."""
        ...

    def note(self, text: str) -> None:
        """Print a message that is not an event."""
        ...

    def options(self, options: Sequence[Mapping[str, Any]]) -> None:
        """Print the options of the permission request that was printed last."""
        ...

    def state(self, state: SessionState, last_seq: int) -> None:
        """Print the state after the last event."""
        ...


class GuardedDemoPrinter:
    """A printer behind an `OutputGuard`."""

    def __init__(self, printer: DemoPrinter, on_failure: Callable[[], None]) -> None:
        self._printer = printer
        self._guard = OutputGuard(on_failure)
        self._is_closed = False

    @property
    def failure(self) -> OSError | None:
        return self._guard.failure

    def close(self) -> None:
        """Print no more events: what follows is the end of the agent, not of its session."""
        self._is_closed = True

    def event(self, event: Event, state: SessionState) -> None:
        if not self._is_closed:
            self._guard.attempt(lambda: self._printer.event(event, state))

    def note(self, text: str) -> None:
        self._guard.attempt(lambda: self._printer.note(text))

    def options(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._guard.attempt(lambda: self._printer.options(options))

    def state(self, state: SessionState, last_seq: int) -> None:
        self._guard.attempt(lambda: self._printer.state(state, last_seq))


class DemoJsonPrinter:
    """One event per line of stdout, then the state."""

    def event(self, event: Event, _state: SessionState) -> None:
        print(encode_event(event).decode(), flush=True)

    def note(self, text: str) -> None:
        print(f"quarterdeck: {plain(text)}", file=sys.stderr, flush=True)

    def options(self, options: Sequence[Mapping[str, Any]]) -> None:
        self.note(choices(options))

    def state(self, state: SessionState, _last_seq: int) -> None:
        print(encode_json(to_json(state)).decode(), flush=True)


class DemoTextPrinter:
    """A line per event; chunks of one message flow together and end with their numbers."""

    def __init__(self, *, coloured: bool, cwd: str) -> None:
        self._coloured = coloured
        self._cwd = cwd
        self._marks = UNICODE_MARKS if is_fancy(sys.stdout) else ASCII_MARKS
        columns = shutil.get_terminal_size().columns
        self._width = max(_NARROWEST, min(columns, _WIDEST)) - 1
        self._started: float | None = None
        self._column = 0
        self._streaming: tuple[str, Any, int, int] | None = None
        """The message that is being written: type, id, first and last `seq`."""
        self._last_diff: list[Line] = []
        self._is_asking = False

    def event(self, event: Event, state: SessionState) -> None:
        # The Enter of an answer ends its line; a withdrawn request has none.
        self._end_request(was_answered=event.payload.get("status") == "answered")
        text = chunk_text(event)
        if text is not None:
            self._chunk(event, text)
            return
        self._end_message()
        self._head(event, summary(event, state, self._marks))
        lines = body(event, self._marks, self._cwd)
        if lines and lines == self._last_diff:
            lines = [Line("(the diff above)", "dim")]
        elif any(line.style == "hunk" for line in lines):
            self._last_diff = lines
        for line in lines:
            self._print(_INDENT + self._shortened(line.text, len(_INDENT)), line.style)

    def note(self, text: str) -> None:
        self._end_request(was_answered=False)
        self._end_message()
        sys.stdout.flush()
        print(f"quarterdeck: {plain(text)}", file=sys.stderr, flush=True)

    def options(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._end_message()
        self._print(_INDENT + self._shortened(choices(options), len(_INDENT)), "request")
        print(f"{_INDENT}a to allow, r to reject, or a number [a] > ", end="", flush=True)
        self._is_asking = True

    def state(self, state: SessionState, last_seq: int) -> None:
        self._end_message()
        title = f" {state.session_id} after {last_seq} events "
        self._print("")
        self._print((self._marks.rule * 2 + title).ljust(self._width, self._marks.rule), "strong")
        for name, lines in final_lines(state, self._marks):
            for number, line in enumerate(lines):
                label = "" if number else name
                self._print(f"{label:{_TITLE}}{self._shortened(line, _TITLE)}")

    def _head(self, event: Event, words: str) -> None:
        if self._started is None:
            self._started = event.ts
        seconds = (event.ts - self._started) / 1000
        head = f"{event.seq:>4} {seconds:6.2f}s  "
        name = f"{event.type:{_TYPE}} " if words else event.type
        short = self._shortened(words, len(head) + len(name))
        self._print(self._painted(head, "dim") + self._painted(name, "strong") + short)

    def _chunk(self, event: Event, text: str) -> None:
        message_id = event.payload.get("messageId")
        current = self._streaming
        if current is None or current[:2] != (event.type, message_id):
            self._end_message()
            self._head(event, "")
            current = (event.type, message_id, event.seq, event.seq)
        self._streaming = (*current[:3], event.seq)
        style = "dim" if event.type == "agent-thought-chunk" else ""
        self._flow(text, style)
        sys.stdout.flush()

    def _flow(self, text: str, style: str) -> None:
        """Write text as it arrives, with lines broken between words."""
        for number, paragraph in enumerate(text.split("\n")):
            if number:
                self._break_line()
            for word in paragraph.replace(" ", " \0").split("\0"):
                if self._column + len(word.rstrip()) > self._width and self._column:
                    self._break_line()
                if not self._column and word:
                    print(_INDENT, end="")
                    self._column = len(_INDENT)
                print(self._painted(word, style), end="")
                self._column += len(word)

    def _end_message(self) -> None:
        if self._streaming is None:
            return
        _type, _id, first, last = self._streaming
        self._streaming = None
        if last > first:
            numbers = f"[{first}-{last}]"
            if self._column + len(numbers) + 1 > self._width:
                self._break_line()
            print((" " if self._column else _INDENT) + self._painted(numbers, "dim"), end="")
            self._column += len(numbers)
        self._break_line()

    def _end_request(self, *, was_answered: bool) -> None:
        if self._is_asking and not was_answered:
            print()
        self._is_asking = False

    def _break_line(self) -> None:
        if self._column:
            print()
        self._column = 0

    def _shortened(self, text: str, indent: int) -> str:
        room = self._width - indent
        return text if len(text) <= room else text[: max(0, room - 3)] + "..."

    def _print(self, text: str, style: str = "") -> None:
        print(self._painted(text, style), flush=True)

    def _painted(self, text: str, style: str) -> str:
        code = STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._coloured and text.strip() else text

"""Prints a session as it happens: for people as text, for programs as lines of JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from quarterdeck.cli.demo_text import (
    ASCII_MARKS,
    UNICODE_MARKS,
    Line,
    body,
    choices,
    chunk_text,
    final_lines,
    summary,
)
from quarterdeck.cli.screen import STYLES, is_fancy
from quarterdeck.cli.text import plain
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import Event, SessionState, encode_event, to_json

_INDENT: Final = " " * 14  # where the type of an event stands, and its body
_TYPE: Final = 21  # the width of the usual types; the longer ones push their words aside
_TITLE: Final = 13  # the width of the titles in the final state
_NARROWEST, _WIDEST = 40, 100


class View(Protocol):
    """What a session is shown on."""

    def event(self, event: Event, state: SessionState) -> None:
        """Show an event; `state` is the one after it."""
        ...

    def note(self, text: str) -> None:
        """Say something that is no event."""
        ...

    def question(self, options: Sequence[Mapping[str, Any]]) -> None:
        """Ask for one of the options of the permission request that was shown last."""
        ...

    def state(self, state: SessionState, last_seq: int) -> None:
        """Show what the events add up to."""
        ...


class WatchedView:
    """A view until its reader leaves (`| head`) or its disk is full; after that nothing is shown.

    And nothing fails, but `failure` has what happened: most of what is shown is shown by
    subscribers of a host, which takes an exception for a mistake of theirs.
    """

    def __init__(self, view: View, on_failure: Callable[[], None]) -> None:
        self._view = view
        self._on_failure = on_failure
        self._is_closed = False
        self.failure: OSError | None = None

    def close(self) -> None:
        """Show no more events: what follows is the end of the agent, not of its session."""
        self._is_closed = True

    def event(self, event: Event, state: SessionState) -> None:
        if not self._is_closed:
            self._show(lambda: self._view.event(event, state))

    def note(self, text: str) -> None:
        self._show(lambda: self._view.note(text))

    def question(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._show(lambda: self._view.question(options))

    def state(self, state: SessionState, last_seq: int) -> None:
        self._show(lambda: self._view.state(state, last_seq))

    def _show(self, show: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        try:
            show()
        except OSError as error:
            self.failure = error
            self._on_failure()


class JsonView:
    """One event on each line of stdout, and the state on the last."""

    def event(self, event: Event, _state: SessionState) -> None:
        print(encode_event(event).decode(), flush=True)

    def note(self, text: str) -> None:
        print(f"quarterdeck: {plain(text)}", file=sys.stderr, flush=True)

    def question(self, options: Sequence[Mapping[str, Any]]) -> None:
        self.note(choices(options))

    def state(self, state: SessionState, _last_seq: int) -> None:
        print(encode_json(to_json(state)).decode(), flush=True)


class TextView:
    """A line for each event; chunks of one message flow together and end with their numbers."""

    def __init__(self, *, coloured: bool, cwd: str) -> None:
        self._coloured = coloured
        self._cwd = cwd
        self._marks = UNICODE_MARKS if is_fancy(sys.stdout) else ASCII_MARKS
        columns = shutil.get_terminal_size().columns
        self._width = max(_NARROWEST, min(columns, _WIDEST)) - 1
        self._started: float | None = None
        self._column = 0
        self._streaming: tuple[str, Any, int, int] | None = None
        """Of the message that is being written: type, id, first and last number."""
        self._last_diff: list[Line] = []
        self._is_asking = False

    def event(self, event: Event, state: SessionState) -> None:
        # The Enter of an answer ends its line; a question that is taken back has no Enter.
        self._end_question(was_answered=event.payload.get("status") == "answered")
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
        self._end_question(was_answered=False)
        self._end_message()
        sys.stdout.flush()
        print(f"quarterdeck: {plain(text)}", file=sys.stderr, flush=True)

    def question(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._end_message()
        self._print(_INDENT + self._shortened(choices(options), len(_INDENT)), "question")
        print(f"{_INDENT}a allows, r rejects, or a number [a] > ", end="", flush=True)
        self._is_asking = True

    def state(self, state: SessionState, last_seq: int) -> None:
        self._end_message()
        title = f" {state.session_id} after {last_seq} events, folded "
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
        """Write text as it comes, breaking lines between words."""
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

    def _end_question(self, *, was_answered: bool) -> None:
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

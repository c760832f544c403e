"""Few events from much output: when a terminal's text is told, and what of it in a flood.

Text waits until there is enough of it for an event, or until `due`. A megabyte may come as fast as
it likes; after that, until the output calms down, only the newest text is kept until `due`: so a
command that never stops talking costs a bounded rate of events and bytes, some 640 KiB a second.
Pure: the caller passes the time in and calls `flush` when it is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_EVENT_CHARACTERS = 32 * 1024
_EVENT_SECONDS = 0.05
_BURST_CHARACTERS = 1024 * 1024  # what a state keeps of a terminal


class Deltas:
    """Collects text and tells it in payloads of `terminal-output` events, all but the id."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._text = ""
        self._left_out = 0
        self._burst = _BURST_CHARACTERS
        self.due = math.inf

    def add(self, text: str, now: float) -> None:
        if not text:
            return
        self.due = min(self.due, now + _EVENT_SECONDS)
        self._text += text
        if len(self._text) < _EVENT_CHARACTERS:
            return
        if len(self._text) <= self._burst:
            self._burst -= len(self._text)
            self._emit()
        else:
            self._burst = 0
            self._left_out += len(self._text) - _EVENT_CHARACTERS
            self._text = self._text[-_EVENT_CHARACTERS:]

    def flush(self) -> None:
        """Tell what waits; that it was little ends a flood."""
        if len(self._text) < _EVENT_CHARACTERS and not self._left_out:
            self._burst = _BURST_CHARACTERS
        self._emit()

    def _emit(self) -> None:
        text, left_out = self._text, self._left_out
        self._text, self._left_out, self.due = "", 0, math.inf
        if left_out:
            text = f"\n[{left_out} characters left out]\n{text}"
        for start in range(0, len(text), _EVENT_CHARACTERS):
            payload: dict[str, Any] = {"delta": text[start : start + _EVENT_CHARACTERS]}
            self._tell(payload | {"truncated": True} if left_out else payload)

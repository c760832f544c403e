"""Puts lines that name the line before them in order. Pure.

Claude Code writes its transcript from several queues. When a session begins, the answer may be in
the file before the prompt: seen in about one of three sessions whose model answers at once. Each
line has a `uuid` and the `parentUuid` of the line before it, so a line whose parent was not read
yet is held back until the parent was.

A parent that never comes (a transcript whose beginning was removed) must not hold lines for ever:
too many of them are released, and the reader releases them when the file has not changed for a
moment. Then they are in the order of the file.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

MOST_HELD: Final = 64
MOST_HELD_BYTES: Final = 4 << 20
_REMEMBERED: Final = 4096
"""How many lines a parent may be before its child; a conversation may continue from an old one."""


class PlacedLine(NamedTuple):
    """A decoded line, and where it is in the file."""

    line: Any
    start: int
    end: int


class LineOrder:
    """Holds lines back until the line that they follow was read."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._recent: deque[str] = deque()
        self._held: list[PlacedLine] = []
        self._held_bytes = 0

    @property
    def held(self) -> list[PlacedLine]:
        """Lines that wait, in the order of the file."""
        return self._held

    def know(self, uuid: str) -> None:
        """Remember a line that was read before."""
        if uuid in self._known:
            return
        self._known[uuid] = None
        self._recent.append(uuid)
        if len(self._recent) > _REMEMBERED:
            del self._known[self._recent.popleft()]

    def add(self, placed: PlacedLine) -> list[PlacedLine]:
        """Return the lines whose turn it is now."""
        parent = _text(placed.line, "parentUuid")
        if parent is not None and parent not in self._known:
            self._held.append(placed)
            self._held_bytes += placed.end - placed.start
            is_full = len(self._held) > MOST_HELD or self._held_bytes > MOST_HELD_BYTES
            return self.release() if is_full else []
        return self._followed(placed) if self._held else self._taken(placed)

    def release(self) -> list[PlacedLine]:
        """Return all that is held; parents before their children, else in the order of the file."""
        released: list[PlacedLine] = []
        while self._held:
            own = {_text(each.line, "uuid") for each in self._held}
            first = next(
                (each for each in self._held if _text(each.line, "parentUuid") not in own),
                self._held[0],  # a circle
            )
            self._remove(first)
            released += self._followed(first)
        return released

    def _taken(self, placed: PlacedLine) -> list[PlacedLine]:
        uuid = _text(placed.line, "uuid")
        if uuid is not None:
            self.know(uuid)
        return [placed]

    def _followed(self, placed: PlacedLine) -> list[PlacedLine]:
        """Return a line and those that have waited for it, directly or not."""
        ready = self._taken(placed)
        while True:
            known = (each for each in self._held if _text(each.line, "parentUuid") in self._known)
            found = next(known, None)
            if found is None:
                return ready
            self._remove(found)
            ready += self._taken(found)

    def _remove(self, placed: PlacedLine) -> None:
        self._held.remove(placed)
        self._held_bytes -= placed.end - placed.start


def _text(line: Any, key: str) -> str | None:
    value = line.get(key) if isinstance(line, dict) else None
    return value if isinstance(value, str) else None

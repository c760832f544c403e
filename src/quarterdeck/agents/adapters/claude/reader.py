"""Reads a transcript of Claude Code in the order in which it happened (`line_order`).

While a line waits for its parent, a cursor says where the first such line is and which lines after
it were read: `{"offset": 188, "ahead": [2760, 3271]}`, with the ends of those lines.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from quarterdeck.agents.adapters.claude.transcript import Transcript
from quarterdeck.agents.adapters.line_file import LongLine, opened
from quarterdeck.agents.adapters.line_order import LineOrder, PlacedLine
from quarterdeck.agents.adapters.line_reader import LineReader
from quarterdeck.views.context import Cursor, ForeignSession, ForeignUpdate

HOLD_SECONDS: Final = 1.0
"""How long after the last change of the file a line waits for its parent."""
_KNOWN_BYTES: Final = 1 << 16
"""How much before the cursor is searched for parents."""
_UUID: Final = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,64})"')


class ClaudeReader(LineReader):
    """Reads one transcript from a cursor on."""

    def __init__(self, found: ForeignSession, after: Cursor | None, at: int) -> None:
        cursor = after or {}
        offset = int(cursor.get("offset", 0))
        transcript = Transcript(cwd=found.cwd, is_turn_open=bool(cursor.get("turn")), at=at)
        super().__init__(found, offset, transcript)
        ahead = cursor.get("ahead", ())
        self._ahead: list[int] = [end for end in ahead if isinstance(end, int)]
        """The ends of the lines that were read after the first one that waits."""
        self._recorded = frozenset(self._ahead)
        self._path = found.path
        self._order = LineOrder()
        self._is_begun = not offset
        self._begin = offset

    @property
    @override
    def is_holding(self) -> bool:
        return bool(self._order.held)

    @override
    def read(self) -> Sequence[ForeignUpdate]:
        if not self._is_begun:
            self._remember()
        updates = super().read()
        if not updates and self._order.held and self._is_quiet():
            updates = self._ordered(self._order.release(), self.offset)
        return updates

    def _remember(self) -> None:
        """Know the lines just before the cursor: they are the parents of those after it."""
        with opened(self._path) as file:
            first = max(0, self._begin - _KNOWN_BYTES)
            file.seek(first)
            before = file.read(self._begin - first)
        for uuid in _UUID.findall(before):
            self._order.know(uuid.decode("utf-8", "replace"))
        self._is_begun = True

    def _is_quiet(self) -> bool:
        since = time.time() - os.stat(self._path).st_mtime  # noqa: PTH116 - blocking on purpose
        return not 0 <= since < HOLD_SECONDS

    @override
    def _read_line(self, line: bytes | LongLine, end: int) -> list[ForeignUpdate]:
        size = line.size if isinstance(line, LongLine) else len(line)
        placed = PlacedLine(self._decoded(line, end), end - 1 - size, end)
        return self._ordered(self._order.add(placed), end)

    def _ordered(self, ready: list[PlacedLine], position: int) -> list[ForeignUpdate]:
        """Return the updates of lines whose turn it is; all up to `position` was looked at."""
        if len(ready) == 1 and not self._order.held and not self._ahead:  # almost always
            return self._placed(self._updates_of(ready[0].line), {"offset": position})
        updates: list[ForeignUpdate] = []
        for number, each in enumerate(ready):
            waiting = [*(later.start for later in ready[number + 1 :])]
            waiting += [held.start for held in self._order.held]
            first = min(waiting, default=position)
            self._ahead = sorted({end for end in (*self._ahead, each.end) if end > first})
            if each.end in self._recorded:
                continue
            cursor: dict[str, Any] = {"offset": first}
            if self._ahead:
                cursor["ahead"] = self._ahead
            updates += self._placed(self._updates_of(each.line), cursor)
        return updates

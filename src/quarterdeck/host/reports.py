"""Diagnostics that cannot flood: repeated reports are counted, lines of stderr are joined.

`RepeatedReports` publishes the first report of a kind at once, then the count when it reaches a
power of ten, and what is left when the agent ends. `StderrReports` publishes single lines as they
arrive, up to a rate; beyond it lines are joined, the first and the last of them in full, with the
number of those between.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

import anyio

KINDS: Final = 100  # that are counted apart; names are the agent's choice
BURST: Final = 50  # lines of stderr that are published one by one
PER_SECOND: Final = 10.0  # lines by which that is refilled
JOIN_SECONDS: Final = 1.0  # for which lines are joined
_FIRST, _LAST = 20, 30  # lines of a flood that are published in full

Publish = Callable[[int], None]
"""Publishes a report, with how many there are of it so far."""
OnText = Callable[[str, int], None]
"""Publishes text of stderr, and of how many lines it is."""


class RepeatedReports:
    """Counts what one agent repeats."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, tuple[int, int, Publish]] = {}
        """How many there were, how many of these are published, and the newest report."""

    def add(self, kind: Hashable, publish: Publish) -> None:
        """Publish the first of its kind, and counts of those that follow."""
        if kind not in self._counts and len(self._counts) >= KINDS:
            kind = None  # all others are one kind
        count, published, _ = self._counts.get(kind, (0, 0, publish))
        count += 1
        if _is_power_of_ten(count):
            published = count
            publish(count)
        self._counts[kind] = (count, published, publish)

    def flush(self) -> None:
        """Publish the counts that are not published yet, and start over."""
        counts, self._counts = self._counts, {}
        for count, published, publish in counts.values():
            if count > published:
                publish(count)


class StderrReports:
    """Publishes what one agent writes to its standard error."""

    def __init__(self, publish: OnText, now: Callable[[], float] = time.monotonic) -> None:
        self._publish = publish
        self._now = now
        self._allowed, self._refilled = float(BURST), now()
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST)
        self._count = 0
        self._joining = anyio.Event()

    def take(self, line: str) -> None:
        """Publish a line, or keep it to be joined with others."""
        now = self._now()
        self._allowed = min(BURST, self._allowed + (now - self._refilled) * PER_SECOND)
        self._refilled = now
        if not self._count and self._allowed >= 1:
            self._allowed -= 1
            self._publish(line, 1)
            return
        self._count += 1
        (self._first if len(self._first) < _FIRST else self._last).append(line)
        self._joining.set()

    async def run(self) -> None:
        """Publish joined lines every second in which there are some."""
        while True:
            await self._joining.wait()
            await anyio.sleep(JOIN_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Publish what is kept, as one text."""
        if not self._count:
            return
        left_out = self._count - len(self._first) - len(self._last)
        between = [f"… {left_out:,} more lines …"] if left_out else []
        text, count = "\n".join([*self._first, *between, *self._last]), self._count
        self._first, self._count = [], 0
        self._last.clear()
        self._joining = anyio.Event()
        self._publish(text, count)


def _is_power_of_ten(count: int) -> bool:
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count == 1

"""Milliseconds of an event as ISO 8601 text; pure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

_LAST_SECOND = 253_402_300_799  # of the year 9999


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


_NEVER: Final = -1e300
_ENDINGS: Final = tuple(f".{rest:03}Z" for rest in range(1000))


class IsoClock:
    """Writes times that follow each other closely: one second is written once."""

    def __init__(self) -> None:
        self._start = _NEVER
        self._second = ""

    def text(self, ms: float) -> str:
        """Write a time as `iso_time` does."""
        if 0 <= ms - self._start < 1000:
            return self._second + _ENDINGS[int(ms - self._start)]
        written = iso_time(ms)
        self._second = written[:-5]
        # Times that no calendar has are none to count from.
        self._start = int(ms) // 1000 * 1000 if 0 <= ms <= _LAST_SECOND * 1000 else _NEVER
        return written


def iso_time(ms: float) -> str:
    """Write a time; what no calendar has becomes the nearest that one has."""
    try:
        seconds, rest = divmod(int(ms), 1000)
    except (OverflowError, ValueError):
        seconds, rest = 0, 0
    if seconds < 0:
        seconds, rest = 0, 0
    elif seconds > _LAST_SECOND:
        seconds, rest = _LAST_SECOND, 999
    return f"{_second(seconds)}.{rest:03}Z"

"""Times as ISO 8601 text in UTC; pure: a time is given, no clock is read.

Events carry milliseconds since 1970 and are written to the millisecond (`iso_time`, `IsoClock`).
Tables and the HTTP API have seconds since 1970 and are written to the second (`iso_seconds`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias

Now: TypeAlias = Callable[[], float]
"""A clock: seconds since 1970. Code that needs the time is given one, so that tests can set it."""

_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_NEVER: Final = -1e300
_ENDINGS: Final = tuple(f".{rest:03}Z" for rest in range(1000))


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class IsoClock:
    """Writes times that follow each other closely: the text of a second is made once."""

    def __init__(self) -> None:
        self._start = _NEVER
        self._second = ""

    def text(self, ms: float) -> str:
        """Write a time as `iso_time` does."""
        if 0 <= ms - self._start < 1000:
            return self._second + _ENDINGS[int(ms - self._start)]
        written = iso_time(ms)
        self._second = written[:-5]
        # Times outside the calendar were replaced, so they are no base to count from.
        self._start = int(ms) // 1000 * 1000 if 0 <= ms <= _LAST_SECOND * 1000 else _NEVER
        return written


def iso_time(ms: float) -> str:
    """Write milliseconds since 1970; a time outside the calendar becomes the nearest inside it."""
    try:
        seconds, rest = divmod(int(ms), 1000)
    except (OverflowError, ValueError):
        seconds, rest = 0, 0
    if seconds < 0:
        seconds, rest = 0, 0
    elif seconds > _LAST_SECOND:
        seconds, rest = _LAST_SECOND, 999
    return f"{_second(seconds)}.{rest:03}Z"


def iso_seconds(seconds: float) -> str:
    """Write seconds since 1970, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 text."""
    return datetime.fromisoformat(text).timestamp()

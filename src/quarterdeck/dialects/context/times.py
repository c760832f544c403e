"""Milliseconds of an event as ISO 8601 text; pure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_LAST_SECOND = 253_402_300_799  # of the year 9999


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


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

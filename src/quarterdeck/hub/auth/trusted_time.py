"""`TrustedTime`: the time of day, without jumps of the system's clock.

A clock that is wrong for a moment (a dead battery, a bad time server, a resumed virtual machine)
must not end devices permanently. The time of day is compared with a clock that cannot be set and
that counts while the machine sleeps. If the two disagree, the time continues as before; the new
time of day is accepted after it has held for `SETTLE_SECONDS`. The first minutes of a process are
not settled either: it cannot know whether the clock was right when it started.
"""

from __future__ import annotations

import time
from typing import Any, Final

from quarterdeck.protocol.timestamps import Now

SETTLE_SECONDS: Final = 1_800.0
"""How long another time of day has to hold until it is accepted."""
JUMP_SECONDS: Final = 300.0
"""More than clocks are corrected by in the usual way."""


def boot_time() -> float:
    """Return the seconds since the machine was started, including those in which it slept."""
    # CLOCK_MONOTONIC of macOS does not stop during sleep, unlike `time.monotonic`.
    clock: Any = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class TrustedTime:
    """The time of day in seconds, checked against a steady clock."""

    def __init__(self, now: Now = time.time, steady: Now | None = None) -> None:
        """Without `steady`, the system's clock is checked, and another `now` is accepted."""
        self._now = now
        self._is_checked = steady is not None or now is time.time
        self._steady = steady or (boot_time if self._is_checked else now)
        self._wall, self._at = now(), self._steady()
        self._began = self._at
        self._jumped: tuple[float, float] | None = None
        """When the clock was first seen to have jumped, and by how much it then was ahead."""

    def now(self) -> float:
        """Return the time of day."""
        if not self._is_checked:
            return self._now()
        wall, at = self._now(), self._steady()
        expected = self._wall + (at - self._at)
        ahead = wall - expected
        if abs(ahead) > JUMP_SECONDS and not self._is_accepted(ahead, at):
            return expected
        self._wall, self._at, self._jumped = wall, at, None
        return wall

    def _is_accepted(self, ahead: float, at: float) -> bool:
        if self._jumped is None or abs(ahead - self._jumped[1]) > JUMP_SECONDS:
            self._jumped = (at, ahead)
        return at - self._jumped[0] >= SETTLE_SECONDS

    @property
    def is_settled(self) -> bool:
        """Whether the time may end something for good."""
        if not self._is_checked:
            return True
        self.now()
        return self._jumped is None and self._steady() - self._began >= SETTLE_SECONDS

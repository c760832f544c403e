"""Holds back all numbering until lost events had a chance to come back.

After a power cut the last commits of a log may be lost, while a hub still has these events. They
can only come back before other events get their numbers. What protects the numbers themselves is
the epoch of the log, which the storage has changed when it was opened: no number is given twice in
one epoch, with a hub or without.

    the log was opened                          its epoch   sessions are numbered
    after it was closed, or after kill -9       the same    at once
    after a power cut, `synchronous="full"`     a new one   at once: nothing was lost
    after a power cut, `synchronous="normal"`   a new one   when it is released: a hub has compared
                                                            its heads, or none was there
    after it was copied, replaced or damaged    a new one   at once: it is another log

Meanwhile sessions can be listed, compared, completed (`LogHeads.take_back`) and stopped. Everything
that numbers waits in `passed`: a new session, load, resume, a new title, and settling, so also
every reader of a log.
"""

from __future__ import annotations

import anyio


class NumberingHold:
    """Whether numbering is held back; `passed` waits for the end of it."""

    def __init__(self) -> None:
        self._released: anyio.Event | None = None

    @property
    def is_held(self) -> bool:
        return self._released is not None

    def begin(self) -> None:
        """Hold everything back; called before any session is known."""
        self._released = anyio.Event()

    def release(self) -> None:
        """Let everything continue that waits."""
        released, self._released = self._released, None
        if released is not None:
            released.set()

    async def passed(self) -> None:
        """Wait until events can be numbered."""
        if self._released is not None:
            await self._released.wait()

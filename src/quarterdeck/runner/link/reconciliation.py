"""`Reconciliation`: a hub that has newer events than its runner gives them back.

A runner with `synchronous = "normal"` can lose its last commits in a power cut, and a hub may have
received them. If the runner numbered on, it would give the same numbers to other events. So before
a log of a runner that was started again is followed, the newest event here is compared with the
runner's (`heads` of the runner says how). What the runner lacks, and is still here, is sent back.
Where that is not possible, the session is stopped, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from quarterdeck.errors import RequestRejected
from quarterdeck.host.log.heads import event_digest
from quarterdeck.runner.actor import Actor
from quarterdeck.runner.heads import HeadVerdict, LogHead
from quarterdeck.runner.link.messages import plain, typed
from quarterdeck.runner.link.remote_log import RemoteLog

logger = logging.getLogger(__name__)

HUB = Actor(id="hub", name="the hub", kind="program")


class Calls(Protocol):
    """Carries out calls of the runner."""

    async def call(
        self, method: str, params: dict[str, Any], events: Sequence[bytes] | None = None
    ) -> Any: ...


class Reconciliation:
    """Brings a runner's logs up to what is here."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def compare(self, logs: Sequence[RemoteLog]) -> None:
        """Compare logs with the runner's; send back or stop those that it lacks events of.

        Raises:
            QuarterdeckError: if the runner fails to compare.
        """
        known = {head.session_id: log for log in logs if (head := head_of(log)) is not None}
        heads = [head_of(log) for log in known.values()]
        answer = await self._calls.call("compare_heads", {"heads": plain(heads)})
        verdicts: list[HeadVerdict] = typed(answer, list[HeadVerdict])
        for verdict in verdicts:
            log = known.get(verdict.session_id)
            if log is not None:
                await self._act(log, verdict)

    async def _act(self, log: RemoteLog, verdict: HeadVerdict) -> None:
        match verdict.verdict:
            case "same" | "unknown":
                return
            case "behind":
                missing = missing_after(log, verdict)
                if missing is None:
                    reason = f"the hub has events after number {verdict.last_seq} that are lost"
                    await self._stop(verdict.session_id, reason)
                else:
                    await self._give_back(verdict.session_id, missing)
            case "diverged":
                reason = f"the hub has a different event with number {log.head}"
                await self._stop(verdict.session_id, reason)

    async def _give_back(self, session_id: str, events: Sequence[bytes]) -> None:
        params = {"session_id": session_id, "by": plain(HUB)}
        try:
            await self._calls.call("take_back", params, events)
        except RequestRejected as error:  # the session is in use already
            await self._stop(session_id, f"events could not be sent back: {error.message}")
        else:
            facts = {"session": session_id, "events": len(events)}
            logger.warning("the runner had lost events; they were sent back", extra=facts)

    async def _stop(self, session_id: str, reason: str) -> None:
        logger.error("a session was stopped", extra={"session": session_id, "reason": reason})
        params = {"session_id": session_id, "reason": reason, "by": plain(HUB)}
        await self._calls.call("stop_diverged", params)


def head_of(log: RemoteLog) -> LogHead | None:
    """Return the newest event of a log that is here; None if there is none."""
    if log.session_id is None or not log.kept or log.kept[-1][0] != log.head:
        return None
    digest = event_digest(log.kept[-1][1][-1])
    return LogHead(session_id=log.session_id, last_seq=log.head, digest=digest)


def missing_after(log: RemoteLog, verdict: HeadVerdict) -> list[bytes] | None:
    """Return the events that a runner lacks; None if not all are here, or it has others."""
    numbered = {
        last - len(events) + 1 + index: event
        for last, events in log.kept
        for index, event in enumerate(events)
    }
    newest = numbered.get(verdict.last_seq)
    if verdict.last_seq and (newest is None or event_digest(newest) != verdict.digest):
        return None
    wanted = range(verdict.last_seq + 1, log.head + 1)
    return [numbered[each] for each in wanted] if all(each in numbered for each in wanted) else None

"""What a connection tells about a peer that misbehaves: nothing is dropped without a word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from quarterdeck.wire.tasks import foreign_errors

logger = logging.getLogger(__name__)

SHOWN = 200  # bytes of the offending text that a report carries


class ReportKind(Enum):
    """What was met."""

    NOISE = "noise"  # text that was not meant for us
    MALFORMED = "malformed"  # JSON, or an attempt at it, that is no message
    REFUSED = "refused"  # skipped by a limit, a broken header or the end of the stream
    UNKNOWN_ANSWER = "unknown answer"  # nobody waits for it, or its caller has given up
    ODD_ANSWER = "odd answer"  # taken, although its id was not spelled as ours
    INVALID_PARAMS = "invalid params"  # of a notification: a request is answered instead
    HANDLER_FAILED = "handler failed"  # ours raised; the connection goes on
    OVERLOADED = "overloaded"  # more requests, or more unread answers, than we hold


@dataclass(frozen=True, slots=True)
class Report:
    """One thing met; `text` is the beginning of what the peer sent."""

    kind: ReportKind
    reason: str
    text: bytes = b""


OnReport = Callable[[Report], None]


def guarded(on_report: OnReport) -> OnReport:
    """Wrap a callback so that a report never ends the connection it reports on."""

    def report(what: Report) -> None:
        try:
            on_report(what)
        except foreign_errors():
            logger.exception("report callback failed", extra={"reason": what.reason})

    return report


def log_report(report: Report) -> None:
    """Write a report to the log: what a connection does unless it is told otherwise."""
    logger.warning(
        "met on a connection",
        extra={"kind": report.kind.value, "reason": report.reason, "text": report.text},
    )

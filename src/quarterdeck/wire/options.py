"""How a connection behaves, where that is a choice.

What a connection tells about a peer that misbehaves: nothing is dropped without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import anyio

from quarterdeck.wire.framing import MAX_HEADER, MAX_MESSAGE
from quarterdeck.wire.messages import CANCEL_REQUEST, PLAIN, Vocabulary
from quarterdeck.wire.outbox import HIGH_WATER
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


def _go_on() -> None:
    """Never wait before reading on."""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How a connection reads, writes and complains."""

    vocabulary: Vocabulary = PLAIN
    enc_hook: Callable[[Any], Any] | None = None
    """What msgspec's encoder calls for types it does not know."""
    on_report: OnReport = log_report
    answers_garbage: bool = True
    """Answer what is no message by an error with the id null, as a server does. A host that reads
    the standard output of an agent sets it to False: it only reports the greeting it found."""
    hold: Callable[[], anyio.Event | None] = _go_on
    """Asked after everything one read delivered is handled; if it returns an event, nothing more is
    read before that is set, and a peer that goes on writing is stopped by its full pipe."""
    cancel_method: str = CANCEL_REQUEST
    """The notification that tells the peer, with `requestId`, of a call that was given up."""
    max_message: int = MAX_MESSAGE
    max_header: int = MAX_HEADER
    max_requests: int = 1000
    """Requests of the peer that may run at once."""
    high_water: int = HIGH_WATER
    """Bytes that may wait for a peer that does not read before senders wait."""
    grace_seconds: float = 0
    """How long running requests may go on after the peer's output has ended."""
    close_seconds: float = 2
    """How long leaving the connection waits for the peer to take what was written."""

"""Options of a connection, and the reports it makes.

A report describes each thing a peer sent that was not handled as a message: no input is dropped
without a report.
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
    """Why something is reported."""

    NOISE = "noise"  # text that is no message
    MALFORMED = "malformed"  # JSON, or an attempt at it, that is no message
    REFUSED = "refused"  # skipped by a limit, a broken header or the end of the stream
    UNKNOWN_ANSWER = "unknown answer"  # no call waits for it, or its caller gave up
    ODD_ANSWER = "odd answer"  # accepted, although its id is spelled differently
    INVALID_PARAMS = "invalid params"  # of a notification; a request gets an error instead
    HANDLER_FAILED = "handler failed"  # it raised; the connection continues
    OVERLOADED = "overloaded"  # more requests, or more unread answers, than the limits allow


@dataclass(frozen=True, slots=True)
class Report:
    """One report; `text` is the beginning of what the peer sent."""

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
    """Log a report; the default of `on_report`."""
    logger.warning(
        "unexpected input",
        extra={"kind": report.kind.value, "reason": report.reason, "text": report.text},
    )


def _read_on() -> None:
    """Continue reading at once."""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How a connection reads, writes and reports."""

    vocabulary: Vocabulary = PLAIN
    enc_hook: Callable[[Any], Any] | None = None
    """What msgspec's encoder calls for types it does not know."""
    on_report: OnReport = log_report
    answers_garbage: bool = True
    """Respond to what is no message with an error whose id is null, as JSON-RPC requires. A host
    that reads the standard output of an agent sets it to False: it only reports noise."""
    after_read: Callable[[], anyio.Event | None] = _read_on
    """Called after everything one read delivered is handled; the host commits and publishes then.
    If it returns an event, reading pauses until that is set, and the full pipe stops a peer that
    keeps writing."""
    cancel_method: str = CANCEL_REQUEST
    """The notification, with `requestId`, that cancels a call whose caller gave up."""
    max_message: int = MAX_MESSAGE
    max_header: int = MAX_HEADER
    max_requests: int = 1000
    """Limit of concurrently running requests of the peer."""
    high_water: int = HIGH_WATER
    """Unread bytes beyond which senders wait."""
    grace_seconds: float = 0
    """How long running requests may continue after the end of the peer's output."""
    close_seconds: float = 2
    """How long closing waits for the peer to read what is in the outbox."""

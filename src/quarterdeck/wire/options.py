"""How a connection behaves, where that is a choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from quarterdeck.wire.framing import MAX_HEADER, MAX_MESSAGE
from quarterdeck.wire.messages import CANCEL_REQUEST
from quarterdeck.wire.outbox import HIGH_WATER
from quarterdeck.wire.reports import OnReport, log_report
from quarterdeck.wire.vocabulary import PLAIN, Vocabulary


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

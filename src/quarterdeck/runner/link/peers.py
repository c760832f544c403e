"""`LinkPeers`: which processes of this machine may connect to a runner as a hub.

A process of this user, or of root, may unless an agent started it (INV-12): over the link, requests
can be answered in the name of any device. The kernel says which process has connected.

A process of an agent that tries it is recorded: the sentence is part of the health that every hub
has, now or when it connects, and the hub adds it to the history of devices and sends a push
message. At most one a minute; those in between are counted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from quarterdeck.machine.process_origin import PeerOrigin, origin_of_socket
from quarterdeck.machine.socket_peers import socket_peer
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.views.text import one_line

logger = logging.getLogger(__name__)

RECORD_SECONDS: Final = 60.0
"""Between two records of agents that were refused."""


class LinkPeers:
    """Checks who connects to a runner's socket."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.refused_agent = ""
        """The process of an agent that was refused and recorded last, in words."""
        self._clock = clock
        self._recorded_at = float("-inf")
        self._unrecorded = 0

    def refusal(self, connection: Any, accepted_at: float) -> str | None:
        """Return why the process at the other end is refused; None if it is not."""
        try:
            peer = socket_peer(connection)
        except (OSError, AttributeError):
            return _GONE  # it is closed already
        if peer is not None and peer.uid not in (os.geteuid(), 0):
            logger.debug("a process of another user was refused", extra={"uid": peer.uid})
            return "this runner belongs to another user"
        found = origin_of_socket(connection, accepted_at)
        if found.origin == "agent":
            self._record(found)
            return "this call came from an agent's process, and agents cannot control the runner"
        return _GONE if found.origin == "gone" else None

    def _record(self, found: PeerOrigin) -> None:
        facts = {"pid": found.pid, "program": one_line(found.program)}
        now = self._clock()
        if now - self._recorded_at < RECORD_SECONDS:
            self._unrecorded += 1
            return
        self._recorded_at = now
        # Not each one: an agent that tries again and again must not push the rest out of the log.
        logger.warning("a process of an agent was refused", extra=facts)
        more = f", and {self._unrecorded} more before" if self._unrecorded else ""
        self._unrecorded = 0
        self.refused_agent = (
            f"a connection to the runner by process {found.pid} ({facts['program']})"
            f" at {iso_seconds(time.time())}{more}"
        )


_GONE: Final = "the process that opened this connection has ended, or handed it over; connect again"

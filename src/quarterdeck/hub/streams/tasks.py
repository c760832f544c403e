"""Work that outlives the connection it was asked on: a task of the host, which it must not harm."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from quarterdeck.host import Host

logger = logging.getLogger(__name__)


def start_in_background(host: Host, work: Callable[[], Awaitable[None]]) -> None:
    """Let the host see something through; what goes wrong in it is logged and ends nothing else.

    Raises:
        AcpError: `acpjs/agent-exited` if the host does not run.
    """

    async def run() -> None:
        try:
            await work()
        except Exception:
            logger.exception("work for a client failed")

    host.start_soon(run)

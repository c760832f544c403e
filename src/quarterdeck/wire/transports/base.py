"""What a transport is: a pair of byte streams and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio

OnBytes = Callable[[bytes], anyio.Event | None]
"""Take what arrived. If it returns an event, nothing more is read before that is set."""


class ByteTransport(Protocol):
    """Bytes in order, both ways. One task reads, one task writes."""

    async def pump(self, on_bytes: OnBytes) -> None:
        """Call `on_bytes` with all that arrives, in order, until the other side has closed.

        It is called as soon as the bytes are there, in a task or in a callback of the event loop.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Send all of `data`, waiting while the other side is slow.

        Raises:
            ConnectionClosed: if the other side is gone or no longer reads.
        """
        ...

    def send_now(self, data: bytes) -> int:
        """Send as much of `data` as goes without waiting; return how many bytes that was.

        Not while a `send` is under way.

        Raises:
            ConnectionClosed: if the other side is gone or no longer reads.
        """
        ...

    async def aclose(self) -> None:
        """Close both directions; safe to call twice and under cancellation."""
        ...

    async def explain_refusal(self) -> str:
        """Say in a few words why the other side takes no more, waiting a moment for the facts."""
        ...

    async def explain_end(self) -> str:
        """Say in a few words how the other side ended, waiting a moment for the facts."""
        ...

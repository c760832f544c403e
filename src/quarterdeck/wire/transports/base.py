"""The interface of a transport: a pair of byte streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio

OnBytes = Callable[[bytes], anyio.Event | None]
"""Handle received bytes. If it returns an event, reading pauses until it is set."""


class ByteTransport(Protocol):
    """Bytes in order, in both directions. One task reads, one task writes."""

    async def pump(self, on_bytes: OnBytes) -> None:
        """Call `on_bytes` with everything received, in order, until the other side closes.

        It is called as soon as bytes arrive, in a task or in a callback of the event loop.
        """
        ...

    async def send(self, data: bytes) -> None:
        """Send all of `data`, waiting while the other side is slow.

        Raises:
            ConnectionClosed: if the other side is gone or no longer reads.
        """
        ...

    def send_now(self, data: bytes) -> int:
        """Send as much of `data` as possible without waiting; return the number of bytes.

        Must not be called during a `send`.

        Raises:
            ConnectionClosed: if the other side is gone or no longer reads.
        """
        ...

    async def aclose(self) -> None:
        """Close both directions; safe to call twice and under cancellation."""
        ...

    async def explain_refusal(self) -> str:
        """Return why the other side no longer reads, after a short wait for its exit."""
        ...

    async def explain_end(self) -> str:
        """Return how the other side ended, after a short wait for its exit."""
        ...

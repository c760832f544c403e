"""uvicorn's HTTP with a bound on how long the head of a request may take: it has none itself.

The time counts from the connection, or from the first byte of a later request, to the end of the
head, however many bytes come meanwhile. Between requests uvicorn closes what is silent.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - a protocol of asyncio, and its timers
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


_TOO_SLOW = b"the head of the request took too long\n"
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_TOO_SLOW), _TOO_SLOW)


class _BoundedHeads(H11Protocol):
    head_seconds: float

    _timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        self._watch()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_ANSWER)
            self.transport.close()


def bounded_heads(seconds: float) -> type[H11Protocol]:
    """Return the protocol for `uvicorn.Config(http=…)`."""
    return type("BoundedHeads", (_BoundedHeads,), {"head_seconds": seconds})

"""`FairListener`: a flood of connections from one address does not delay those of others.

An event loop serves what it accepted in the order of arrival, and accepts all that wait: a thousand
connections that each send a request (the handshake of a WebSocket is the most expensive) keep it
busy for seconds, and everything else waits behind them. Accepting a connection is cheap; serving it
is not. So connections are accepted as they arrive and wait, by address, until it is their turn:

    accepted   waits in the queue of its address
    begun      `PER_TURN` in each turn of the loop, one of each address in turns
    dropped    more than `WAITING` wait: the oldest one of the address with the most

An IPv6 /64 counts as one address, because that is what one customer has.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from quarterdeck.http.limits import ACCEPT_RETRY_SECONDS

logger = logging.getLogger(__name__)

ACCEPTED: Final = 512
"""Connections accepted in one turn of the loop, some 10 ms. A flood brings more, and a full backlog
of the system makes honest clients wait for seconds until they connect again."""
PER_TURN: Final = 8
"""Connections begun in one turn: some 10 ms, if all of them are expensive."""
WAITING: Final = 256
_PREFIX: Final = 64


class FairListener:
    """Accepts connections without TLS; uvicorn closes it like a server of asyncio."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        most_waiting: int = WAITING,
    ) -> None:
        """Accept until `close`."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._most = most_waiting
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[str, deque[socket.socket]] = OrderedDict()
        self._count = 0
        self._turn: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[Any]] = set()
        listener.setblocking(False)  # noqa: FBT003 - the only way to call it
        self._resume()

    def close(self) -> None:
        """Accept no more, and close what waits."""
        if self._pause is not None:
            self._pause.cancel()
        if self._turn is not None:
            self._turn.cancel()
        self._loop.remove_reader(self._listener)
        for queue in self._waiting.values():
            for each in queue:
                each.close()
        self._waiting.clear()
        self._count = 0

    async def wait_closed(self) -> None:
        """Return at once: uvicorn waits for the connections itself."""

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                logger.warning("cannot accept a connection", extra={"reason": str(error)})
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(ACCEPT_RETRY_SECONDS, self._resume)
                break
            accepted.setblocking(False)  # noqa: FBT003 - the only way to call it
            self._add(accepted, network_of(address[0]))
        if self._count and self._turn is None:
            self._turn = self._loop.call_soon(self._begin_some)

    def _add(self, accepted: socket.socket, network: str) -> None:
        self._waiting.setdefault(network, deque()).append(accepted)
        self._count += 1
        if self._count > self._most:
            largest = max(self._waiting, key=lambda each: len(self._waiting[each]))
            self._take(largest).close()

    def _take(self, network: str) -> socket.socket:
        """Take the connection of an address that waits longest; the others get their turn first."""
        queue = self._waiting.pop(network)
        self._count -= 1
        taken = queue.popleft()
        if queue:
            self._waiting[network] = queue
        return taken

    def _begin_some(self) -> None:
        self._turn = None
        for _ in range(min(PER_TURN, self._count)):
            accepted = self._take(next(iter(self._waiting)))
            task = self._loop.create_task(self._begin(accepted))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        if self._count:
            self._turn = self._loop.call_soon(self._begin_some)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError as error:
            accepted.close()
            logger.debug("a connection could not be begun", extra={"reason": str(error)})


def network_of(address: str) -> str:
    """Return the address, or the network, that counts as one client."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, _PREFIX), strict=False))
    return str(ip)

"""`FairListener`: a flood of connections delays neither other addresses nor known clients.

An event loop serves what it accepted in the order of arrival, and accepts all that wait: a thousand
connections that each send a request (the handshake of a WebSocket is the most expensive) keep it
busy for seconds, and everything else waits behind them. Accepting a connection is cheap; serving it
is not. So connections are accepted as they arrive and wait, by address, until it is their turn:

    accepted   waits in the queue of its address
    begun      `PER_TURN` in each turn of the loop, one of each address in turns
    dropped    more than `WAITING` wait: the oldest one of the address with the most

The address does not distinguish a flood from an honest client behind the same proxy, or on this
computer. So while more than `CROWD` wait, the heads that have arrived are looked at in the socket's
buffer, without taking them out:

    known      its head has a credential of the application (`IsKnown`): begun before all others,
               never dropped for one that is not
    left       the client has closed it: closed
    stranger   all others: `STRANGERS` are begun in `STRANGER_SECONDS`, of all addresses together,
               so that they take a fraction of the loop's time

Whether a credential is valid is checked later, as always; here it decides about the order alone. An
IPv6 /64 counts as one address, because that is what one customer has.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from quarterdeck.http.limits import ACCEPT_RETRY_SECONDS

logger = logging.getLogger(__name__)

IsKnown: TypeAlias = Callable[[bytes], bool]
"""Whether the head of a request, as it was sent, names a client that the application knows."""

ACCEPTED: Final = 512
"""Connections accepted in one turn of the loop, some 10 ms. A flood brings more, and a full backlog
of the system makes honest clients wait for seconds until they connect again."""
PER_TURN: Final = 8
"""Connections begun in one turn: some 10 ms, if all of them are expensive."""
WAITING: Final = 256
CROWD: Final = 32
"""Waiting connections; more than that, and strangers are begun more slowly."""
STRANGERS: Final = 4
STRANGER_SECONDS: Final = 0.02
HEAD_BYTES: Final = 16 << 10
"""That are looked at; a credential behind them is not found, and its client waits as others do."""
_END: Final = b"\r\n\r\n"
_PREFIX: Final = 64


@dataclass(slots=True, eq=False)
class _Waiting:
    """An accepted connection that is not begun."""

    socket: socket.socket
    network: str
    is_stranger: bool = False
    """Its head has arrived, and is of no known client."""


class FairListener:
    """Accepts connections without TLS; uvicorn closes it like a server of asyncio."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        most_waiting: int = WAITING,
        is_known: IsKnown | None = None,
    ) -> None:
        """Accept until `close`; without `is_known`, all clients are alike."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._most = most_waiting
        self._is_known_head = is_known
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._count = 0
        self._known: deque[_Waiting] = deque()
        self._strangers_at = float("-inf")
        self._turn: asyncio.Handle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._beginning: set[asyncio.Task[Any]] = set()
        listener.setblocking(False)  # noqa: FBT003 - the only way to call it
        self._resume()

    def close(self) -> None:
        """Accept no more; begin what waits, but close a crowd."""
        if self._pause is not None:
            self._pause.cancel()
        if self._turn is not None:
            self._turn.cancel()
        self._loop.remove_reader(self._listener)
        is_crowded = self._count + len(self._known) > CROWD
        for queue in (self._known, *self._waiting.values()):
            for each in queue:
                if is_crowded:
                    each.socket.close()
                else:
                    self._begin_soon(each)
        self._waiting.clear()
        self._known.clear()
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
            self._add(_Waiting(accepted, network_of(address[0])))
        if self._turn is None and (self._count or self._known):
            self._turn = self._loop.call_soon(self._begin_some)

    def _add(self, accepted: _Waiting) -> None:
        self._waiting.setdefault(accepted.network, deque()).append(accepted)
        self._count += 1
        while self._count > self._most:
            largest = max(self._waiting, key=lambda each: len(self._waiting[each]))
            oldest = self._take(largest)
            if self._is_known(oldest) and len(self._known) < self._most:
                self._known.append(oldest)
            else:
                oldest.socket.close()

    def _take(self, network: str) -> _Waiting:
        """Take the connection of an address that waits longest; the others get their turn first."""
        queue = self._waiting.pop(network)
        self._count -= 1
        taken = queue.popleft()
        if queue:
            self._waiting[network] = queue
        return taken

    def _begin_some(self) -> None:
        self._turn = None
        is_crowded = self._is_known_head is not None and self._count > CROWD
        if is_crowded:
            self._look_at_heads()
        left = PER_TURN
        while self._known and left:
            self._begin_soon(self._known.popleft())
            left -= 1
        if is_crowded:
            left = self._strangers_now(left)
        for _ in range(min(left, self._count)):
            self._begin_soon(self._take(next(iter(self._waiting))))
        if self._known or (self._count and not is_crowded):
            self._turn = self._loop.call_soon(self._begin_some)
        elif self._count:
            self._turn = self._loop.call_later(STRANGER_SECONDS, self._begin_some)

    def _strangers_now(self, most: int) -> int:
        """Return how many strangers may be begun now."""
        now = self._loop.time()
        if now - self._strangers_at < STRANGER_SECONDS / 2:
            return 0
        self._strangers_at = now
        return min(most, STRANGERS)

    def _look_at_heads(self) -> None:
        """Sort out known clients, and those that have left."""
        for network, queue in tuple(self._waiting.items()):
            kept: deque[_Waiting] = deque()
            for each in queue:
                if self._is_known(each):
                    self._known.append(each)
                elif each.socket.fileno() >= 0:
                    kept.append(each)
            self._count -= len(queue) - len(kept)
            if kept:
                self._waiting[network] = kept
            else:
                del self._waiting[network]

    def _is_known(self, waiting: _Waiting) -> bool:
        """Return whether the head has a credential; close the socket of a client that has left."""
        if self._is_known_head is None or waiting.is_stranger:
            return False
        try:
            head = waiting.socket.recv(HEAD_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False  # nothing has arrived yet
        except OSError:
            head = b""
        if not head:
            waiting.socket.close()
            return False
        if self._is_known_head(head.partition(_END)[0]):
            return True
        waiting.is_stranger = _END in head or len(head) == HEAD_BYTES
        return False

    def _begin_soon(self, waiting: _Waiting) -> None:
        task = self._loop.create_task(self._begin(waiting.socket))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError as error:
            accepted.close()
            logger.debug("a connection could not be begun", extra={"reason": str(error)})


@lru_cache(maxsize=4_096)
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

"""Limits on concurrent, half-open and TLS-handshaking connections.

An attacker pays nothing for a connection that sends no request, and each one costs the server a
file descriptor, memory and time of the event loop. Three limits apply, and each has a rule for
"full":

    connections   all of them, as many as there are file descriptors to spare. A new one evicts a
                  connection without a request; if all have one it is answered 503 and closed.
    silent        connections without a complete request head. One more evicts the oldest, so an
                  honest client, which sends its head at once, is never the one that is closed.
    rejected      connections that stay for a moment only to read their 503. More than these are
                  closed without an answer.

A connection goes through these states; `ConnectionLimits` knows it in all but the last two rows:

    state          counted as               leaves by
    handshaking    handshaking, silent      TLS done, timeout, evicted
    silent         connection, silent       head complete, timeout, evicted
    active         connection               response complete (silent again), closed
    rejected       rejected                 answered, timeout

*TLS.* asyncio reports a connection only after its handshake, for which it allocates 256 KiB at
once: connections that never send a byte would be invisible and expensive. `TlsListener` therefore
accepts sockets itself. Nothing is allocated for one before its first byte, and until its handshake
is done it counts as silent (`TlsHandshake`).
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol, TypeGuard

from typing_extensions import override

from quarterdeck.http.peers import RelayedPeer

logger = logging.getLogger(__name__)

MAX_SILENT: Final = 256
"""Connections without a request. What all of them send in one turn of the event loop delays every
other connection: for this many by some 20 ms."""
MAX_CONNECTIONS: Final = 8_192
MAX_REJECTED: Final = 64
"""Connections that wait to read that the server is full; more are closed without an answer."""
MAX_FILES: Final = 65_536
"""Agents inherit the limit, and some programs try every descriptor up to it."""
ACCEPT_BATCH: Final = 32
"""Connections accepted in one turn of the event loop: a flood of them must not stop everything."""
REJECTED_SECONDS: Final = 1.0
"""For a rejected client to send its request and read the answer."""
_RESERVED_FILES: Final = 64  # open files of the process itself
ACCEPT_RETRY_SECONDS: Final = 1.0
"""When the system has no file or memory for another connection."""


class LimitedConnection(Protocol):
    """A connection, as the limits see it."""

    @property
    def is_evictable(self) -> bool:
        """Whether it has no request, or is closing."""

    def evict(self) -> None:
        """Close it, because another connection needs the capacity."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How many connections a server holds."""

    connections: int = MAX_CONNECTIONS
    silent: int = MAX_SILENT
    rejected: int = MAX_REJECTED


class ConnectionLimits:
    """The limits of one server."""

    def __init__(self, capacity: Capacity | None = None) -> None:
        self.capacity = capacity or Capacity()
        self._silent: dict[LimitedConnection, None] = {}  # oldest first
        self._handshaking: dict[LimitedConnection, None] = {}
        self._evicted: set[LimitedConnection] = set()  # until they are closed
        self._rejected: set[LimitedConnection] = set()

    def admit(self, connections: Iterable[object], count: int) -> bool:
        """Return whether one more connection may be held, evicting another one if necessary."""
        if count + len(self._handshaking) - len(self._evicted) < self.capacity.connections:
            return True
        for each in chain(self._handshaking, connections):
            if _is_limited(each) and each not in self._evicted and each.is_evictable:
                self._evict(each)
                return True
        return False

    def reject(self, connection: LimitedConnection) -> bool:
        """Return whether a connection that was not admitted may stay to read the reason."""
        if len(self._rejected) >= self.capacity.rejected:
            return False
        self._rejected.add(connection)
        return True

    def begin_handshake(self, connection: LimitedConnection) -> None:
        """Count a connection that the server does not list yet, and that is silent, too."""
        self._handshaking[connection] = None
        self.begin_silence(connection)

    def begin_silence(self, connection: LimitedConnection) -> None:
        """Count a connection that waits for a request; one too many evicts the oldest."""
        self._silent[connection] = None
        if len(self._silent) > self.capacity.silent:
            self._evict(next(iter(self._silent)))

    def end_silence(self, connection: LimitedConnection) -> None:
        self._silent.pop(connection, None)

    def forget(self, connection: LimitedConnection) -> None:
        """Count a connection no longer: it is closed, or its handshake is done."""
        self._silent.pop(connection, None)
        self._handshaking.pop(connection, None)
        self._evicted.discard(connection)
        self._rejected.discard(connection)

    def _evict(self, connection: LimitedConnection) -> None:
        self._silent.pop(connection, None)
        self._evicted.add(connection)
        connection.evict()


def _is_limited(connection: object) -> TypeGuard[LimitedConnection]:
    return hasattr(connection, "evict")  # uvicorn lists WebSockets among its connections, too


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have; return how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # macOS has a lower limit than it reports
            return soft
        return most
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft


def capacity_for(files: int) -> Capacity:
    """Return the capacity of a process that may open so many files: a quarter is for agents."""
    return Capacity(connections=max(16, min(MAX_CONNECTIONS, files - files // 4 - _RESERVED_FILES)))


class TlsHandshake:
    """An accepted socket whose TLS handshake has not begun, or is not done."""

    is_evictable = True

    def __init__(
        self,
        accepted: socket.socket,
        listener: TlsIntake,
        tls: ssl.SSLContext,
        relayed: RelayedPeer | None = None,
    ) -> None:
        self.relayed = relayed
        self._socket = accepted
        self._listener = listener
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_handed_over = False  # asyncio owns the socket from then on

    def wait(self) -> None:
        """Wait for the first byte, if the limits admit the connection."""
        listener, limits = self._listener, self._listener.limits
        seconds = listener.seconds
        is_admitted = limits.admit(listener.connections, len(listener.connections))
        if not is_admitted:
            if not limits.reject(self):
                self._socket.close()
                return
            seconds = REJECTED_SECONDS
        listener.handshakes.add(self)
        self._timer = self._loop.call_later(seconds, self.evict)
        self._loop.add_reader(self._socket, self._begin)
        if is_admitted:
            limits.begin_handshake(self)

    def evict(self) -> None:
        """Close the socket without an answer: none can be sent before the handshake is done."""
        if self._task is not None:
            self._task.cancel()
        elif not self._is_handed_over and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self.end()

    def end(self) -> None:
        """Stop counting it: the connection is made, or will never be."""
        if self._timer is not None:
            self._timer.cancel()
        self._listener.handshakes.discard(self)
        self._listener.limits.forget(self)

    def _begin(self) -> None:
        self._loop.remove_reader(self._socket)
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        self._is_handed_over = True
        await self._loop.connect_accepted_socket(
            lambda: self._listener.make_protocol(self),
            self._socket,
            ssl=self._tls,
            ssl_handshake_timeout=self._listener.seconds,
        )

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None  # its exception holds our frame: a reference cycle
        self.end()
        if not self._is_handed_over:  # cancelled before its first step
            self._socket.close()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError):
            logger.debug("a TLS handshake failed", extra={"reason": str(error)})
            error.with_traceback(None)  # asyncio's frames would keep its 256 KiB for a while
        elif error is not None:
            logger.error("a TLS handshake ended unexpectedly", exc_info=error)


class TlsIntake:
    """Sockets from their acceptance to the end of their TLS handshake."""

    def __init__(
        self,
        *,
        limits: ConnectionLimits,
        connections: set[Any],
        make_protocol: Callable[[TlsHandshake], asyncio.Protocol],
        seconds: float,
    ) -> None:
        """A handshake may take `seconds` from connecting to its end."""
        self.limits = limits
        self.connections = connections
        self.make_protocol = make_protocol
        self.seconds = seconds
        self.handshakes: set[TlsHandshake] = set()
        self._is_closed = False

    def begin(
        self, accepted: socket.socket, tls: ssl.SSLContext, relayed: RelayedPeer | None = None
    ) -> None:
        """Begin the handshake of a connected socket, which belongs to the server from now on."""
        accepted.setblocking(False)  # noqa: FBT003 - the only way to call it
        if self._is_closed:
            accepted.close()
        else:
            TlsHandshake(accepted, self, tls, relayed).wait()

    def close(self) -> None:
        """Begin no more, and close what has not finished its handshake."""
        self._is_closed = True
        for each in tuple(self.handshakes):
            each.evict()

    async def wait_closed(self) -> None:
        """Return at once: uvicorn waits for the connections itself."""


class TlsListener(TlsIntake):
    """Accepts TLS connections in small batches; uvicorn closes it like a server of asyncio."""

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext, **intake: Any) -> None:
        """Accept until `close`; the rest is passed to `TlsIntake`."""
        super().__init__(**intake)
        self._tls = tls
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)  # noqa: FBT003 - the only way to call it
        self._resume()

    @override
    def close(self) -> None:
        """Accept no more, and close what has not finished its handshake."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        super().close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                accepted, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("cannot accept a connection", extra={"reason": str(error)})
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(ACCEPT_RETRY_SECONDS, self._resume)
                return
            self.begin(accepted, self._tls)

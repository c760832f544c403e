"""Connections to a server with TLS, from being taken until the end of their handshake.

asyncio tells of a connection only after its handshake, for which it sets aside 256 KiB at once:
whoever connects and says nothing would be seen by nobody and cost much. Here sockets are taken by
ourselves. Nothing is spent on one before its first byte, and until its handshake is over it stands
in the doorway like any other without a request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from quarterdeck.server.doorway import Doorway

logger = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 32
"""Connections taken in one turn of the event loop: a flood of them must not stop everything."""
TURNED_AWAY_SECONDS: Final = 1.0
"""For somebody there is no room for to ask something, and to read that there is none."""
_RETRY_SECONDS: Final = 1.0  # when the system has no file or memory for another connection


@dataclass(frozen=True, kw_only=True)
class Entrance:
    """What leads from a socket to a connection."""

    door: Doorway
    connections: set[Any]
    protocol: Callable[[Arrival], asyncio.Protocol]
    tls: ssl.SSLContext
    seconds: float
    """From connecting to the end of the handshake."""
    arrivals: set[Arrival] = field(default_factory=set)


class Arrival:
    """A socket whose handshake has not begun, or is not over."""

    can_go = True

    def __init__(self, taken: socket.socket, entrance: Entrance) -> None:
        self._socket = taken
        self._entrance = entrance
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._is_handed_on = False

    def wait(self) -> None:
        """Stay until the first byte comes, if there is room."""
        door, connections = self._entrance.door, self._entrance.connections
        seconds = self._entrance.seconds
        has_room = door.has_room(connections, len(connections))
        if not has_room:
            if not door.turns_away(self):
                self._socket.close()
                return
            seconds = TURNED_AWAY_SECONDS
        self._entrance.arrivals.add(self)
        self._timer = self._loop.call_later(seconds, self.make_way)
        self._loop.add_reader(self._socket, self._begin)
        if has_room:
            door.arrives(self)

    def make_way(self) -> None:
        """Go without a word: there is none before a handshake is over."""
        if self._handshake is not None:
            self._handshake.cancel()
        elif not self._is_handed_on and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self.leave()

    def leave(self) -> None:
        """Go out of the doorway, be it that the connection is made or that there will be none."""
        if self._timer is not None:
            self._timer.cancel()
        self._entrance.arrivals.discard(self)
        self._entrance.door.left(self)

    def _begin(self) -> None:
        self._loop.remove_reader(self._socket)
        self._handshake = self._loop.create_task(self._shake_hands())
        self._handshake.add_done_callback(self._is_over)

    async def _shake_hands(self) -> None:
        self._is_handed_on = True
        await self._loop.connect_accepted_socket(
            lambda: self._entrance.protocol(self),
            self._socket,
            ssl=self._entrance.tls,
            ssl_handshake_timeout=self._entrance.seconds,
        )

    def _is_over(self, handshake: asyncio.Task[None]) -> None:
        self._handshake = None  # it has an error with our frame in it: memory in a circle
        self.leave()
        if not self._is_handed_on:  # it was cancelled before its first step
            self._socket.close()
        error = None if handshake.cancelled() else handshake.exception()
        if isinstance(error, OSError):
            logger.debug("a handshake failed", extra={"reason": str(error)})
            error.with_traceback(None)  # asyncio's frames have it: its 256 KiB would stay a while
        elif error is not None:
            logger.error("a handshake ended unexpectedly", exc_info=error)


class TlsServer:
    """A server as uvicorn ends it, which takes connections in small portions."""

    def __init__(self, listener: socket.socket, entrance: Entrance) -> None:
        self._listener = listener
        self._entrance = entrance
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)  # noqa: FBT003 - the only way to call it
        self._open()

    def close(self) -> None:
        """Take no more; those whose handshake is not over are let go."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        for each in tuple(self._entrance.arrivals):
            each.make_way()

    async def wait_closed(self) -> None:
        """Return at once: uvicorn waits for the connections itself."""

    def _open(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._take)

    def _take(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                taken, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("no connection can be taken", extra={"reason": str(error)})
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_RETRY_SECONDS, self._open)
                return
            taken.setblocking(False)  # noqa: FBT003 - the only way to call it
            Arrival(taken, self._entrance).wait()

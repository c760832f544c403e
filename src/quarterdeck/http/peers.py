"""The connection of a request, for applications that must know who is at its other end.

The server puts an `AcceptedConnection` into the state of every ASGI scope, where
`accepted_connection` finds it. It is one object for all requests and for the WebSocket of a
connection, so what an application finds out about the other end is found out once.

A connection may have come through a relay, which joins it with a client somewhere else. Then it has
a `RelayedPeer`, and is never a local one: not for its own addresses, which are those of the relay's
computer, and not for those that the relay claims.

A program that calls an application in its own process, without a server, passes `OWN_PROCESS`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # commands use this module, and must not load the other
    from quarterdeck.machine.process_origin import PeerOrigin

_KEY: Final = "quarterdeck.connection"


@dataclass(frozen=True, slots=True)
class RelayedPeer:
    """A client behind a relay, as the relay describes it; none of this is verified."""

    address: str
    port: int
    is_near: bool = False
    """Whether the relay sees it at the address of the server itself: on the same computer, or
    behind the same router."""


@dataclass(slots=True, eq=False)
class AcceptedConnection:
    """One connection of a client."""

    socket: Any
    """A socket, or what the event loop has in its place; None for `OWN_PROCESS`."""
    accepted_at: float
    """By the clock that started with the machine."""
    peername: Any = None
    """The address of the client of this connection; a proxy may name another one."""
    origin: PeerOrigin | None = None
    """What opened it, once that was found out; None also for a client on another machine."""
    is_checked: bool = False
    relayed: RelayedPeer | None = None
    """The client that a relay has joined it with; None if it came directly."""

    @property
    def is_unix(self) -> bool:
        if self.socket is None or self.relayed is not None:
            return False
        is_unix: bool = self.socket.family == socket.AF_UNIX
        return is_unix


OWN_PROCESS: Final = AcceptedConnection(None, 0.0)
"""Requests of this process itself."""


def with_connection(state: Mapping[str, Any], connection: AcceptedConnection) -> dict[str, Any]:
    """Return the state for the requests of a connection that was just accepted."""
    return {**state, _KEY: connection}


def own_scope(scope: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the scope of a request that this process makes to an application of its own."""
    return {**scope, "state": {_KEY: OWN_PROCESS}}


def accepted_connection(scope: Mapping[str, Any]) -> AcceptedConnection | None:
    """Return the connection of a request; None if the server is not ours."""
    found = scope.get("state", {}).get(_KEY)
    return found if isinstance(found, AcceptedConnection) else None


def relayed_peer(scope: Mapping[str, Any]) -> RelayedPeer | None:
    """Return the client of a request that came through a relay; None if it came directly."""
    connection = accepted_connection(scope)
    return None if connection is None else connection.relayed


def is_unix_socket(scope: Mapping[str, Any]) -> bool:
    """Return whether a request came over a Unix socket, or from this process itself."""
    connection = accepted_connection(scope)
    return connection is not None and (connection is OWN_PROCESS or connection.is_unix)


def forwarded_for(scope: Mapping[str, Any]) -> list[str]:
    """Return the hosts in `X-Forwarded-For`, in order: each proxy adds the one that it saw."""
    lines = [value for name, value in scope["headers"] if name.lower() == b"x-forwarded-for"]
    hosts = b",".join(lines).decode("latin-1").split(",") if lines else []
    return [_without_port(host.strip()) for host in hosts]


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host

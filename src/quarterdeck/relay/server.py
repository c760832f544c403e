"""`Relay`: passes TLS connections on to the hub that their name belongs to, and reads none of them.

A connection at the relay's port goes through these states:

    undecided   nothing but the first bytes has arrived; at most `hello_seconds`
    control     TLS for the relay's own name: a hub registers (`control`)
    waiting     TLS for the name of a hub, which was asked to take it; at most `take_seconds`
    ticket      a hub takes a waiting client: both are joined
    joined      bytes pass between client and hub, unread, with the back-pressure of TCP

A name is a digest of the key that registers it (`messages.label_of`), so that a relay needs no
database and no hub can take the name of another. What a relay learns is who talks to which hub,
when, and how much: client and hub have TLS between them, whose key only the hub has.

A hub that has just left keeps its name for `away_seconds`: its clients wait, and a restart of the
hub is a delay for them, not an error. Joined connections do not depend on the control connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from typing_extensions import override

from quarterdeck.http.fair_listener import network_of
from quarterdeck.http.limits import ACCEPT_BATCH
from quarterdeck.relay.client_hello import (
    HELLO_BYTES,
    INTERNAL_ERROR,
    UNRECOGNIZED_NAME,
    HelloRejected,
    read_client_hello,
)
from quarterdeck.relay.control import ControlConnection
from quarterdeck.relay.joined import HubTraffic, join
from quarterdeck.relay.keys import RelayIdentity
from quarterdeck.relay.limits import AddressBudgets, Budget, RelayLimits, Shares, Undecided
from quarterdeck.relay.messages import TICKET, TICKET_BYTES, Open, Refused

logger = logging.getLogger(__name__)

_FIRST_BYTES: Final = HELLO_BYTES + 1_024
"""Of a hello with the heads of its records."""
_BACKLOG: Final = 1_024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Relay:
    """The hubs and clients of one relay, on one event loop."""

    def __init__(
        self, domain: str, identity: RelayIdentity, limits: RelayLimits | None = None
    ) -> None:
        self.domain = domain
        self.identity = identity
        self.limits = limits or RelayLimits()
        self.hubs: dict[str, Hub] = {}
        self.connections: set[Arrival] = set()
        self.undecided: Undecided[Arrival] = Undecided(
            self.limits.undecided, self.limits.undecided_per_address
        )
        self.connection_shares = Shares(self.limits.connections_per_address)
        self._hub_shares = Shares(self.limits.hubs_per_address)
        self._new_clients = AddressBudgets(self.limits.new_per_address)
        # A TLS handshake of a hub costs the relay more than anything else.
        self._new_hubs = AddressBudgets(self.limits.hubs_per_address)
        self._tickets: dict[bytes, tuple[Hub, Arrival]] = {}

    @asynccontextmanager
    async def serving(self, listeners: Iterable[socket.socket]) -> AsyncIterator[None]:
        """Serve at these sockets while the body runs."""
        loop = asyncio.get_running_loop()
        servers = []
        try:
            for each in listeners:
                server = await loop.create_server(
                    lambda: Arrival(self), sock=each, backlog=ACCEPT_BATCH
                )
                each.listen(_BACKLOG)  # the loop has set it to what it accepts in one turn
                servers.append(server)
            yield
        finally:
            for server in servers:
                server.close()
            for arrival in tuple(self.connections):
                arrival.transport.abort()

    def register(self, label: str, control: ControlConnection) -> Refused | None:
        """Give the clients of a name to this connection."""
        hub = self.hubs.get(label)
        before = None if hub is None else hub.control
        if before is None and not self._admits(control):
            message = "the relay has no room for another hub; try again later"
            return Refused(code="full", message=message)
        if hub is None:
            hub = self.hubs[label] = Hub(self.limits)
        hub.control = control
        control.on_registered()
        if before is not None:
            self._hub_shares.take(control.address)
            before.replace()
        logger.info("a hub has registered", extra={"hub": label})
        for client in tuple(hub.absent):
            hub.absent.discard(client)
            self._ask(hub, client)
        return None

    def _admits(self, control: ControlConnection) -> bool:
        connected = sum(1 for each in self.hubs.values() if each.control is not None)
        return connected < self.limits.hubs and self._hub_shares.take(control.address)

    def unregister(self, label: str, control: ControlConnection) -> None:
        """Forget a connection; keep its name for a moment."""
        self._hub_shares.give_back(control.address)
        hub = self.hubs[label]
        if hub.control is control:
            hub.control = None
            logger.info("a hub has left", extra={"hub": label})
            loop = asyncio.get_running_loop()
            loop.call_later(self.limits.away_seconds, self._forget, label, hub)

    def _forget(self, label: str, hub: Hub) -> None:
        if hub.control is None and self.hubs.get(label) is hub:
            del self.hubs[label]
            for client in tuple(hub.absent):
                client.refuse(INTERNAL_ERROR)

    def on_hello(self, arrival: Arrival, name: str | None) -> None:
        """Decide what a TLS connection is."""
        now = arrival.loop.time()
        if name == self.domain:
            if self._new_hubs.admits(arrival.network, now):
                arrival.become_control()
            else:
                arrival.refuse(INTERNAL_ERROR)
            return
        label, _, parent = (name or "").partition(".")
        hub = self.hubs.get(label) if parent == self.domain else None
        if hub is None:
            arrival.refuse(UNRECOGNIZED_NAME)
        elif not self._new_clients.admits(arrival.network, now) or not hub.admits(
            arrival, self.limits
        ):
            arrival.refuse(INTERNAL_ERROR)
        else:
            hub.clients.add(arrival)
            arrival.wait(hub)
            if hub.control is None:
                hub.absent.add(arrival)
            else:
                self._ask(hub, arrival)

    def _ask(self, hub: Hub, client: Arrival) -> None:
        """Ask a hub to take a client."""
        assert hub.control is not None, "the callers have checked it"
        ticket = secrets.token_bytes(TICKET_BYTES)
        client.ticket = ticket
        self._tickets[ticket] = (hub, client)
        host, port = client.peer
        hub.control.open(Open(ticket=ticket.hex(), address=host, port=port))

    def on_ticket(self, arrival: Arrival, ticket: bytes, more: bytes) -> None:
        """Join a connection of a hub with the client that it takes."""
        hub, client = self._tickets.pop(ticket, (None, None))
        if hub is None or client is None:
            arrival.transport.abort()
            return
        client.ticket = None
        arrival.decide()
        arrival.release_address()
        received = client.take()
        client.transport.resume_reading()
        join(client, arrival, hub.traffic)
        arrival.transport.write(received)
        if more:
            client.transport.write(more)

    def on_lost(self, arrival: Arrival) -> None:
        """Forget a connection."""
        self.connections.discard(arrival)
        hub = arrival.hub
        if hub is not None:
            hub.clients.discard(arrival)
            hub.absent.discard(arrival)
        if arrival.ticket is not None:
            self._tickets.pop(arrival.ticket, None)


class Hub:
    """One registered name."""

    def __init__(self, limits: RelayLimits) -> None:
        self.control: ControlConnection | None = None
        """None while it is away."""
        self.clients: set[Arrival] = set()
        self.absent: set[Arrival] = set()
        """Clients that came while it is away."""
        self.traffic = HubTraffic(Budget(limits.bytes_per_second))
        self._new = Budget(limits.new_per_second)

    def admits(self, arrival: Arrival, limits: RelayLimits) -> bool:
        """Whether it may have one more client now."""
        waiting = sum(1 for each in self.clients if each.is_waiting)
        near = sum(1 for each in self.clients if each.network == arrival.network)
        is_full = (
            len(self.clients) >= limits.clients_per_hub
            or waiting >= limits.waiting_per_hub
            or near >= max(1, limits.clients_per_hub * 3 // 4)  # the rest is for other addresses
        )
        return not is_full and self._new.admits(arrival.loop.time())


class Arrival(asyncio.Protocol):
    """A connection at the relay's port, until it is known what it is."""

    transport: asyncio.Transport
    peer: tuple[str, int] = ("", 0)
    network: str = ""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._has_share = False
        self.loop = asyncio.get_running_loop()
        self.hub: Hub | None = None
        self.ticket: bytes | None = None
        """Of a client that waits for its hub."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        relay = self._relay
        self.transport = transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        host = host.removeprefix("::ffff:") if "." in host else host  # IPv4 at a socket for both
        self.peer, self.network = (host, port), network_of(host)
        relay.connections.add(self)
        is_full = len(relay.connections) > relay.limits.connections
        if is_full or not relay.connection_shares.take(self.network):
            transport.abort()
            return
        self._has_share = True
        _keep_alive(transport.get_extra_info("socket"))
        self._timer = self.loop.call_later(relay.limits.hello_seconds, transport.abort)
        evicted = relay.undecided.add(self, self.network)
        if evicted is not None:
            evicted.decide()
            evicted.transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._received += data
        if self.is_waiting:  # the loop had read it before it was paused
            if len(self._received) > _FIRST_BYTES + (256 << 10):
                self.transport.abort()
            return
        if self._received[:1] == TICKET[:1]:
            self._read_ticket()
            return
        try:
            hello = read_client_hello(self._received)
        except HelloRejected as error:
            logger.debug("a connection was closed", extra={"reason": str(error)})
            self.transport.abort()
            return
        if hello is not None:
            self._relay.on_hello(self, hello.server_name)
        elif len(self._received) > _FIRST_BYTES:
            self.transport.abort()

    def _read_ticket(self) -> None:
        received = bytes(self._received)
        if not TICKET.startswith(received[: len(TICKET)]):
            self.transport.abort()
        elif len(received) >= len(TICKET) + TICKET_BYTES:
            end = len(TICKET) + TICKET_BYTES
            self._received.clear()
            self._relay.on_ticket(self, received[len(TICKET) : end], received[end:])

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.decide()
        self.release_address()
        self._relay.on_lost(self)

    @property
    def is_waiting(self) -> bool:
        """Whether it is a client that its hub has not taken yet."""
        return self.hub is not None and self._timer is not None

    def decide(self) -> None:
        """Stop counting it as undecided, and stop its timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._relay.undecided.discard(self)

    def release_address(self) -> None:
        """Stop counting it for its address: it belongs to a hub that has registered."""
        if self._has_share:
            self._has_share = False
            self._relay.connection_shares.give_back(self.network)

    def become_control(self) -> None:
        """Let a hub register here."""
        received = self.take()
        control = ControlConnection(self._relay, self)
        self.transport.set_protocol(control)
        control.data_received(received)

    def wait(self, hub: Hub) -> None:
        """Wait until the hub takes this client; nothing more is read before."""
        self.decide()
        self.hub = hub
        self._timer = self.loop.call_later(self._relay.limits.take_seconds, self.give_up)
        self.transport.pause_reading()

    def give_up(self) -> None:
        self.refuse(INTERNAL_ERROR)

    def take(self) -> bytes:
        """Return what was received so far; it is decided what the connection is."""
        self.decide()
        received = bytes(self._received)
        self._received = bytearray()
        return received

    def refuse(self, alert: bytes) -> None:
        """Close it with a TLS alert, which a browser shows as a failed connection."""
        self.transport.write(alert)
        self.transport.close()


def _keep_alive(connection: Any) -> None:
    """Notice clients and hubs whose computer is off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

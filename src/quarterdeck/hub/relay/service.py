"""`RelayService`: serves the clients that a relay passes on to this hub.

They have a server of their own, which listens nowhere: it is given sockets by the tunnel, and no
other process can reach it. Every connection is TLS, marked as relayed, and knows the hub by its
name at the relay only (`http.server.RelayedServer`, `Authentication.relayed_guard`).

While an authority checks the name (TLS-ALPN-01), the first message of each client is looked at in
the socket's buffer: the authority's own connection gets the certificate that answers it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from anyio.abc import TaskGroup

from quarterdeck.http.peers import RelayedPeer
from quarterdeck.http.server import RelayedServer, running_relayed
from quarterdeck.hub.certificates.acme_renewal import AcmeCertificate
from quarterdeck.hub.relay.certificates import (
    GivenCertificate,
    OwnCertificate,
    RelayCertificate,
    tls_context,
)
from quarterdeck.relay import (
    HelloRejected,
    RelaySettings,
    RelayState,
    RelayTunnel,
    read_client_hello,
    tunnel_key,
)
from quarterdeck.relay.keys import TUNNEL_KEY
from quarterdeck.wire import background_tasks

logger = logging.getLogger(__name__)

ACME_PROTOCOL: Final = b"acme-tls/1"
_PEEK_BYTES: Final = 20 << 10
_PEEK_SECONDS: Final = 5.0


class RelayService:
    """The relay of one hub."""

    def __init__(self, home: Path, settings: RelaySettings) -> None:
        """Read the hub's key for relays, or make one.

        Raises:
            StartRefused: if a file cannot be used.
        """
        address, key = settings.address, tunnel_key(home / TUNNEL_KEY)
        self.origin = address.origin_of(key.label)
        self._tunnel = RelayTunnel(address, key, self._on_client)
        self._certificate = self._made_certificate(home, settings, address.host_of(key.label))
        self._server: RelayedServer | None = None
        self._tasks: TaskGroup | None = None

    def _made_certificate(self, home: Path, settings: RelaySettings, host: str) -> RelayCertificate:
        if settings.certificate is not None and settings.private_key is not None:
            return GivenCertificate(settings.certificate, settings.private_key)
        if not settings.acme.is_agreed:
            return OwnCertificate(home, host)
        return AcmeCertificate(
            home,
            host,
            settings.acme,
            tls_context,
            is_reachable=lambda: self._tunnel.is_connected,
        )

    @property
    def state(self) -> RelayState:
        """What to show to people."""
        tunnel = self._tunnel
        return RelayState(
            relay=tunnel.address.domain,
            public_url=self.origin,
            is_connected=tunnel.is_connected,
            since=tunnel.since,
            problem=tunnel.problem,
            certificate=self._certificate.state,
        )

    @property
    def is_settled(self) -> bool:
        """Whether it works, or waiting for it any longer is of no use."""
        tunnel, certificate = self._tunnel, self._certificate.state
        is_decided = certificate.kind != "none" or certificate.problem is not None
        return tunnel.problem is not None or (tunnel.is_connected and is_decided)

    @asynccontextmanager
    async def serving(
        self, config: uvicorn.Config, *, before_end: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Stay connected to the relay, and serve its clients, while the body runs."""
        async with running_relayed(config, before_end=before_end) as server:
            self._server = server
            async with background_tasks() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._tunnel.run)
                tasks.start_soon(self._certificate.run)
                try:
                    yield
                finally:
                    self._tasks = None

    def _on_client(self, connection: socket.socket, peer: RelayedPeer) -> None:
        if self._certificate.challenge is not None and self._tasks is not None:
            self._tasks.start_soon(self._sort, connection, peer)
        else:
            self._begin(connection, peer, is_authority=False)

    async def _sort(self, connection: socket.socket, peer: RelayedPeer) -> None:
        """Find out whether an authority that checks the name has connected."""
        is_authority = False
        try:
            with anyio.move_on_after(_PEEK_SECONDS):
                is_authority = await _offers(connection, ACME_PROTOCOL)
        except BaseException:
            connection.close()
            raise
        self._begin(connection, peer, is_authority=is_authority)

    def _begin(self, connection: socket.socket, peer: RelayedPeer, *, is_authority: bool) -> None:
        certificate = self._certificate
        context = certificate.challenge if is_authority else certificate.context
        if context is None or self._server is None:
            connection.close()
        else:
            self._server.begin(connection, context, peer)


async def _offers(connection: socket.socket, protocol: bytes) -> bool:
    """Return whether the first message on a connection offers one protocol only, this one."""
    while True:
        try:
            seen = connection.recv(_PEEK_BYTES, socket.MSG_PEEK)
            hello = read_client_hello(seen)
        except (BlockingIOError, InterruptedError):
            hello = None
        except (OSError, HelloRejected):
            return False
        if hello is not None:
            return hello.protocols == (protocol,)
        await anyio.sleep(0.01)

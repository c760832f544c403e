"""A relay on a real port, hubs that answer with TLS, and phones that connect to them by name."""

from __future__ import annotations

import asyncio  # noqa: TID251 - TLS over sockets that are given
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from quarterdeck.http.peers import RelayedPeer
from quarterdeck.http.server import listening
from quarterdeck.relay import (
    Relay,
    RelayAddress,
    RelayIdentity,
    RelayLimits,
    RelayTunnel,
    TunnelKey,
    relay_identity,
)
from tests.certificates import certify

DOMAIN: Final = "relay.test"
PATIENCE: Final = 30.0


@asynccontextmanager
async def running_relay(
    folder: Path, limits: RelayLimits | None = None, *, port: int = 0
) -> AsyncIterator[tuple[Relay, RelayAddress]]:
    """Run a relay in this process."""
    identity = relay_identity(made(folder), DOMAIN)
    relay = Relay(DOMAIN, identity, limits)
    with listening("127.0.0.1", port) as listener:
        bound = listener.getsockname()[1]
        async with relay.serving([listener.dup()]):
            yield relay, address_of(identity, bound)


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def certified(folder: Path) -> tuple[Path, Path]:
    """Return the certificate and the key of a hub."""
    certificate, private = folder / "hub.pem", folder / "hub.key"
    if not certificate.exists():
        certify(certificate, private, "hub")
    return certificate, private


def address_of(identity: RelayIdentity, port: int) -> RelayAddress:
    return RelayAddress(
        domain=DOMAIN,
        port=port,
        fingerprint=identity.fingerprint,
        token=identity.token,
        at="127.0.0.1",
    )


@dataclass
class EchoHub:
    """A hub that answers every client with what it sent, over TLS."""

    tunnel: RelayTunnel
    certificate: Path
    peers: list[RelayedPeer]

    @property
    def host(self) -> str:
        return self.tunnel.address.host_of(self.tunnel.key.label)

    @asynccontextmanager
    async def phone(
        self, *, local: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect as a phone, which trusts this hub's certificate and no other."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.tunnel.address.port,
            ssl=trusting(self.certificate),
            server_hostname=self.host,
            local_addr=(local, 0),
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def echo(self, content: bytes = b"hello") -> bytes:
        """Return what comes back through the relay."""
        with anyio.fail_after(PATIENCE):
            async with self.phone() as (reader, writer):
                writer.write(content)
                return await reader.readexactly(len(content))


def trusting(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate)
    context.check_hostname = False  # the tests' certificates have no names
    return context


@asynccontextmanager
async def echo_hub(
    address: RelayAddress, folder: Path, key: TunnelKey | None = None, *, is_awaited: bool = True
) -> AsyncIterator[EchoHub]:
    """Run a hub that echoes."""
    certificate, private = certified(made(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    peers: list[RelayedPeer] = []

    def on_client(connection: socket.socket, peer: RelayedPeer) -> None:
        peers.append(peer)
        task = loop.create_task(_echo(connection, context))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    tunnel = RelayTunnel(address, key or TunnelKey.generate(), on_client)
    async with anyio.create_task_group() as group:
        group.start_soon(tunnel.run)
        if is_awaited:
            await until(lambda: tunnel.is_connected)
        yield EchoHub(tunnel, certificate, peers)
        group.cancel_scope.cancel()
    for task in tuple(tasks):
        task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.gather(*tasks, return_exceptions=True)


async def _echo(connection: socket.socket, context: ssl.SSLContext) -> None:
    writer = None
    try:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=context, ssl_handshake_timeout=10
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        while received := await reader.read(65_536):
            writer.write(received)
            await writer.drain()
    except OSError:
        pass  # the phone has left
    finally:
        if writer is not None:
            writer.transport.abort()
        connection.close()


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until something is the case."""
    with anyio.fail_after(PATIENCE):
        while not is_true():  # noqa: ASYNC110 - of several objects, some without events
            await anyio.sleep(0.005)

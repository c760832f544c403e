"""`RelayTunnel`: a hub's end of the connection to its relay.

It keeps one control connection open (`messages`), and connects again when it is lost, after a
random pause that grows with every failure: a thousand hubs must not come back in one moment. Each
client that the relay announces is fetched by a connection of its own, and given to the caller as a
socket: everything on it is TLS between the client and the hub.

What the relay says about a client, its address, is a claim: a relay can say anything. It is good
for the list of devices and for limits, never for a privilege.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

import anyio
from anyio.abc import TaskGroup

from quarterdeck.http.fair_listener import network_of
from quarterdeck.http.origins import is_ip
from quarterdeck.http.peers import RelayedPeer
from quarterdeck.relay.addresses import RelayAddress
from quarterdeck.relay.keys import TunnelKey, fingerprint_of
from quarterdeck.relay.messages import (
    LINE_BYTES,
    PING_SECONDS,
    SILENT_SECONDS,
    TICKET,
    TICKET_BYTES,
    Challenge,
    Message,
    MessageReader,
    MessageRejected,
    Open,
    Ping,
    Refused,
    Register,
    Registered,
    encode_message,
)

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 15.0
REFUSED_PAUSE: Final = 30.0
"""After a refusal, which only the owner can resolve."""
MAX_OPENING: Final = 64
"""Clients that are being fetched: a relay that announces more is not a good one."""


OnClient = Callable[[socket.socket, RelayedPeer], None]


class TunnelFailed(Exception):
    """The relay cannot be used now; `str()` is a sentence for the owner."""

    def __init__(self, reason: str, *, is_refusal: bool = False) -> None:
        super().__init__(reason)
        self.is_refusal = is_refusal


class RelayTunnel:
    """The tunnel of one hub to one relay."""

    def __init__(self, address: RelayAddress, key: TunnelKey, on_client: OnClient) -> None:
        """Give the clients of this hub to `on_client`, which owns their sockets then."""
        self.address = address
        self.key = key
        self.is_connected = False
        self.since: float | None = None
        self.problem: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when it was connected or disconnected."""
        self._on_client = on_client
        self._opening = 0
        self._seen_as = ""
        self._endpoint: tuple[Any, ...] = ()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = FIRST_PAUSE
        while True:
            failed = await self._until_lost()
            pause = FIRST_PAUSE if self.is_connected else pause
            self._change(is_connected=False, problem=str(failed))
            seconds = REFUSED_PAUSE if failed.is_refusal else pause
            await anyio.sleep(seconds * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _until_lost(self) -> TunnelFailed:
        """Stay connected for as long as it goes; return why it does not any more."""
        try:
            await self._stay_connected()
        except TunnelFailed as error:
            return error

    def _change(self, *, is_connected: bool, problem: str | None) -> None:
        if self.is_connected != is_connected or self.since is None:
            self.since = time.time()
            facts = {"relay": self.address.domain, "reason": problem}
            logger.info(
                "connected to the relay" if is_connected else "not connected to the relay",
                extra=facts,
            )
        self.is_connected, self.problem = is_connected, problem
        self.on_change()

    async def _stay_connected(self) -> NoReturn:
        reader, writer = await self._connect()
        try:
            self._endpoint = writer.get_extra_info("peername")
            async with anyio.create_task_group() as tasks:
                failed = await self._follow(reader, writer, tasks)
                tasks.cancel_scope.cancel()
            raise failed
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the relay, and to no other server.

        Raises:
            TunnelFailed: if it does not answer, or is another one.
        """
        address = self.address
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    address.at or address.domain,
                    address.port,
                    ssl=_any_certificate(),
                    server_hostname=address.domain,
                    ssl_handshake_timeout=CONNECT_SECONDS,
                    limit=2 * LINE_BYTES,
                )
        except TimeoutError as error:
            raise TunnelFailed(f"{address.url} does not answer") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise TunnelFailed(f"cannot connect to {address.url} ({reason})") from error
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if fingerprint_of(found or b"") != address.fingerprint:
            writer.transport.abort()
            raise TunnelFailed(
                f"the server at {address.url} is not the relay that this hub was enrolled at",
                is_refusal=True,
            )
        return reader, writer

    async def _follow(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tasks: TaskGroup
    ) -> TunnelFailed:
        """Register, then take clients until the connection ends; return why it has ended."""
        messages = MessageReader()
        tasks.start_soon(_ping, writer)
        while True:
            try:
                with anyio.fail_after(SILENT_SECONDS):
                    received = await reader.read(LINE_BYTES)
                for message in messages.feed(received):
                    self._on_message(message, writer, tasks)
            except TunnelFailed as error:
                return error
            except TimeoutError:
                return TunnelFailed("the relay does not answer any more")
            except (OSError, MessageRejected) as error:
                return TunnelFailed(f"the connection to the relay was lost ({error})")
            if not received:
                return TunnelFailed("the relay has closed the connection")

    def _on_message(self, message: Message, writer: asyncio.StreamWriter, tasks: TaskGroup) -> None:
        match message:
            case Challenge():
                writer.write(encode_message(self._registration(message)))
            case Registered():
                self._seen_as = message.seen_as
                self._change(is_connected=True, problem=None)
            case Refused():
                raise TunnelFailed(f"the relay refused: {message.message}", is_refusal=True)
            case Open():
                if self._opening < MAX_OPENING:
                    self._opening += 1
                    tasks.start_soon(self._take, message)
            case Ping() | Register():
                pass

    def _registration(self, challenge: Challenge) -> Register:
        address = self.address
        return Register(
            key=self.key.public,
            signature=self.key.sign(
                challenge.nonce, domain=address.domain, fingerprint=address.fingerprint
            ),
            token=address.token,
        )

    async def _take(self, message: Open) -> None:
        """Fetch a client."""
        try:
            ticket = bytes.fromhex(message.ticket)
            if len(ticket) != TICKET_BYTES:
                return
            connection = await self._fetch(TICKET + ticket)
        except (OSError, ValueError) as error:
            logger.debug("a client of the relay was not taken", extra={"reason": str(error)})
            return
        finally:
            self._opening -= 1
        address = message.address if is_ip(message.address) else ""
        is_near = bool(self._seen_as) and network_of(address) == self._seen_as
        self._on_client(connection, RelayedPeer(address, message.port, is_near))

    async def _fetch(self, ticket: bytes) -> socket.socket:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in self._endpoint[0] else socket.AF_INET
        # The protocol is named for asyncio, which else leaves Nagle's algorithm on.
        connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            connection.setblocking(False)  # noqa: FBT003 - the only way to call it
            with anyio.fail_after(CONNECT_SECONDS):
                await loop.sock_connect(connection, self._endpoint)
                await loop.sock_sendall(connection, ticket)
        except BaseException:
            connection.close()
            raise
        return connection


async def _ping(writer: asyncio.StreamWriter) -> None:
    line = encode_message(Ping())
    while True:
        await anyio.sleep(PING_SECONDS)
        writer.write(line)


def _any_certificate() -> ssl.SSLContext:
    """Return a context for a server that is recognised by the digest of its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # `_connect` compares the digest before it sends anything
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context

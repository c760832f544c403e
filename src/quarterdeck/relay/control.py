"""`ControlConnection`: the TLS connection on which a hub registers at a relay, at the relay's end.

TLS is done here with memory buffers, not by asyncio, whose TLS allocates 256 KiB for a connection:
a relay holds a thousand hubs that say nothing for hours.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import ssl
from typing import Final, Protocol, assert_never

from typing_extensions import override

from quarterdeck.relay.keys import RelayIdentity, verified_label
from quarterdeck.relay.limits import Budget
from quarterdeck.relay.messages import (
    PING_SECONDS,
    SILENT_SECONDS,
    VERSION,
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

REGISTER_SECONDS: Final = 15.0
_READ_BYTES: Final = 16 << 10
_MESSAGES_PER_SECOND: Final = 4.0
"""Of a hub, which has nothing to say but `Ping`, once in a while."""
_PING: Final = encode_message(Ping())
_NO_TOKEN: Final = Refused(
    code="token",
    message="the relay rejects this link; copy the link that it printed again",
)
_NO_SIGNATURE: Final = Refused(
    code="signature", message="the signature of the hub does not match; check its relay.key"
)
_NEWER: Final = Refused(
    code="version", message="hub and relay have incompatible versions; upgrade the older one"
)


class Arrived(Protocol):
    """The connection of a hub, as the relay has accepted it."""

    transport: asyncio.Transport
    network: str

    def release_address(self) -> None:
        """Stop counting it for its address."""

    def connection_lost(self, exc: Exception | None) -> None: ...


class Registry(Protocol):
    """Where hubs are registered."""

    domain: str
    identity: RelayIdentity

    def register(self, label: str, control: ControlConnection) -> Refused | None:
        """Give the clients of `label` to this connection from now on, unless it is refused."""

    def unregister(self, label: str, control: ControlConnection) -> None:
        """Forget a connection that is closed."""


class ControlConnection(asyncio.Protocol):
    """One hub, from its TLS hello until it leaves."""

    def __init__(self, registry: Registry, arrival: Arrived) -> None:
        self.address = arrival.network
        self.on_registered = arrival.release_address
        self._arrival = arrival
        self._transport = arrival.transport
        self._registry = registry
        self._identity = identity = registry.identity
        self._domain = registry.domain
        self._label: str | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = identity.tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_secure = False
        self._reader = MessageReader()
        self._nonce = secrets.token_urlsafe(24)
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._messages = Budget(_MESSAGES_PER_SECOND, seconds=5.0)
        self._timer = self._loop.call_later(REGISTER_SECONDS, self.close)

    @override
    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._incoming.write(data)
        try:
            self._advance()
        except (ssl.SSLError, MessageRejected) as error:
            logger.debug("a control connection was closed", extra={"reason": str(error)})
            self._flush()
            self.close()

    @override
    def eof_received(self) -> None:
        self.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._label is not None:
            self._registry.unregister(self._label, self)
        self._arrival.connection_lost(exc)

    def close(self) -> None:
        self._transport.close()

    def replace(self) -> None:
        """Close it: the hub has connected again, or another one has its key."""
        self._send(
            Refused(code="replaced", message="another connection with this hub's key has come")
        )
        self.close()

    def open(self, message: Open) -> None:
        """Ask the hub to take a client."""
        self._send(message)

    def _advance(self) -> None:
        if not self._is_secure:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                return
            self._is_secure = True
            self._send(Challenge(nonce=self._nonce))
        while True:
            try:
                content = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                content = b""
            if not content:
                self.close()
                break
            for message in self._reader.feed(content):
                self._on_message(message)
        self._flush()

    def _on_message(self, message: Message) -> None:
        self._heard_at = self._loop.time()
        if not self._messages.admits(self._heard_at):
            raise MessageRejected("too many messages")
        match message:
            case Register():
                if self._label is None:
                    self._register(message)
            case Ping():
                pass
            case Challenge() | Registered() | Refused() | Open():
                raise MessageRejected("a hub does not send this")
            case _:
                assert_never(message)

    def _register(self, message: Register) -> None:
        label = verified_label(
            message.key,
            message.signature,
            self._nonce,
            domain=self._domain,
            fingerprint=self._identity.fingerprint,
        )
        wanted = self._identity.token
        is_admitted = hmac.compare_digest(message.token.encode(), wanted.encode()) or not wanted
        refused: Refused | None = None
        if message.version != VERSION:
            refused = _NEWER
        elif not is_admitted:
            refused = _NO_TOKEN
        elif label is None:
            refused = _NO_SIGNATURE
        else:
            refused = self._registry.register(label, self)
        if refused is not None or label is None:
            self._send(refused or _NO_SIGNATURE)
            self.close()
            return
        self._label = label
        self._send(Registered(name=f"{label}.{self._domain}", seen_as=self.address))
        self._timer.cancel()
        self._timer = self._loop.call_later(PING_SECONDS, self._keep_alive)

    def _keep_alive(self) -> None:
        if self._loop.time() - self._heard_at > SILENT_SECONDS:
            self._transport.abort()
            return
        self._write(_PING)
        self._timer = self._loop.call_later(PING_SECONDS, self._keep_alive)

    def _send(self, message: Message) -> None:
        self._write(encode_message(message))

    def _write(self, line: bytes) -> None:
        if self._is_secure and not self._transport.is_closing():
            self._tls.write(line)
            self._flush()

    def _flush(self) -> None:
        sealed = self._outgoing.read()
        if sealed:
            self._transport.write(sealed)

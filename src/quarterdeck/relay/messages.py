"""What hub and relay say on the control connection, one line of JSON each. Pure.

The control connection is TLS to the relay, whose certificate the hub knows (`addresses`):

    relay  Challenge   a random text
    hub    Register    its public key, a signature over the challenge, the enrolment token
    relay  Registered  its name; or Refused
    relay  Open        a client has named this hub: a ticket, and the client's address
    both   Ping

For each `Open` the hub connects to the relay once more, sends `TICKET` and the ticket, and is then
connected to the client: what follows is the client's TLS, of which the relay has no key. This
connection is not TLS itself: there is nothing in it but a ticket that is valid once.

The signature is over the relay's name and certificate, too: a relay cannot pass the challenge of
another one on and be that hub there.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

VERSION: Final = 1
LINE_BYTES: Final = 4_096
TICKET: Final = b"QDR1"
TICKET_BYTES: Final = 16
PING_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 25.0
"""Without a line from the other side, it has left: its computer, or the network, is off."""

_CONTEXT: Final = "quarterdeck-relay-1"
_LABEL_BYTES: Final = 20


class Challenge(Struct, frozen=True, kw_only=True, tag="challenge", tag_field="type"):
    nonce: str
    version: int = VERSION


class Register(Struct, frozen=True, kw_only=True, tag="register", tag_field="type"):
    key: str
    """The hub's public Ed25519 key, base64url."""
    signature: str
    token: str = ""
    version: int = VERSION


class Registered(Struct, frozen=True, kw_only=True, tag="registered", tag_field="type"):
    name: str
    seen_as: str = ""
    """The hub's own address, as the relay sees it."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused", tag_field="type"):
    code: str
    message: str


class Open(Struct, frozen=True, kw_only=True, tag="open", tag_field="type"):
    ticket: str
    """Of 16 bytes, in hexadecimal digits."""
    address: str = ""
    """Of the client, as the relay saw it."""
    port: int = 0


class Ping(Struct, frozen=True, kw_only=True, tag="ping", tag_field="type"):
    pass


Message: TypeAlias = Challenge | Register | Registered | Refused | Open | Ping
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class MessageRejected(Exception):
    """The other side sent what is not a message; `str()` is the reason."""


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message) + b"\n"


class MessageReader:
    """Cuts received bytes into messages; an unknown kind of a newer version is left out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, received: bytes) -> list[Message]:
        """Return the messages that are complete.

        Raises:
            MessageRejected: if a line is too long, or not JSON.
        """
        self._rest += received
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        if len(rest) > LINE_BYTES or any(len(line) > LINE_BYTES for line in lines):
            raise MessageRejected("a line is too long")
        return [found for line in lines if (found := _decode(line)) is not None]


def _decode(line: bytearray) -> Message | None:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        if _is_newer(line):
            return None
        raise MessageRejected(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageRejected("a line is not JSON") from error


class _Kind(Struct):
    type: str


_kind: msgspec.json.Decoder[_Kind] = msgspec.json.Decoder(_Kind)
_KNOWN: Final = frozenset({"challenge", "register", "registered", "refused", "open", "ping"})


def _is_newer(line: bytearray) -> bool:
    try:
        return _kind.decode(line).type not in _KNOWN
    except msgspec.MsgspecError:
        return False


def signed_text(nonce: str, *, domain: str, fingerprint: str) -> bytes:
    """Return what a hub signs to register at one relay."""
    return "\n".join((_CONTEXT, domain, fingerprint, nonce)).encode()


def label_of(public_key: bytes) -> str:
    """Return the name of a hub at every relay: only the holder of its key can register it."""
    digest = hashlib.sha256(_CONTEXT.encode() + b"\0" + public_key).digest()
    return base64.b32encode(digest[:_LABEL_BYTES]).decode().lower()


def to_base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Read base64url without padding; raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

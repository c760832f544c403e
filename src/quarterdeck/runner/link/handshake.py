"""How a machine and a hub prove to each other who they are, before a link begins. Pure.

A runner on another machine dials the hub's WebSocket `/api/link`. Its first four messages are JSON
texts; then the link begins, in binary messages:

    machine   MachineHello    its id, a random challenge, its version and link protocols
    hub       HubChallenge    a random nonce, and its signature over the challenge
    machine   MachineProof    its signature over the nonce
    hub       Welcome, or LinkRefused with a reason

Both keys are P-256. The hub got the machine's public key when the machine joined, and the machine
the hub's. What is signed names the origin that was dialled, the machine, and both random texts; the
machine also signs the key of the hub. So a signature is worth nothing on another connection, at
another hub, or for the other side, and no clock is involved. The hub signs first: a program in its
place learns nothing and can neither refuse nor remove a machine.

TLS protects what follows. A proxy that ends TLS can read and change it, but cannot sign: without
the machine it cannot open a link.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from quarterdeck._version import __version__
from quarterdeck.errors import LinkBroken
from quarterdeck.jsontext import encode_json
from quarterdeck.runner.link.messages import LINK_PROTOCOL, OLDEST_PROTOCOL

LINK_PATH: Final = "/api/link"
HANDSHAKE_BYTES: Final = 4 << 10
"""Of one message before the link begins."""
HANDSHAKE_SECONDS: Final = 10.0
"""For all of them."""
MACHINE_ID: Final = re.compile(r"m[a-z0-9]{8}")
_RANDOM: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

RefusalCode: TypeAlias = Literal["removed", "unsupported", "busy", "invalid"]
"""Why a hub refuses a machine.

removed       it was removed, or never joined: it stops dialling
unsupported   there is no common protocol: it tries again, seldom
busy, other   it tries again
"""


class _Message(Struct, frozen=True, kw_only=True, tag_field="is", rename="camel"):
    """One message."""


class MachineHello(_Message, frozen=True, tag="hello"):
    machine: str
    challenge: str
    version: str = __version__
    oldest: int = OLDEST_PROTOCOL
    newest: int = LINK_PROTOCOL


class HubChallenge(_Message, frozen=True, tag="challenge"):
    nonce: str
    signature: str


class MachineProof(_Message, frozen=True, tag="proof"):
    signature: str


class Welcome(_Message, frozen=True, tag="welcome"):
    name: str
    """What the hub calls the machine."""
    version: str = __version__


class LinkRefused(_Message, frozen=True, tag="refused"):
    code: str
    """A `RefusalCode`, or one of a newer hub."""
    message: str


Handshake: TypeAlias = MachineHello | HubChallenge | MachineProof | Welcome | LinkRefused
_decoder: Final[msgspec.json.Decoder[Handshake]] = msgspec.json.Decoder(Handshake)


def read_handshake(text: str | bytes) -> Handshake:
    """Read a message.

    Raises:
        LinkBroken: if it is none.
    """
    if len(text) > HANDSHAKE_BYTES:
        raise LinkBroken("a message before the link is too long")
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise LinkBroken("the other side does not speak the protocol of the link") from error


def write_handshake(message: Handshake) -> str:
    return encode_json(message).decode()


def random_text() -> str:
    """Return 128 random bits, for a challenge or a nonce."""
    return secrets.token_urlsafe(16)


def is_hello(message: Any) -> bool:
    """Return whether this is a hello of the right form."""
    return (
        isinstance(message, MachineHello)
        and MACHINE_ID.fullmatch(message.machine) is not None
        and _RANDOM.fullmatch(message.challenge) is not None
    )


def hub_text(origin: str, hello: MachineHello, nonce: str) -> bytes:
    """Return what the hub signs."""
    lines = ("quarterdeck-link-hub-1", origin, hello.machine, hello.challenge, nonce)
    return "\n".join(lines).encode()


def machine_text(origin: str, hub_key: str, hello: MachineHello, nonce: str) -> bytes:
    """Return what the machine signs."""
    lines = ("quarterdeck-link-machine-1", origin, hub_key, hello.machine, hello.challenge, nonce)
    return "\n".join(lines).encode()


def join_text(origin: str, code: str, public_key: str) -> bytes:
    """Return what a machine signs with its new key when it joins."""
    return "\n".join(("quarterdeck-join-1", origin, code, public_key)).encode()


def protocol_refusal(oldest: int, newest: int, version: str) -> str:
    """Return why a hub cannot use a machine of these link protocols; empty if it can."""
    if newest < OLDEST_PROTOCOL:
        return (
            f"this machine has version {version}, which is too old for the hub ({__version__});"
            " install a newer one there, then run quarterdeck upgrade"
        )
    if oldest > LINK_PROTOCOL:
        return (
            f"this machine has version {version}, which is too new for the hub ({__version__});"
            " upgrade the hub: quarterdeck upgrade"
        )
    return ""


def origin_of(url: str) -> str:
    """Return the origin of a URL as a hub spells its own: lower case, without a default port.

    Raises:
        ValueError: if it is not the address of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not the address of a hub")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port
    if port is None or port == _DEFAULT_PORTS[parts.scheme]:
        return f"{parts.scheme}://{host}"
    return f"{parts.scheme}://{host}:{port}"

"""The first message of a TLS client: the name it wants, and its protocols. Pure.

A relay reads this message, and nothing after it, to know which hub a connection is for. It may
arrive in any number of TCP segments, and a client may spread it over several TLS records. Whatever
is not a ClientHello, or is larger than one needs to be, is rejected: nothing is guessed.

    record      type 22, version 3.x, length (2 bytes)                     RFC 8446, 5.1
    handshake   type 1, length (3 bytes), then the hello                   4, 4.1.2
    hello       version, random, session id, ciphers, compression, extensions
    extensions  0: server_name (RFC 6066, 3); 16: ALPN (RFC 7301, 3.1)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HELLO_BYTES: Final = 16 << 10
"""Of the whole message. With post-quantum keys browsers send 2 KiB."""
MAX_RECORDS: Final = 32
"""That one hello may be spread over: each costs time to read."""
_RECORD: Final = 5
_LARGEST_RECORD: Final = 1 << 14
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ALPN: Final = 16
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253


class HelloRejected(Exception):
    """These bytes are not a ClientHello that a relay accepts; `str()` is the reason."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a TLS client wants."""

    server_name: str | None
    """In lower case; None if it named none."""
    protocols: tuple[bytes, ...] = ()


def read_client_hello(received: bytes | bytearray) -> ClientHello | None:
    """Return the hello at the beginning of `received`; None if it is not complete yet.

    Raises:
        HelloRejected: if it cannot become one.
    """
    message = bytearray()
    position = 0
    for _ in range(MAX_RECORDS):
        head = received[position : position + _RECORD]
        _check_record(head)
        if len(head) < _RECORD:
            return None
        length = int.from_bytes(head[3:5], "big")
        if not 0 < length <= _LARGEST_RECORD:
            raise HelloRejected("a record has an impossible length")
        position += _RECORD
        message += received[position : position + length]
        position += length
        _check_message(message)
        size = 4 + int.from_bytes(message[1:4], "big")
        if len(message) >= 4 and len(message) >= size:
            if len(message) > size:
                raise HelloRejected("more follows the hello in its record")
            return _hello(bytes(message[4:]))
        if position > len(received):
            return None
    raise HelloRejected("the hello is spread over too many records")


def _check_record(head: bytes | bytearray) -> None:
    """Check as much of a record's head as has arrived."""
    if head[:1] and head[0] != _HANDSHAKE:
        raise HelloRejected("not a TLS handshake")
    if head[1:2] and head[1] != 3:
        raise HelloRejected("not a version of TLS")


def _check_message(message: bytearray) -> None:
    if message[:1] and message[0] != _CLIENT_HELLO:
        raise HelloRejected("not a ClientHello")
    if len(message) >= 4 and int.from_bytes(message[1:4], "big") > HELLO_BYTES:
        raise HelloRejected("the hello is too large")


class _Reader:
    """Takes fields from the front of a message."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise HelloRejected("a field is longer than its message")
        self._at += count
        return taken

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)


def _hello(body: bytes) -> ClientHello:
    reader = _Reader(body)
    reader.take(2 + 32)  # version and random
    reader.vector(1)  # session id
    reader.vector(2)  # ciphers
    reader.vector(1)  # compression
    extensions: dict[int, bytes] = {}
    if not reader.is_at_end:
        listed = _Reader(reader.vector(2))
        while not listed.is_at_end:
            number = int.from_bytes(listed.take(2), "big")
            if number in extensions:
                raise HelloRejected("an extension is repeated")
            extensions[number] = listed.vector(2)
    if not reader.is_at_end:
        raise HelloRejected("more follows the extensions")
    name, protocols = extensions.get(_SERVER_NAME), extensions.get(_ALPN)
    return ClientHello(
        None if name is None else _server_name(name),
        () if protocols is None else _protocols(protocols),
    )


def _server_name(extension: bytes) -> str:
    reader = _Reader(extension)
    entries = _Reader(reader.vector(2))
    kind = entries.take(1)[0]
    raw = entries.vector(2)
    if kind != 0 or not entries.is_at_end or not reader.is_at_end:
        raise HelloRejected("not exactly one host name")
    name = raw.decode("latin-1").lower()
    if len(name) > _LONGEST_NAME or _NAME.fullmatch(name) is None:
        raise HelloRejected("not a host name")
    return name


def _protocols(extension: bytes) -> tuple[bytes, ...]:
    reader = _Reader(extension)
    entries = _Reader(reader.vector(2))
    found = []
    while not entries.is_at_end:
        found.append(entries.vector(1))
    if not reader.is_at_end:
        raise HelloRejected("more follows the protocols")
    return tuple(found)


def alert(description: int) -> bytes:
    """Return a fatal TLS alert, which a client reports to its user."""
    return bytes((21, 3, 3, 0, 2, 2, description))


UNRECOGNIZED_NAME: Final = alert(112)
INTERNAL_ERROR: Final = alert(80)

"""The addresses of this machine's network interfaces, by `getifaddrs(3)`: Linux and macOS.

The standard library names interfaces but not their addresses. Where the C library has no such call,
or it fails, there are none.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

_UP: Final = 0x1
_RUNNING: Final = 0x40
_IPV4_BYTES: Final = slice(4, 8)  # of `sockaddr_in`: family, port, address
_IPV6_BYTES: Final = slice(8, 24)  # of `sockaddr_in6`: family, port, flow, address
_SOCKADDR_BYTES: Final = 28
_UNUSED_TARGET: Final = ("203.0.113.1", 9)
"""An address of the documentation: connecting a UDP socket to it sends nothing."""


@dataclass(frozen=True, order=True)
class InterfaceAddress:
    """One address of an interface that is up."""

    interface: str
    address: str


class _IfAddrs(ctypes.Structure):
    """`struct ifaddrs`, as far as it is the same everywhere."""


_IfAddrs._fields_ = [
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interface_addresses() -> tuple[InterfaceAddress, ...]:
    """Return the addresses of all interfaces that are up, sorted."""
    library = _library()
    first = ctypes.POINTER(_IfAddrs)()
    if library is None or library.getifaddrs(ctypes.byref(first)) != 0:
        return ()
    try:
        return tuple(sorted(set(_read(first))))
    finally:
        library.freeifaddrs(first)


def default_address() -> str | None:
    """Return the address that this machine uses towards other networks; None without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNUSED_TARGET)
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


def _read(entry: Any) -> Iterator[InterfaceAddress]:
    while entry:
        found = entry.contents
        is_up = found.flags & _UP and found.flags & _RUNNING
        address = _address(found.address) if is_up and found.address else None
        if address is not None:
            yield InterfaceAddress(found.name.decode(errors="replace"), address)
        entry = found.next


def _address(pointer: int) -> str | None:
    raw = ctypes.string_at(pointer, 2)
    # The BSDs have the length in the first byte and the family in the second.
    family = raw[1] if sys.platform == "darwin" else int.from_bytes(raw, sys.byteorder)
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(ctypes.string_at(pointer, _SOCKADDR_BYTES)[_IPV4_BYTES]))
    if family == socket.AF_INET6:
        return str(ipaddress.IPv6Address(ctypes.string_at(pointer, _SOCKADDR_BYTES)[_IPV6_BYTES]))
    return None


@cache
def _library() -> Any | None:
    try:
        library = ctypes.CDLL(None)
        library.getifaddrs.argtypes = [ctypes.POINTER(ctypes.POINTER(_IfAddrs))]
        library.freeifaddrs.argtypes = [ctypes.POINTER(_IfAddrs)]
    except (AttributeError, OSError):
        return None
    return library

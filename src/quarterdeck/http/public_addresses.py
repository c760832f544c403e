"""The check for public addresses, and name resolution that applies it.

A URL that a model, a web page or a browser's subscription supplies can point anywhere this computer
reaches: loopback services, the router, a cloud provider's metadata address. A caller that only
serves the internet therefore uses this module, and connects to the addresses that it returns, never
to the name: a name can resolve to another address a moment later (DNS rebinding).

How an address is judged:

- IPv6 is public only inside 2000::/3, the block that IANA assigns global unicast addresses from.
  Everything outside it is special: loopback, unspecified, unique-local fc00::/7, link-local
  fe80::/10, site-local fec0::/10, multicast ff00::/8, IPv4-compatible ::/96, local NAT64
  64:ff9b:1::/48.
- Inside 2000::/3 the protocol assignments 2001::/23 (Teredo and ORCHID among them) and the
  documentation prefixes are not public.
- An address that carries an IPv4 address is as public as that one: IPv4-mapped ::ffff:0:0/96, NAT64
  64:ff9b::/96 and 6to4 2002::/16.
- IPv4 is public if no entry of IANA's special-purpose registry claims it.

The tables are written out here because `ipaddress.is_global` does not suffice: it is true of
fec0::1, ::127.0.0.1 and 64:ff9b::7f00:1, and its answers differ between patch releases of Python.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Final, TypeAlias

from anyio import to_thread

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver: TypeAlias = Callable[[str, int], list[str]]

PRIVATE_NETWORKS: Final = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    )
)
"""Where people have computers of their own: RFC 1918, RFC 6598 (also Tailscale) and RFC 4193."""
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SPECIAL_IPV6: Final = tuple(
    ipaddress.IPv6Network(prefix)
    for prefix in (
        "2001::/23",  # protocol assignments: Teredo 2001::/32, ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation, RFC 9637
    )
)
_SPECIAL_IPV4: Final = tuple(
    ipaddress.IPv4Network(prefix)
    for prefix in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and where clouds serve credentials
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)


class AddressNotPublic(Exception):
    """A host that is, or resolves to, an address of this machine or its network."""


def is_public(address: str) -> bool:
    """Return whether an IP address is public; False for text that is no address.

    A zone (`fe80::1%eth0`) and brackets are ignored.
    """
    found = literal_address(address)
    return found is not None and _is_public(found)


def literal_address(host: str) -> Address | None:
    """Return the IP address that a host is written as; None if it is a name.

    Resolvers also accept the spellings of `inet_aton` (`127.1`, `0x7f000001`, `2130706433`,
    `0177.0.0.1`) and a final dot, so they are addresses here, too.
    """
    bare = host.removeprefix("[").removesuffix("]").partition("%")[0].removesuffix(".")
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        pass
    if not bare.isascii() or any(map(str.isspace, bare)):
        return None  # `inet_aton` ignores what follows a space
    try:
        return ipaddress.IPv4Address(socket.inet_aton(bare))
    except OSError:
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None:
        return _is_public(inner)
    return address in _GLOBAL_UNICAST and not any(address in each for each in _SPECIAL_IPV6)


def resolve(host: str, port: int) -> list[str]:
    """Return every address that a name has, in the resolver's order.

    Raises:
        OSError: if it has none, or cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is not a host name") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def resolve_public(host: str, port: int, resolver: Resolver = resolve) -> list[str]:
    """Return every address of a host, all of them public.

    One private address among public ones is enough to reject the name: it may be the one that the
    next lookup returns first.

    Raises:
        AddressNotPublic: if the host is, or resolves to, an address of this machine or its network.
        OSError: if it cannot be resolved.
    """
    written = literal_address(host)
    if written is not None and not _is_public(written):
        raise AddressNotPublic(host)
    addresses = await resolve_in_thread(host, port, resolver)
    if not all(map(is_public, addresses)):
        raise AddressNotPublic(host)
    return addresses


async def resolve_in_thread(host: str, port: int, resolver: Resolver = resolve) -> list[str]:
    """As `resolve`, without blocking the event loop."""
    return await to_thread.run_sync(resolver, host, port, abandon_on_cancel=True)

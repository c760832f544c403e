"""Addresses of this machine and its network are never public, in any spelling, for any caller."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.agent.builtin.tools.fetch import Fetcher
from quarterdeck.errors import ToolFailed
from quarterdeck.http.public_addresses import is_public, literal_address
from quarterdeck.hub.push.delivery import AddressRefused, deliver, origin_of

PRIVATE = [
    # loopback, unspecified, this network
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "::1", "::",
    # private use
    "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1",
    # link-local, site-local
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "fec0::1", "feff::1",
    # carrier-grade NAT
    "100.64.0.1", "100.127.255.255",
    # multicast, reserved, broadcast
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "ff02::1", "ff0e::1",
    # documentation, benchmarking, discard
    "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "198.19.255.255",
    "2001:db8::1", "3fff::1", "100::1", "5f00::1",
    # protocol assignments: Teredo, ORCHID, DS-Lite, 6to4 relays
    "192.0.0.1", "192.0.0.170", "192.88.99.1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:10::1", "2001:20::1", "2001:2::1",
    # IPv4 inside IPv6: mapped, compatible, NAT64, 6to4
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "0:0:0:0:0:ffff:7f00:0001", "::127.0.0.1", "::7f00:1", "::8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
    "2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::1",
]  # fmt: skip
SPELLINGS = [
    "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
    "127.0.0.1.", "0", "00000000000", "10.1", "169.254.43518", "0xa9fea9fe",
]  # fmt: skip
PUBLIC = [
    "93.184.216.34", "8.8.8.8", "172.32.0.1", "100.128.0.1", "198.20.0.1", "192.0.3.1",
    "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888",
    "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1",
]  # fmt: skip

Use = Callable[[str], Awaitable[bool]]
"""Whether a caller rejects a URL because of its address."""


async def push_rejects(url: str) -> bool:
    delivery = await deliver(url, {}, b"", frozenset())
    return delivery.status == 400 and "public" in delivery.reason


async def fetch_rejects(url: str) -> bool:
    try:
        await Fetcher(allows_private=False).fetch(url)
    except ToolFailed as error:
        return "which is not allowed" in str(error)
    return False


USERS = [push_rejects, fetch_rejects]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names that resolve to what a test says; whatever is a numeric address, as it always does."""
    names: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host not in names:
            return real(host, port, *more, **named)
        return [(0, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


@pytest.mark.parametrize("address", [*PRIVATE, *SPELLINGS, "", "nonsense", "1.2.3.4 x", "::g"])
def test_an_address_of_this_machine_or_its_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["example.org", "localhost", "1.2.3.4.example", "x1", "0x"])
def test_a_name_is_no_address(host: str) -> None:
    assert literal_address(host) is None


@pytest.mark.parametrize("rejects", USERS)
@pytest.mark.parametrize("address", [*PRIVATE, *SPELLINGS])
async def test_no_user_connects_to_a_private_address(rejects: Use, address: str) -> None:
    host = f"[{address.replace('%', '%25')}]" if ":" in address else address
    assert await rejects(f"https://{host}:1/x")


@pytest.mark.parametrize("rejects", USERS)
@pytest.mark.parametrize("address", PRIVATE)
async def test_no_user_connects_to_a_name_with_a_private_address(
    rejects: Use, address: str, resolver: dict[str, list[str]]
) -> None:
    resolver["rebound.example"] = ["93.184.216.34", address]
    assert await rejects("https://rebound.example:1/x")


@pytest.mark.parametrize("rejects", USERS)
@pytest.mark.parametrize("name", ["localhost", "LOCALHOST"])
async def test_no_user_connects_to_this_computer_by_its_name(rejects: Use, name: str) -> None:
    assert await rejects(f"https://{name}:1/x")


@pytest.mark.parametrize("address", [*PRIVATE, *SPELLINGS])
def test_a_subscription_at_a_private_address_is_rejected_at_once(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused):
        origin_of(f"https://{host}/x", frozenset())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_subscription_at_a_public_address_is_accepted(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert origin_of(f"https://{host}/x", frozenset()) == f"https://{host}"


# From the registries of IANA, not from the table that is tested.
SPECIAL_IPV4 = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
]  # fmt: skip
SPECIAL_IPV6 = [
    "::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23",
    "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip


def _spelled(number: int) -> list[str]:
    """Return an IPv4 address in every form that a resolver or a gateway takes for it."""
    a, b, c, d = number.to_bytes(4, "big")
    high, low = number >> 16, number & 0xFFFF
    return [
        f"{a}.{b}.{c}.{d}", f"{a}.{b}.{c}.{d}.", str(number), hex(number), f"0{number:o}",
        f"{a}.{b}.{low}", f"{a}.{number & 0xFFFFFF}", f"0x{a:x}.0{b:o}.{c}.{d}",
        f"::ffff:{a}.{b}.{c}.{d}", f"::ffff:{high:x}:{low:x}", f"64:ff9b::{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::1",
    ]  # fmt: skip


@given(st.sampled_from(SPECIAL_IPV4), st.integers(0, 2**28 - 1))
def test_no_special_ipv4_address_is_public_however_it_is_written(network: str, offset: int) -> None:
    block = ipaddress.IPv4Network(network)
    number = int(block.network_address) + offset % block.num_addresses
    assert [each for each in _spelled(number) if is_public(each)] == []


@given(st.sampled_from(SPECIAL_IPV6), st.integers(0, 2**128 - 1))
def test_no_special_ipv6_address_is_public(network: str, offset: int) -> None:
    block = ipaddress.IPv6Network(network)
    address = block[offset % block.num_addresses]
    assert not is_public(str(address))
    assert not is_public(address.exploded)
    assert not is_public(f"[{address}]")


@pytest.mark.parametrize(
    "url",
    [
        "https://push.example@127.0.0.1:{port}/x",
        "https://push.example:443@127.0.0.1:{port}/x",
        "https://127.0.0.1:{port}#@push.example/x",
        "https://127.0.0.1:{port}?@push.example/x",
        "https://127.0.0.1:{port}\\@push.example/x",
        "https://\uff11\uff12\uff17.0.0.1:{port}/x",
        "https://127\u30020\u30020\u30021:{port}/x",
        "https://\u24dbocalhost:{port}/x",
        "https://localhost.:{port}/x",
        "https://%31%32%37.0.0.1:{port}/x",
        "https://[::ffff:127.0.0.1]:{port}/x",
        "https://[::ffff:127.0.0.1%25lo]:{port}/x",
        "https://127.1:{port}/x",
    ],
)
async def test_no_spelling_of_a_url_leads_to_this_computer(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        written = url.format(port=listener.getsockname()[1])
        assert not (await deliver(written, {}, b"", frozenset())).is_done
        with pytest.raises(ToolFailed):
            await Fetcher(allows_private=False).fetch(written)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()

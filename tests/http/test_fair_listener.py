"""Connections of one address do not keep those of another waiting."""

from __future__ import annotations

import asyncio  # noqa: TID251 - protocols are asyncio's
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from quarterdeck.http.fair_listener import PER_TURN, FairListener, network_of

pytestmark = pytest.mark.anyio


class Begun(asyncio.Protocol):
    """Records the order in which connections are begun."""

    order: list[str]

    def __init__(self, order: list[str], changed: anyio.Event) -> None:
        self.order = order
        self._changed = changed

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.order.append(transport.get_extra_info("peername")[0])
        self._changed.set()


def connect(source: str, port: int) -> socket.socket:
    client = socket.socket()
    client.bind((source, 0))
    client.connect(("127.0.0.1", port))
    return client


@asynccontextmanager
async def listening(most_waiting: int) -> AsyncIterator[tuple[int, list[str], FairListener]]:
    order: list[str] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        changed = anyio.Event()
        fair = FairListener(listener, lambda: Begun(order, changed), most_waiting=most_waiting)
        try:
            yield listener.getsockname()[1], order, fair
        finally:
            fair.close()


async def test_a_flood_of_one_address_does_not_hold_up_another() -> None:
    async with listening(most_waiting=1000) as (port, order, _):
        clients = [connect("127.0.0.2", port) for _ in range(100)]  # in the backlog
        clients.append(connect("127.0.0.3", port))
        while len(order) < 101:  # noqa: ASYNC110 - its own list
            await anyio.sleep(0.001)
        # All wait when the first turns are over; then each address has its turn.
        assert order.index("127.0.0.3") < 64 + 2 * PER_TURN
        for each in clients:
            each.close()


async def test_the_address_with_the_most_loses_its_oldest() -> None:
    async with listening(most_waiting=8) as (port, order, fair):
        clients = [connect("127.0.0.2", port) for _ in range(40)]
        others = [connect(f"127.0.0.{number}", port) for number in (3, 4, 5)]
        fair._accept()  # noqa: SLF001 - all at once, before any is begun
        while len(order) < 8:  # noqa: ASYNC110 - its own list
            await anyio.sleep(0.001)
        assert {"127.0.0.3", "127.0.0.4", "127.0.0.5"} <= set(order)
        assert order.count("127.0.0.2") == 5
        for each in (*clients, *others):
            each.close()


async def test_what_waits_is_closed_with_the_listener() -> None:
    async with listening(most_waiting=100) as (port, order, fair):
        clients = [connect("127.0.0.1", port) for _ in range(20)]
        fair._accept()  # noqa: SLF001
        fair.close()
        await anyio.lowlevel.checkpoint()
        assert order == []
        for each in clients:
            each.settimeout(5)
            assert each.recv(1) == b""
            each.close()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_customer_counts_as_one(address: str, network: str) -> None:
    assert network_of(address) == network

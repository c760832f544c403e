"""Connections of one address do not keep those of another waiting."""

from __future__ import annotations

import asyncio  # noqa: TID251 - protocols are asyncio's
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from quarterdeck.http.fair_listener import CROWD, PER_TURN, FairListener, IsKnown, network_of

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
async def listening(
    most_waiting: int, *, is_known: IsKnown | None = None
) -> AsyncIterator[tuple[int, list[str], FairListener]]:
    order: list[str] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        changed = anyio.Event()
        fair = FairListener(
            listener,
            lambda: Begun(order, changed),
            most_waiting=most_waiting,
            is_known=is_known,
        )
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


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n"


def names_itself(head: bytes) -> bool:
    return b"Name: mine" in head


@pytest.mark.parametrize("sent", [b"", HEAD % b"Name: other", b"GET / HT"])
@pytest.mark.parametrize("place", [0, 20, 60])
async def test_a_known_client_is_begun_before_a_flood_of_its_own_address(
    sent: bytes, place: int
) -> None:
    async with listening(most_waiting=CROWD + 8, is_known=names_itself) as (port, order, fair):
        clients = [connect("127.0.0.2", port) for _ in range(place)]
        mine = connect("127.0.0.2", port)
        clients += [connect("127.0.0.2", port) for _ in range(100 - place)]
        for each in clients:
            each.sendall(sent)
        mine.sendall(HEAD % b"Name: mine")
        fair._accept()  # noqa: SLF001 - all at once: more than half are dropped
        while not order:  # noqa: ASYNC110 - its own list
            await anyio.sleep(0.001)
        mine.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            mine.recv(1)  # it is open
        dropped = [each for each in clients if is_closed(each)]
        assert 59 <= len(dropped) <= 61
        assert fair._known == deque()  # noqa: SLF001 - it was begun first
        for each in (*clients, mine):
            each.close()


async def test_strangers_are_all_begun_and_those_that_left_are_not() -> None:
    async with listening(most_waiting=1000, is_known=names_itself) as (port, order, fair):
        clients = [connect("127.0.0.2", port) for _ in range(3 * CROWD)]
        for each in clients[:CROWD]:
            each.close()
        fair._accept()  # noqa: SLF001
        while len(order) < 2 * CROWD:  # noqa: ASYNC110 - its own list
            await anyio.sleep(0.001)
        await anyio.sleep(0.05)
        assert len(order) == 2 * CROWD
        for each in clients:
            each.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def test_what_waits_is_begun_when_the_listener_ends_but_a_crowd_is_closed() -> None:
    async with listening(most_waiting=100) as (port, order, fair):
        clients = [connect("127.0.0.1", port) for _ in range(CROWD)]
        fair._accept()  # noqa: SLF001
        fair.close()
        with anyio.fail_after(5):
            while len(order) < CROWD:  # noqa: ASYNC110 - its own list
                await anyio.sleep(0.001)
        for each in clients:
            each.close()
    async with listening(most_waiting=100) as (port, order, fair):
        clients = [connect("127.0.0.1", port) for _ in range(CROWD + 1)]
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

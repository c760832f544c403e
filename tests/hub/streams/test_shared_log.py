"""A log that is shared by its readers: what is read of it at once is bounded by bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from quarterdeck.hub.streams import shared_log
from quarterdeck.hub.streams.shared_log import BLOCK, SharedLog
from quarterdeck.storage import MOST_PAGE_BYTES
from tests.storage.support import stored

pytestmark = pytest.mark.anyio

PAGE_BYTES = 10_000


class Source:
    """A log whose pages end at a number of bytes; its first events may be deleted."""

    was_closed = False
    has_ended = False
    first = 1

    def __init__(self, sizes: list[int], deleted: int = 0, page_bytes: int = PAGE_BYTES) -> None:
        self.head = len(sizes)
        self._events = [stored("s", n, "x" * size).data for n, size in enumerate(sizes, 1)]
        self._deleted = deleted
        self._page_bytes = page_bytes
        self.reads = 0

    async def read(self, after: int, limit: int) -> list[bytes]:
        self.reads += 1
        page: list[bytes] = []
        start = max(after, self._deleted)
        for event in self._events[start : start + limit]:
            page.append(event)
            if sum(map(len, page)) >= self._page_bytes:
                break
        return page

    def subscribe(self, _subscriber: object) -> Callable[[], None]:
        return lambda: None


async def read_all(log: SharedLog, cursor: int = 0, most: int = PAGE_BYTES) -> list[int]:
    numbers: list[int] = []
    while cursor < log.head:
        run = await log.older(cursor)
        assert run.size < most + max(map(len, run.events), default=0)
        numbers += run.numbers
        assert run.last > cursor
        cursor = run.last
    return numbers


@pytest.mark.parametrize("seed", range(20))
async def test_every_event_is_read_once_however_large_they_are(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(shared_log, "MOST_PAGE_BYTES", PAGE_BYTES)
    chance = random.Random(seed)
    share = chance.random()
    sizes = [
        chance.randint(1_000, 30_000) if chance.random() < share else chance.randint(1, 50)
        for _ in range(chance.randint(1, 3 * BLOCK))
    ]
    deleted = chance.choice((0, 0, chance.randint(0, len(sizes))))
    log = SharedLog(Source(sizes, deleted), "s")
    cursor = chance.randint(0, len(sizes))
    expected = list(range(max(deleted, cursor) + 1, len(sizes) + 1))
    assert await read_all(log, cursor) == expected
    assert await read_all(log) == list(range(deleted + 1, len(sizes) + 1))


async def test_ordinary_events_are_read_a_block_at_a_time() -> None:
    source = Source([10] * (4 * BLOCK), page_bytes=MOST_PAGE_BYTES)
    log = SharedLog(source, "s")
    assert len(await read_all(log, most=MOST_PAGE_BYTES)) == 4 * BLOCK
    assert source.reads == 4

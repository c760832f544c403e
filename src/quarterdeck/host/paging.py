"""How many events to read of a log at a time, for whoever reads it whole.

Many small ones: on a busy machine each page waits for its thread. Few large ones: a page is in
memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIRST_LIMIT: Final = 1000
MOST: Final = 10_000
LEAST: Final = 16
PAGE_BYTES: Final = 4 << 20


def next_limit(page: Sequence[bytes]) -> int:
    """Return how many events to read after a page, if they are as large as those of it."""
    size = sum(map(len, page))
    return min(MOST, max(LEAST, len(page) * PAGE_BYTES // max(1, size)))

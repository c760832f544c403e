"""Retention: how long runner.db keeps ended prompts and settled decisions.

The log of a session is not touched by this: what was said, done and decided stays in it until the
session is deleted. What waits or runs is never removed, however old it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from quarterdeck.errors import HubDatabaseFailed
from quarterdeck.protocol.timestamps import iso_seconds

if TYPE_CHECKING:  # options need the figures only, not the database
    from quarterdeck.server.runner_store import RunnerStore

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 6 * 3600.0
_BATCH: Final = 500  # rows in one transaction: other writers wait for it
_DAY: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long rows are kept after they were settled, in days; 0 keeps them for ever."""

    prompts_days: float = 90.0
    """Of prompts that ended. Their keys are forgotten with them."""
    decisions_days: float = 400.0
    """Of the audit."""


async def keep_tidy(store: RunnerStore, retention: Callable[[], Retention]) -> None:
    """Remove what is too old, now and again, until it is cancelled."""
    while True:
        try:
            await tidy(store, retention(), time.time())
        except HubDatabaseFailed as error:
            logger.warning("what is too old could not be removed", extra={"reason": str(error)})
        await anyio.sleep(LOOK_SECONDS)


async def tidy(store: RunnerStore, retention: Retention, at: float) -> int:
    """Remove what is too old; return how many rows that were.

    Raises:
        HubDatabaseFailed: if SQLite does.
    """
    removed = 0
    if retention.prompts_days:
        before = iso_seconds(at - retention.prompts_days * _DAY)
        removed += await _remove(store.prune_prompts, before)
    if retention.decisions_days:
        before = iso_seconds(at - retention.decisions_days * _DAY)
        removed += await _remove(store.prune_decisions, before)
    return removed


async def _remove(prune: Callable[[str, int], Awaitable[int]], before: str) -> int:
    removed = 0
    while (count := await prune(before, _BATCH)) > 0:
        removed += count
    return removed

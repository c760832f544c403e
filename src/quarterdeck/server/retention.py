"""What hub.db keeps of the past: how prompts ended and what was decided, for as long as is set.

The log of a session is not touched by this: what was said, done and decided stays in it until the
session is deleted. What waits or runs is never removed, however old it is.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from quarterdeck.errors import HubDatabaseFailed
from quarterdeck.server.clock import written
from quarterdeck.server.database import HubDatabase

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 6 * 3600.0
_BATCH: Final = 500  # rows in one transaction: whoever wants to write meanwhile waits for it
_DAY: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long rows are kept after they were settled, in days; 0 keeps them for ever."""

    prompts_days: float = 90.0
    """Of prompts that ended. Their keys are forgotten with them."""
    decisions_days: float = 400.0
    """Of the audit."""


async def keep_tidy(database: HubDatabase, retention: Callable[[], Retention]) -> None:
    """Remove what is too old, now and again, until it is cancelled."""
    while True:
        try:
            await tidy(database, retention(), time.time())
        except HubDatabaseFailed as error:
            logger.warning("what is too old could not be removed", extra={"reason": str(error)})
        await anyio.sleep(LOOK_SECONDS)


async def tidy(database: HubDatabase, retention: Retention, at: float) -> int:
    """Remove what is too old; return how many rows that were.

    Raises:
        HubDatabaseFailed: if SQLite does.
    """
    removed = 0
    for query, days in ((_PROMPTS, retention.prompts_days), (_DECISIONS, retention.decisions_days)):
        if days:
            removed += await _remove(database, query, written(at - days * _DAY))
    return removed


async def _remove(database: HubDatabase, query: str, before: str) -> int:
    def remove(connection: sqlite3.Connection) -> int:
        return connection.execute(query, (before, _BATCH)).rowcount

    removed = 0
    while (count := await database.write(remove)) > 0:
        removed += count
    return removed


_PROMPTS: Final = (
    "DELETE FROM prompts WHERE id IN (SELECT id FROM prompts"
    " WHERE state NOT IN ('queued', 'running') AND updated_at < ? LIMIT ?)"
)
_DECISIONS: Final = (
    "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions"
    " WHERE state != 'pending' AND decided_at < ? LIMIT ?)"
)

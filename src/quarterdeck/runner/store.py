"""`RunnerStore`: everything in runner.db, as methods that are one transaction each.

runner.db belongs to the code that runs agents: prompts, decisions on permission requests, and the
definitions of agents that were started by command. What people own (devices, pairings, push
subscriptions) is in hub.db. Neither side opens the other's file.

`keep_tidy` removes ended prompts and settled decisions when their retention is over. It does not
touch the log of a session, whose events stay until the session is deleted. What is pending or
running is never removed, however old it is.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import anyio

from quarterdeck.errors import DatabaseFailed
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.adoption.store import AdoptionStore, forget_position
from quarterdeck.runner.agent_definitions import DefinitionStore
from quarterdeck.runner.options import Retention
from quarterdeck.runner.permissions import decision_index
from quarterdeck.runner.permissions.context_policies import ContextPolicies, forget_policy
from quarterdeck.runner.permissions.decision_index import DecisionIndex
from quarterdeck.runner.prompts.store import PromptStore
from quarterdeck.runner.schema import column_of, id_of_column
from quarterdeck.runner.sessions.labels import SessionLabels, forget_label
from quarterdeck.runner.telemetry.progress import forget_progress
from quarterdeck.storage.database import Database

logger = logging.getLogger(__name__)

PRUNE_SECONDS: Final = 6 * 3600.0
"""Between two removals."""
_BATCH: Final = 500  # rows in one transaction: other writers wait for it
_DAY: Final = 86_400.0
_SESSIONS: Final = (
    "SELECT session_id FROM prompts UNION"
    " SELECT session_id FROM decisions WHERE session_id IS NOT NULL AND request != 'null' UNION"
    " SELECT session_id FROM context_policies UNION SELECT session_id FROM session_labels UNION"
    " SELECT session_id FROM foreign_positions"
)
_OLD_PROMPTS: Final = (
    "DELETE FROM prompts WHERE id IN (SELECT id FROM prompts"
    " WHERE state NOT IN ('queued', 'running') AND updated_at < ? LIMIT ?)"
)
_OLD_DECISIONS: Final = (
    "DELETE FROM decisions WHERE id IN (SELECT id FROM decisions"
    " WHERE state != 'pending' AND decided_at < ? LIMIT ?)"
)


class RunnerStore:
    """The tables of runner.db, by feature, and what concerns several of them.

    Every method raises `DatabaseFailed` if SQLite fails.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.prompts = PromptStore(database)
        self.definitions = DefinitionStore(database)
        self.decisions = DecisionIndex(database)
        self.context_policies = ContextPolicies(database)
        self.labels = SessionLabels(database)
        self.adoption = AdoptionStore(database)

    async def sessions(self) -> set[str]:
        """Return the sessions that have prompts, requests with content, a policy or a label."""

        def look(connection: sqlite3.Connection) -> set[str]:
            return {id_of_column(column) for (column,) in connection.execute(_SESSIONS)}

        return await self._database.read(look)

    async def forget_sessions(self, session_ids: Collection[str]) -> None:
        """Remove what is stored of deleted sessions; who decided, how and when stays."""

        def change(connection: sqlite3.Connection) -> None:
            for session_id in session_ids:
                column = column_of(session_id)
                connection.execute("DELETE FROM prompts WHERE session_id = ?", (column,))
                decision_index.blank(connection, session_id)
                forget_policy(connection, session_id)
                forget_label(connection, session_id)
                forget_position(connection, session_id)
                forget_progress(connection, session_id)

        await self._database.write(change)

    async def prune_prompts(self, before: str, limit: int) -> int:
        """Remove at most `limit` prompts that ended before a time; return how many."""
        return await self._prune(_OLD_PROMPTS, before, limit)

    async def prune_decisions(self, before: str, limit: int) -> int:
        """Remove at most `limit` decisions that were settled before a time; return how many."""
        return await self._prune(_OLD_DECISIONS, before, limit)

    async def _prune(self, query: str, before: str, limit: int) -> int:
        return await self._database.write(
            lambda connection: connection.execute(query, (before, limit)).rowcount
        )


async def keep_tidy(store: RunnerStore, retention: Callable[[], Retention]) -> None:
    """Remove expired rows at intervals until it is cancelled."""
    while True:
        try:
            await tidy(store, retention(), time.time())
        except DatabaseFailed as error:
            logger.warning("expired rows could not be removed", extra={"reason": str(error)})
        await anyio.sleep(PRUNE_SECONDS)


async def tidy(store: RunnerStore, retention: Retention, at: float) -> int:
    """Remove expired rows; return how many.

    Raises:
        DatabaseFailed: if SQLite does.
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

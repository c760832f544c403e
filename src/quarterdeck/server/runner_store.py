"""`RunnerStore`: everything in runner.db, as methods that are one transaction each.

runner.db belongs to the code that runs agents: prompts, decisions on permission requests, and the
definitions of agents that were started by command. What people own (devices, pairings, push
subscriptions) is in hub.db. Neither side opens the other's file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

from quarterdeck.server import decision_rows
from quarterdeck.server.database import HubDatabase
from quarterdeck.server.decision_rows import DecisionIndex
from quarterdeck.server.definitions import DefinitionStore
from quarterdeck.server.prompt_rows import PromptStore
from quarterdeck.server.tables import column_of, id_of_column

_SESSIONS: Final = (
    "SELECT session_id FROM prompts UNION"
    " SELECT session_id FROM decisions WHERE session_id IS NOT NULL AND asked != 'null'"
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

    Every method raises `HubDatabaseFailed` if SQLite fails.
    """

    def __init__(self, database: HubDatabase) -> None:
        self._database = database
        self.prompts = PromptStore(database)
        self.definitions = DefinitionStore(database)
        self.decisions = DecisionIndex(database)

    async def sessions(self) -> set[str]:
        """Return the sessions that have prompts, or requests with their content."""

        def look(connection: sqlite3.Connection) -> set[str]:
            return {id_of_column(column) for (column,) in connection.execute(_SESSIONS)}

        return await self._database.read(look)

    async def forget_sessions(self, session_ids: Collection[str]) -> None:
        """Remove what was sent and asked in deleted sessions; who decided, how and when stays."""

        def change(connection: sqlite3.Connection) -> None:
            for session_id in session_ids:
                column = column_of(session_id)
                connection.execute("DELETE FROM prompts WHERE session_id = ?", (column,))
                decision_rows.blank(connection, session_id)

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

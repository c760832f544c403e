"""What a client of the host's envelopes does, done so that the hub remembers it, or forgets it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection
from typing import Any, Final

from quarterdeck.errors import HubDatabaseFailed, StorageFailed
from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.protocol import AgentSnapshotWire
from quarterdeck.server import decision_rows, prompt_rows
from quarterdeck.server.database import HubDatabase
from quarterdeck.server.keeper import Keeper
from quarterdeck.server.library import Library
from quarterdeck.server.queue_news import QueueNews
from quarterdeck.server.tables import id_of_column

logger = logging.getLogger(__name__)

_REMEMBERED: Final = (
    "SELECT session_id FROM prompts UNION"
    " SELECT session_id FROM decisions WHERE session_id IS NOT NULL AND asked != 'null'"
)


class Keeps:
    """Agents and sessions in the host's words."""

    def __init__(
        self,
        host: Host,
        database: HubDatabase,
        keeper: Keeper,
        library: Library,
        news: QueueNews,
    ) -> None:
        self._host = host
        self._database = database
        self._keeper = keeper
        self._library = library
        self._news = news

    async def start(self) -> None:
        """Forget what an earlier hub left of sessions that are deleted."""
        try:
            await self._forget_left()
        except (StorageFailed, HubDatabaseFailed) as error:  # a full disk; the next start does it
            logger.warning("deleted sessions were not forgotten", extra={"reason": str(error)})

    async def _forget_left(self) -> None:
        storage = self._host.options.storage
        metas = await storage.sessions()
        deleted = {meta.session_id for meta in metas if meta.lifecycle == "deleted"}
        for session_id in deleted:
            if await storage.read(session_id, 0, 1):
                await storage.delete_events(session_id)
        left = deleted & await self._database.read(_remembered_sessions)
        if left:
            await self._forget(left)

    async def spawn_agent(self, definition: Any) -> AgentSnapshotWire:
        """Start an agent, and remember how, so that its sessions come back after a restart.

        One with the id of a known agent is started as it is asked for, and not remembered: how to
        bring its sessions back is known, and others get the known one by that name.
        """
        resolved = resolve_agent_definition(definition)
        if resolved.id in self._keeper.known:
            return await self._host.spawn_agent(resolved)
        return await self._keeper.spawn(resolved)

    async def dispose_agent(self, agent_id: str) -> None:
        await self._keeper.dispose(agent_id)

    async def delete_session(self, agent_id: str | None, session_id: str) -> None:
        """Delete a session and all that happened in it; the audit keeps who decided what."""

        async def delete() -> None:
            await self._host.delete_session(agent_id, session_id)
            self._library.forget(session_id)
            await self._forget([session_id])
            await self._host.options.storage.delete_events(session_id)

        # Seen through also when whoever asked has gone meanwhile.
        await self._keeper.once(f"deletion by {agent_id!r} of {session_id!r}", delete)

    async def _forget(self, session_ids: Collection[str]) -> None:
        def forget(connection: sqlite3.Connection) -> None:
            for session_id in session_ids:
                prompt_rows.remove_all(connection, session_id)
                decision_rows.blank(connection, session_id)

        await self._database.write(forget)
        for session_id in session_ids:
            self._news.changed(session_id)


def _remembered_sessions(connection: sqlite3.Connection) -> set[str]:
    return {id_of_column(column) for (column,) in connection.execute(_REMEMBERED)}

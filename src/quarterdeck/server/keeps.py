"""What a client of the host's envelopes does, done so that the hub remembers it, or forgets it."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from quarterdeck.errors import HubDatabaseFailed, StorageFailed
from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.protocol import AgentSnapshotWire
from quarterdeck.server.keeper import Keeper
from quarterdeck.server.library import Library
from quarterdeck.server.queue_news import QueueNews
from quarterdeck.server.runner_store import RunnerStore

logger = logging.getLogger(__name__)


class Keeps:
    """Agents and sessions in the host's words."""

    def __init__(
        self,
        host: Host,
        store: RunnerStore,
        keeper: Keeper,
        library: Library,
        news: QueueNews,
    ) -> None:
        self._host = host
        self._store = store
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
        left = deleted & await self._store.sessions()
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
        await self._store.forget_sessions(session_ids)
        for session_id in session_ids:
            self._news.changed(session_id)

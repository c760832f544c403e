"""What a client of the host's envelopes does, done so that the hub remembers it."""

from __future__ import annotations

from typing import Any

from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.protocol import AgentSnapshotWire
from quarterdeck.server.keeper import Keeper
from quarterdeck.server.library import Library


class Keeps:
    """Agents and sessions in the host's words."""

    def __init__(self, host: Host, keeper: Keeper, library: Library) -> None:
        self._host = host
        self._keeper = keeper
        self._library = library

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

    async def delete_session(self, agent_id: str, session_id: str) -> None:
        await self._host.delete_session(agent_id, session_id)
        self._library.forget(session_id)

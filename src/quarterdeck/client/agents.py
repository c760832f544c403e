"""The agents of a host, as a client sees and commands them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.client.link import Link
from quarterdeck.client.listeners import Listener, Unsubscribe
from quarterdeck.client.mirror import Mirror
from quarterdeck.client.snapshots import read_agent, read_agents
from quarterdeck.protocol import AcpRpcMethod, AgentDefinition, AgentSnapshotWire, to_json


class Agents:
    """A live copy of the host's agents. Calls raise `AcpError`."""

    def __init__(self, link: Link) -> None:
        self.mirror: Mirror[AgentSnapshotWire] = Mirror()
        self._link = link

    def get(self, agent_id: str) -> AgentSnapshotWire | None:
        return self.mirror.get(agent_id)

    def all(self) -> tuple[AgentSnapshotWire, ...]:
        """Return what is known now, without asking."""
        return self.mirror.all()

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` after each change of `all()`."""
        return self.mirror.subscribe(listener)

    async def spawn(self, definition: AgentDefinition | Mapping[str, Any]) -> AgentSnapshotWire:
        """Start an agent and wait until it is ready."""
        given = to_json(definition) if isinstance(definition, AgentDefinition) else dict(definition)
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.SPAWN_AGENT, {"definition": given})
            snapshot = read_agent(answer)
            self.mirror.add_answer({snapshot.agent_id: snapshot}, told)
        return snapshot

    async def list(self) -> tuple[AgentSnapshotWire, ...]:
        """Ask the host for all agents."""
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.LIST_AGENTS, {})
            listed = read_agents(answer)
            self.mirror.replace_answer({each.agent_id: each for each in listed}, told)
        return listed

    async def dispose(self, agent_id: str) -> None:
        """End an agent; its sessions stay, disconnected."""
        await self._link.call(AcpRpcMethod.DISPOSE_AGENT, {"agentId": agent_id})

    async def authenticate(self, agent_id: str, method_id: str) -> None:
        params = {"agentId": agent_id, "methodId": method_id}
        await self._link.call(AcpRpcMethod.AUTHENTICATE, params)

    async def logout(self, agent_id: str) -> None:
        await self._link.call(AcpRpcMethod.LOGOUT, {"agentId": agent_id})

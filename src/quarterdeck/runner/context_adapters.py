"""Adapters of the running agents: commands of the context protocol (seed 000) for one agent.

An adapter belongs to the runner, not to a connection: a turn or a policy that a client started
continues when that client disconnects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio
from msgspec import UNSET

from quarterdeck.agents.adapters import AcpAdapter
from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.protocol import ERROR_CODES, SessionSnapshotWire
from quarterdeck.protocol.snapshots import AgentDefinition
from quarterdeck.views.context import ACPCapabilities, ACPCommand
from quarterdeck.wire import IndependentTasks

_STARTING_SECONDS: Final = 30.0


class ContextAdapters:
    """One adapter for each agent that a command was sent to."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._adapters: dict[str, AcpAdapter] = {}
        self._tasks: IndependentTasks | None = None

    def start(self, tasks: IndependentTasks) -> None:
        self._tasks = tasks

    def capabilities(self, startable: Iterable[str] = ()) -> list[ACPCapabilities]:
        """Return what the agents of the live sessions can do, and those that can be started.

        What an agent declares itself, such as images, is known once it runs.
        """
        agents: dict[str, str | None] = dict.fromkeys(startable)
        for session in self._host.get_sessions():
            if session.agent_definition_id is not UNSET:
                agent_id = None if session.agent_id is UNSET else session.agent_id
                agents[session.agent_definition_id] = agent_id
        return [
            AcpAdapter(self._host, AgentDefinition(name, "-"), agent_id=agent_id).get_capabilities()
            for name, agent_id in agents.items()
        ]

    async def execute(self, session_id: str, command: ACPCommand) -> None:
        """Carry out a command in a session whose agent runs.

        Raises:
            QuarterdeckError: if it cannot be carried out, with a code that says why.
        """
        adapter = await self._adapter(self._session(session_id))
        attached = await adapter.attach_to_session(session_id)
        try:
            await attached.execute(command)
        finally:
            with anyio.CancelScope(shield=True):
                await attached.detach()

    def _session(self, session_id: str) -> SessionSnapshotWire:
        session = self._host.get_session(session_id)
        if session is None:
            raise AcpError(ERROR_CODES["session_closed"], f"there is no session {session_id}")
        return session

    async def _adapter(self, session: SessionSnapshotWire) -> AcpAdapter:
        if session.agent_id is UNSET or session.agent_definition_id is UNSET:
            message = f"session {session.session_id} has no agent; resume or load it"
            raise AcpError(ERROR_CODES["session_closed"], message)
        agent_id, name = session.agent_id, session.agent_definition_id
        adapter = self._adapters.get(agent_id)
        if adapter is None:
            # The agent runs already, so the command of this definition is never used.
            adapter = AcpAdapter(self._host, AgentDefinition(name, "-"), agent_id=agent_id)
            await self._keep_open(agent_id, adapter)
        return adapter

    async def _keep_open(self, agent_id: str, adapter: AcpAdapter) -> None:
        """Enter an adapter in a task of the runner, which ends with the runner."""
        entered = anyio.Event()

        async def hold() -> None:
            async with adapter:
                self._adapters[agent_id] = adapter
                entered.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    del self._adapters[agent_id]

        assert self._tasks is not None
        self._tasks.start_soon(hold)
        with anyio.fail_after(_STARTING_SECONDS):
            await entered.wait()

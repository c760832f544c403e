"""`IdleAgents`: stops agents that are not used; their sessions are opened again on demand.

An agent is idle while nothing of it runs or waits: no turn, no queued prompt, no pending request,
and no event in any of its sessions. An agent is stopped only if its sessions can be opened again as
they were: it can resume or load, the runner knows how to start it, and no session has secrets that
are not stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import anyio

from quarterdeck.errors import QuarterdeckError
from quarterdeck.host import Host
from quarterdeck.protocol import AgentSnapshotWire, SessionSnapshotWire, SessionStatus
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.sessions.manager import SessionManager

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0


@dataclass
class _Rest:
    """Since when an agent has been as it is."""

    mark: object
    since: float


class IdleAgents:
    """Stops agents that have been idle for too long."""

    def __init__(
        self,
        host: Host,
        manager: SessionManager,
        prompts: PromptQueue,
        minutes: Callable[[], float],
    ) -> None:
        """`minutes` is called at each check, since the time can be changed; 0 stops nothing."""
        self._host = host
        self._manager = manager
        self._prompts = prompts
        self._minutes = minutes
        self._rests: dict[str, _Rest] = {}

    async def run(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Check at intervals until it is cancelled."""
        while True:
            await anyio.sleep(look_seconds)
            await self.look()

    async def look(self) -> None:
        """Stop the agents that were idle for too long."""
        limit, now = self._minutes() * 60, anyio.current_time()
        agents = {each.agent_id: each for each in self._host.get_agents()}
        self._rests = {each: rest for each, rest in self._rests.items() if each in agents}
        for agent_id, agent in agents.items():
            mark = self._mark(agent)
            rest = self._rests.get(agent_id)
            if mark is None or rest is None or rest.mark != mark:
                self._rests[agent_id] = _Rest(mark, now)
            elif limit and now - rest.since >= limit and self._can_come_back(agent):
                del self._rests[agent_id]
                logger.info("an idle agent is stopped", extra={"agent": agent_id})
                try:
                    await self._manager.stop_idle(agent_id)
                except QuarterdeckError as error:  # the log; it is tried again
                    logger.warning("an idle agent stays", extra={"reason": str(error)})

    def _mark(self, agent: AgentSnapshotWire) -> object | None:
        """Return what changes whenever something happens with an agent; None while it works."""
        sessions = self._sessions(agent)
        waiting: set[object] = {each.agent_id for each in self._host.pending_permissions()}
        waiting |= {each.agent_id for each in self._host.pending_elicitations()}
        is_working = (
            agent.status != "ready"
            or any(not _is_resting(each.status) for each in sessions)
            or any(self._prompts.is_busy(each.session_id) for each in sessions)
            or agent.agent_id in waiting
        )
        if is_working:
            return None
        seqs = tuple((each.session_id, self._host.last_seq(each.session_id)) for each in sessions)
        return seqs, self._manager.uses(agent.agent_id)

    def _can_come_back(self, agent: AgentSnapshotWire) -> bool:
        return self._manager.can_come_back(agent, self._sessions(agent))

    def _sessions(self, agent: AgentSnapshotWire) -> list[SessionSnapshotWire]:
        return [each for each in self._host.get_sessions() if each.agent_id == agent.agent_id]


def _is_resting(status: SessionStatus) -> bool:
    match status:
        case "active" | "disconnected" | "closed" | "deleted":
            return True
        case "creating" | "prompting" | "resuming":
            return False
        case _:
            assert_never(status)

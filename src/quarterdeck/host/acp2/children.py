"""Sub-agents of agents with ACP 2: sessions of the host with a parent.

The parent announces a child by `subagent_update`; then the child's updates and requests arrive
under the child's own id. A child has its own log and its own requests, also while its parent is
idle. It takes no prompts; it can be cancelled if the agent offers that; it ends with its parent.

How deep and how many is bounded: an agent that announces more gets a diagnostic, and what those
children send is dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import check_session_id, unsupported
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession, SessionFolders

DEPTH: Final = 8
CHILDREN: Final = 200
"""Open sub-agents of one session, those of its sub-agents included."""
_INFO: Final = ("title",)


class ChildSessions:
    """Opens the sessions of sub-agents."""

    def __init__(self, emitter: Emitter, sessions: SessionRegistry) -> None:
        self._emitter = emitter
        self._sessions = sessions

    def on_update(
        self, agent: AgentProcess, parent: HostSession, update: dict[str, Any]
    ) -> HostSession | None:
        """Open a child, or apply what its parent reports of it."""
        child_id = update.get("sessionId")
        if not isinstance(child_id, str) or parent.operation is not None or not parent.is_live:
            return None
        child = self._sessions.find(child_id)
        if child is None:
            child = self._open(agent, parent, child_id, update)
        elif child.parent_id == parent.id and child.status == "disconnected":
            child.agent_id = agent.id
            self._emitter.set_status(child, "active", resumed=True)
        elif child.parent_id != parent.id or child.agent_id != agent.id:
            self._report(agent, parent, f"{child_id} is a session of its own, not a sub-agent")
            return None
        if child is not None:
            self._apply(child, update)
        return child

    def of(self, session: HostSession) -> list[HostSession]:
        """Return all sub-agents of a session, theirs included; the deepest first."""
        own = [each for each in self._sessions.known.values() if each.parent_id == session.id]
        return [found for child in own for found in (*self.of(child), child)]

    def open_in(self, session: HostSession) -> list[HostSession]:
        """Return those that have not ended."""
        return [each for each in self.of(session) if each.is_live]

    def _open(
        self, agent: AgentProcess, parent: HostSession, child_id: str, update: dict[str, Any]
    ) -> HostSession | None:
        try:
            check_session_id(child_id)
        except AcpError as error:
            self._report(agent, parent, f"a sub-agent cannot be shown: {error.message}")
            return None
        root, depth = parent, 1
        while root.parent_id is not None and (above := self._sessions.find(root.parent_id)):
            root, depth = above, depth + 1
        open_children = self.open_in(root)
        if child_id in self._sessions.tombstones:
            return None
        if depth > DEPTH or len(open_children) >= CHILDREN:
            limit = f"{DEPTH} levels" if depth > DEPTH else f"{CHILDREN} sub-agents"
            self._report(agent, parent, f"sub-agent {child_id} is not shown: more than {limit}")
            return None
        return self._publish(agent, parent, child_id, update)

    def _publish(
        self, agent: AgentProcess, parent: HostSession, child_id: str, update: dict[str, Any]
    ) -> HostSession:
        child = HostSession(
            child_id,
            self._emitter.new_stream(child_id),
            _folders(parent, update),
            agent_id=agent.id,
            definition_id=agent.definition.id,
            parent_id=parent.id,
            can_cancel=False,
            policy=parent.policy,
        )
        self._sessions.publish(child)
        extensions = mark("the agent started a sub-agent")
        extensions["quarterdeck"]["parentSessionId"] = parent.id
        self._emitter.session_event(child, "session-config-init", {}, extensions)
        self._emitter.set_status(child, "active")
        self._emitter.journal.write_record(child.meta())
        return child

    def _apply(self, child: HostSession, update: dict[str, Any]) -> None:
        if "capabilities" in update:
            offered = update["capabilities"]
            child.can_cancel = isinstance(offered, dict) and offered.get("cancel") is not None
        info = {name: update[name] for name in _INFO if name in update}
        if info and info.get("title") != child.title:
            child.apply_info(info)
            self._emitter.session_event(child, "session-info-update", info, mark("its parent"))
            self._emitter.session_updated(child)
            self._emitter.journal.write_record(child.meta())

    def _report(self, agent: AgentProcess, parent: HostSession, message: str) -> None:
        self._emitter.diagnostic(
            "warn", "session/sub-agent-refused", message, agent_id=agent.id, session_id=parent.id
        )


def _folders(parent: HostSession, update: dict[str, Any]) -> SessionFolders:
    cwd = update.get("cwd")
    folders = parent.folders
    return replace(folders, cwd=cwd) if isinstance(cwd, str) and cwd.startswith("/") else folders


def refuse_sub_agent(session: HostSession, action: str) -> None:
    """Refuse what only the agent itself may do with its sub-agents.

    Raises:
        AcpError: `acpjs/capability-unsupported`.
    """
    if session.parent_id is not None:
        raise unsupported(
            f"session {session.id} is a sub-agent, so no client can {action};"
            f" use its parent, {session.parent_id}"
        )


def agent_to_notify(session: HostSession) -> str | None:
    """Return the agent that has to close a session; a sub-agent is ended here alone."""
    return None if session.parent_id is not None else session.agent_id

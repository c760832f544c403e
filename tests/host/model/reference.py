"""What should become of sessions: tables and plain functions, without a host, a log or an agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

LIVE = ("active", "prompting", "resuming", "disconnected")
CLOSED = "acpjs/session-closed"
EXITED = "acpjs/agent-exited"
INVALID = "acpjs/config-invalid"
IN_FLIGHT = "acpjs/prompt-in-flight"
UNSUPPORTED = "acpjs/capability-unsupported"
ANSWERED = "acpjs/already-answered"

Opening = Literal["load", "resume"]


@dataclass(eq=False)
class ModelSession:
    """One session."""

    id: str
    agent: str | None = None
    definition: str | None = None
    status: str = "active"
    operation: Opening | None = None
    before: str | None = None
    agent_before: str | None = None
    generation: int = 0
    has_modes: bool = False
    mode: str | None = None
    """The current mode, as in the log."""
    title: str | None = None
    texts: list[str] = field(default_factory=list)
    """Messages and requests since the last reset."""
    replay: list[str] = field(default_factory=list)
    is_settled: bool = True
    """False for a restored one whose log was not read yet."""

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    def void(self) -> None:
        self.generation += 1
        self.operation = None
        self.replay = []


@dataclass(eq=False)
class ModelAgent:
    """One agent."""

    id: str
    definition: str
    is_ready: bool = True
    creating: int = 0
    early: dict[str, list[str]] = field(default_factory=dict)
    recovery: list[ModelSession] = field(default_factory=list)
    """Those that a restarted agent has yet to resume."""


@dataclass(eq=False)
class ModelRequest:
    """A permission request."""

    id: str
    session: ModelSession
    agent: str
    puppet: Any
    wire_id: int
    is_of_turn: bool
    status: str = "pending"
    outcome: dict[str, Any] = field(default_factory=lambda: {"outcome": "cancelled"})
    """The answer to the agent once it is not pending any more."""


class Reference:
    """All of them."""

    def __init__(self) -> None:
        self.agents: dict[str, ModelAgent] = {}
        self.known: dict[str, ModelSession] = {}
        self.staged: dict[str, ModelSession] = {}
        self.stored: dict[str, ModelSession] = {}
        """Those of an earlier host that are not restored."""
        self.tombstones: dict[str, str] = {}
        self.ended_logs: dict[str, str] = {}
        """The last status of those that ended when the host knew them."""
        self.requests: list[ModelRequest] = []
        self.stored_before = 0
        """Events that earlier hosts left: no request of theirs has a higher number."""

    # ---- what is refused -----------------------------------------------------------------

    def refuse_use(self, session_id: str) -> str | None:
        session = self.known.get(session_id)
        return None if session is not None and session.is_live else CLOSED

    def refuse_prompt(self, session_id: str) -> str | None:
        if refusal := self.refuse_use(session_id):
            return refusal
        session = self.known[session_id]
        if session.status == "prompting":
            return IN_FLIGHT
        if session.operation is not None:
            return INVALID
        if session.status != "active":
            return CLOSED
        return None

    def refuse_cancel(self, session_id: str) -> str | None:
        if refusal := self.refuse_use(session_id):
            return refusal
        if self.known[session_id].operation is not None:
            return INVALID
        return self._refuse_agent_of(self.known[session_id])

    def refuse_mode(self, session_id: str) -> str | None:
        if refusal := self.refuse_use(session_id):
            return refusal
        session = self.known[session_id]
        if session.agent not in self.agents:
            return CLOSED
        if not session.has_modes:
            return UNSUPPORTED
        return self._refuse_agent_of(session)

    def _refuse_agent_of(self, session: ModelSession) -> str | None:
        if session.agent not in self.agents:
            return CLOSED
        return None if self.agents[session.agent].is_ready else EXITED

    def refuse_create(self, agent_id: str) -> str | None:
        agent = self.agents.get(agent_id)
        return None if agent is not None and agent.is_ready else EXITED

    def refuse_open(self, operation: Opening, agent_id: str, session_id: str) -> str | None:
        if agent_id not in self.agents:
            return EXITED
        gone = ("deleted",) if operation == "load" else ("deleted", "closed")
        if self.tombstones.get(session_id) in gone:
            return CLOSED
        if not self.agents[agent_id].is_ready:
            return EXITED
        if session_id in self.staged:
            return INVALID
        session = self.known.get(session_id)
        return None if session is None else self._refuse_reopen(session, self.agents[agent_id])

    def _refuse_reopen(self, session: ModelSession, agent: ModelAgent) -> str | None:
        if session.status == "prompting":
            return IN_FLIGHT
        if session.operation is not None:
            return INVALID
        is_free = session.status in ("disconnected", "closed")
        if session.agent != agent.id and not is_free:
            return INVALID
        is_anybodys = session.agent in (None, agent.id)
        return None if is_anybodys or session.definition == agent.definition else INVALID

    def refuse_delete(self, agent_id: str, session_id: str) -> str | None:
        session = self.known.get(session_id) or self.staged.get(session_id)
        if session is None:
            return None if agent_id in self.agents else EXITED
        return None if session.agent in (None, agent_id) else INVALID

    def refuses_request(self, agent_id: str, session_id: str) -> bool:
        session = self.known.get(session_id)
        return (
            session is None
            or session.agent != agent_id
            or not session.is_live
            or session.operation is not None
        )

    # ---- what happens --------------------------------------------------------------------

    def create(self, agent: ModelAgent, session_id: str) -> str | None:
        """Take the answer to `session/new` in; return the code of what is wrong with it."""
        if session_id in self.known or session_id in self.staged:
            return INVALID
        if session_id in self.tombstones:
            return CLOSED
        session = ModelSession(session_id, agent.id, agent.definition)
        session.texts = agent.early.pop(session_id, [])
        self.known[session_id] = session
        self.stored.pop(session_id, None)  # its log continues, under a new session of that id
        return None

    def begin(self, operation: Opening, agent: ModelAgent, session_id: str) -> ModelSession:
        session = self.known.get(session_id)
        if session is None:
            session = ModelSession(session_id, agent.id, agent.definition, status="creating")
            self.staged[session_id] = session
        else:
            session.before, session.agent_before = session.status, session.agent
            session.generation += 1
            session.agent = agent.id
            if session.status != "closed":
                session.status = "resuming"
        session.operation = operation
        session.replay = []
        return session

    def opened(self, session: ModelSession, operation: Opening, agent: ModelAgent) -> None:
        session.agent, session.definition = agent.id, agent.definition
        if operation == "load":
            session.texts, session.mode = session.replay, None
            self.tombstones.pop(session.id, None)
            self.ended_logs.pop(session.id, None)
            self.supersede(session)
        self.staged.pop(session.id, None)
        self.known[session.id] = session
        session.operation, session.status, session.replay = None, "active", []

    def give_up(self, session: ModelSession) -> None:
        session.operation = None
        session.replay = []
        if self.staged.pop(session.id, None) is None:
            session.agent = session.agent_before
            if session.before != "closed":
                session.status = str(session.before)

    def say(self, agent: ModelAgent, session_id: str, text: str) -> None:
        session = self.known.get(session_id) or self.staged.get(session_id)
        if session is None:
            if agent.creating and session_id not in self.tombstones:
                agent.early.setdefault(session_id, []).append(text)
        elif session.agent == agent.id:
            if session.operation == "load":
                session.replay.append(text)
            elif session.operation is None and session.is_live:
                session.texts.append(text)

    def supersede(self, of: ModelSession | str) -> None:
        for request in self.requests:
            if request.status == "pending" and of in (request.session, request.agent):
                request.status = "superseded"

    def begin_turn(self, session: ModelSession) -> None:
        for request in self.requests:
            is_left = request.session is session and request.is_of_turn
            if request.status == "pending" and is_left:
                request.status = "superseded"
        session.status = "prompting"

    def end(self, session_id: str, status: Literal["closed", "deleted"]) -> None:
        self.tombstones[session_id] = status
        self.stored.pop(session_id, None)
        if (staged := self.staged.pop(session_id, None)) is not None:
            staged.void()
        session = self.known.get(session_id)
        if session is None:
            self.ended_logs.pop(session_id, None)
        else:
            self.ended_logs[session_id] = session.status = status
            session.void()
            self.supersede(session)
            if status == "deleted":
                del self.known[session_id]

    def agent_ended(self, agent: ModelAgent) -> None:
        agent.is_ready = False
        agent.early.clear()
        agent.creating = 0
        agent.recovery.clear()
        self.supersede(agent.id)
        for staged in [each for each in self.staged.values() if each.agent == agent.id]:
            staged.void()
            del self.staged[staged.id]
        for session in self.known.values():
            if session.agent == agent.id and session.status != "disconnected":
                session.void()
                if session.is_live:
                    session.status = "disconnected"

    def restarted(self) -> None:
        """Another host takes over the log."""
        for agent in self.agents.values():
            self.agent_ended(agent)
        self.agents.clear()
        self.staged.clear()
        self.requests.clear()
        for session in self.known.values():
            if session.is_live:
                self.stored[session.id] = session
        self.known.clear()

    def restore(self, *only: str) -> list[str]:
        restored = [each for each in self.stored.values() if not only or each.id in only]
        for session in restored:
            del self.stored[session.id]
            session.agent, session.has_modes = None, False
            session.status, session.is_settled = "disconnected", False
            self.known[session.id] = session
        return [session.id for session in restored]

    def pending(self, session: ModelSession) -> list[str]:
        of_session = [each for each in self.requests if each.session is session]
        return [each.id for each in of_session if each.status == "pending"]

    def facts(self) -> dict[str, Any]:
        """Return what the host's snapshots have to say."""
        return {each.id: (each.status, each.agent) for each in self.known.values()}

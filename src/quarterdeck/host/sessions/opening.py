"""A load or resume that is under way, and what may be opened with what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from quarterdeck.errors import AcpError
from quarterdeck.host.agents import AgentProcess
from quarterdeck.host.options import config_invalid
from quarterdeck.host.secrets import secret_values
from quarterdeck.host.sessions.session import (
    HostSession,
    SessionFolders,
    agent_exited,
    session_closed,
    unsupported,
)
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import ERROR_CODES, SessionStatus


@dataclass(eq=False, kw_only=True)
class SessionOpening:
    """A load or resume that is under way."""

    operation: Literal["load", "resume"]
    agent: AgentProcess
    session: HostSession
    before: SessionStatus | None
    """What to go back to if it fails; None for a session that nobody has seen."""
    agent_before: str | None
    place: SessionFolders
    generation: int
    """That of the session; when it has another one, somebody has ended this."""
    is_answered: bool = False
    is_abandoned: bool = False

    def __post_init__(self) -> None:
        self._place_before = self.session.place
        self._definition_before = self.session.definition_id

    def check_history(self) -> None:
        """Refuse what the agent replayed if it is too much.

        Raises:
            AcpError: `acpjs/agent-error`.
        """
        if self.session.replay is not None:
            self.session.replay.check()

    def undo(self) -> None:
        """Let the session be what it was, also if the agent has answered."""
        self.session.place = self._place_before
        self.session.agent_id = self.agent_before
        self.session.definition_id = self._definition_before

    def succeed(self) -> None:
        """Take the answer of the agent in."""
        self.is_answered = True
        self.session.place = self.place
        self.session.agent_id = self.agent.id
        self.session.definition_id = self.agent.definition.id

    @property
    def is_void(self) -> bool:
        return self.session.generation != self.generation


def check_can_open(session: HostSession, agent: AgentProcess) -> None:
    """Refuse to load or resume what is busy or somebody else's.

    Raises:
        AcpError: with the code that says why.
    """
    if session.status == "prompting":
        message = f"session {session.id} has a prompt in flight"
        raise AcpError(ERROR_CODES["prompt_in_flight"], message)
    if session.operation is not None:
        raise config_invalid(f"session {session.id} is busy: {session.operation}")
    is_ours = session.agent_id == agent.id
    if not is_ours and session.status not in ("disconnected", "closed"):
        raise config_invalid(f"session {session.id} belongs to another agent")
    is_of_same_kind = session.definition_id == agent.definition.id
    if not is_ours and session.agent_id is not None and not is_of_same_kind:
        raise config_invalid(f"session {session.id} belongs to another agent")


def ended_meanwhile(session: HostSession, agent: AgentProcess) -> AcpError:
    """Return what to raise for an opening that its agent has answered, but in vain."""
    if not agent.is_connected:
        return agent_exited(f"agent {agent.id} exited while session {session.id} was opened")
    return session_closed(f"session {session.id} was ended meanwhile")


def is_in_use(session: HostSession) -> bool:
    is_opening = session.operation in ("load", "resume")
    return is_opening or session.status in ("active", "prompting", "resuming")


def place_params(agent: AgentProcess, place: SessionFolders) -> dict[str, Any]:
    check_directories(agent, place)
    params: dict[str, Any] = {"cwd": place.cwd}
    if place.mcp_servers is not None:
        agent.secrets.add(secret_values(place.mcp_servers))
        params["mcpServers"] = list(place.mcp_servers)
    if agent.can("additionalDirectories"):
        params["additionalDirectories"] = list(place.additional_directories)
    return params


def check_directories(agent: AgentProcess, place: SessionFolders) -> None:
    if place.additional_directories and not agent.can("additionalDirectories"):
        raise unsupported(f"agent {agent.id} cannot use additional directories")


def read_object(value: bytes) -> dict[str, Any]:
    decoded = decode_json(value)
    return decoded if isinstance(decoded, dict) else {}

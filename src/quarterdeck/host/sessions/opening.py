"""A load or resume that is under way, and the checks before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, assert_never

from quarterdeck.errors import AcpError
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import agent_exited, config_invalid, session_closed, unsupported
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.secrets import secret_values
from quarterdeck.host.sessions.session import HostSession, SessionFolders
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import ERROR_CODES, SessionStatus
from quarterdeck.wire import Failure, Result


@dataclass(eq=False, kw_only=True)
class SessionOpening:
    """A load or resume that is under way."""

    operation: Literal["load", "resume"]
    agent: AgentProcess
    session: HostSession
    before: SessionStatus | None
    """The status to restore if it fails; None for a session that is not published yet."""
    agent_before: str | None
    folders: SessionFolders
    generation: int
    """The session's when it started; if they differ, the session has ended meanwhile."""
    is_answered: bool = False
    is_abandoned: bool = False

    def __post_init__(self) -> None:
        self._folders_before = self.session.folders
        self._definition_before = self.session.definition_id

    def check_history(self) -> None:
        """Refuse a replayed history that is too large.

        Raises:
            AcpError: `acpjs/agent-error`.
        """
        if self.session.replay is not None:
            self.session.replay.check()

    def undo(self) -> None:
        """Restore the session as it was, even if the agent has answered."""
        self.session.folders = self._folders_before
        self.session.agent_id = self.agent_before
        self.session.definition_id = self._definition_before

    def succeed(self) -> None:
        """Apply the folders and the agent, now that the agent has answered."""
        self.is_answered = True
        self.session.folders = self.folders
        self.session.agent_id = self.agent.id
        self.session.definition_id = self.agent.definition.id

    @property
    def is_void(self) -> bool:
        return self.session.generation != self.generation


def check_can_open(session: HostSession, agent: AgentProcess) -> None:
    """Refuse to load or resume a session that is busy or belongs to another agent.

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


def check_access(
    options: ResolvedHostOptions, agent: AgentProcess | None, folders: SessionFolders
) -> None:
    """Refuse folders that no session can use, or not one of this agent.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    hidden, check = options.hidden, options.check_workspace
    for folder in (folders.cwd, *folders.additional_directories):
        if hidden and hidden.contains(folder):
            raise config_invalid(
                f"{folder} is a folder of the hub itself, which no session can use;"
                " choose a project folder"
            )
    reason = None if check is None or agent is None else check(agent.definition, folders.cwd)
    if reason is not None:
        raise config_invalid(reason)


def ended_meanwhile(session: HostSession, agent: AgentProcess) -> AcpError:
    """Return what to raise for an opening whose session has ended although the agent answered."""
    if not agent.is_connected:
        return agent_exited(f"agent {agent.id} exited while session {session.id} was opened")
    return session_closed(f"session {session.id} was ended meanwhile")


def is_in_use(session: HostSession) -> bool:
    """Return whether an agent has a session open, or opens it again; `create` is not in use yet."""
    match session.status:
        case "active" | "prompting" | "resuming":
            return True
        case "creating" | "disconnected" | "closed" | "deleted":
            return session.operation in ("load", "resume")
        case _:
            assert_never(session.status)


def folder_params(agent: AgentProcess, folders: SessionFolders) -> dict[str, Any]:
    check_directories(agent, folders)
    params: dict[str, Any] = {"cwd": folders.cwd}
    if folders.mcp_servers is not None:
        agent.secrets.add(secret_values(folders.mcp_servers))
        params["mcpServers"] = list(folders.mcp_servers)
    if agent.can("additionalDirectories"):
        params["additionalDirectories"] = list(folders.additional_directories)
    return params


def check_directories(agent: AgentProcess, folders: SessionFolders) -> None:
    if folders.additional_directories and not agent.can("additionalDirectories"):
        raise unsupported(f"agent {agent.id} cannot use additional directories")


def read_object(value: bytes) -> dict[str, Any]:
    decoded = decode_json(value)
    return decoded if isinstance(decoded, dict) else {}


def report_empty(agent: AgentProcess, method: str, answer: Result | Failure) -> None:
    """Report an answer that has no object where the method returns one."""
    if isinstance(answer, Result) and not answer.value.lstrip().startswith(b"{"):
        message = f"agent {agent.id} answered {method} without a result"
        agent.report_dropped("agent/answer-empty", method, message, method=method)

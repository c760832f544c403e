"""All sessions of a host: finding them, checking what may be done, feeding them updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.errors import RpcError
from quarterdeck.host.agents import AgentProcess
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.repair import TOOL_CALL_TYPES
from quarterdeck.host.options import absolute_path, check_json, config_invalid
from quarterdeck.host.sessions.session import LIVE, HostSession, SessionFolders, session_closed
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.normalization import normalize_own_update
from quarterdeck.storage import Lifecycle
from quarterdeck.wire import INVALID_PARAMS

_PLAIN = frozenset({"agent-message-chunk", "agent-thought-chunk"})  # nothing to do but to log it


class SessionRegistry:
    """The sessions of a host, those in staging, and the tombstones of those that ended."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self.known: dict[str, HostSession] = {}
        self.staged: dict[str, HostSession] = {}
        self.tombstones: dict[str, Lifecycle] = {}

    def live(self, session_id: str) -> HostSession:
        """Return a session that can be worked with.

        Raises:
            AcpError: `acpjs/session-closed` if it is closed, deleted or was never here.
        """
        session = self.known.get(session_id)
        if session is None or not session.is_live:
            raise session_closed(f"session {session_id} is closed or unknown")
        return session

    def has(self, session_id: str) -> bool:
        """Tell whether a session is known or on its way to be: then it has its one stream."""
        return session_id in self.known or session_id in self.staged

    def publish(self, session: HostSession) -> None:
        """Let a session be seen that was staged, or is new."""
        self.staged.pop(session.id, None)
        self.known[session.id] = session

    def of_agent(self, agent_id: str) -> list[HostSession]:
        everybody = (*self.known.values(), *self.staged.values())
        return [session for session in everybody if session.agent_id == agent_id]

    def asked_for(self, agent_id: str, session_id: Any) -> HostSession:
        """Return the session that a request of an agent is about.

        Raises:
            RpcError: if the agent has no business with it now.
        """
        session = self.known.get(session_id) if isinstance(session_id, str) else None
        if session is None or session.agent_id != agent_id or not session.is_live:
            message = "Invalid params: unknown or closed session"
            raise RpcError(INVALID_PARAMS, message, {"sessionId": session_id})
        if session.operation is not None:
            message = "Invalid params: session lifecycle operation in progress"
            facts = {"sessionId": session_id, "operation": session.operation}
            raise RpcError(INVALID_PARAMS, message, facts)
        return session

    # ---- updates -------------------------------------------------------------------------

    def on_update(self, agent: AgentProcess, session_id: str, update: dict[str, Any]) -> None:
        """Take an update in; called in the read loop, so what it does is in order."""
        session = self.known.get(session_id) or self.staged.get(session_id)
        if session is None:
            self._keep_early(agent, session_id, update)
        elif session.agent_id != agent.id:
            self._complain(
                agent,
                session_id,
                "error",
                "session/update-cross-agent",
                "agent sent update for a session it does not own",
            )
        elif session.operation is None and not agent.abandoned:  # as nearly always
            if session.status in LIVE:
                normalized = normalize_own_update(update)
                if normalized.type in _PLAIN:
                    self._emitter.update(session, normalized)
                else:
                    self._take(session, normalized)
        else:
            self._take_meanwhile(agent, session, normalize_own_update(update))

    def _keep_early(self, agent: AgentProcess, session_id: str, update: dict[str, Any]) -> None:
        """Keep what an agent says of a session before it has answered `session/new`."""
        if not agent.expects_session or session_id in self.tombstones:
            return
        if not agent.early.keep(session_id, update):
            self._complain(
                agent,
                session_id,
                "error",
                "session/early-update-dropped",
                "agent says too much of sessions that it has not told us of yet",
            )

    def _take(self, session: HostSession, normalized: Normalized) -> None:
        if normalized.type != "user-message-chunk" or not self._is_echo(session, normalized):
            self.record(session, normalized)

    def _take_meanwhile(
        self, agent: AgentProcess, session: HostSession, normalized: Normalized
    ) -> None:
        """Take an update while something else is, or was, under way."""
        if session.operation is None:
            if session.is_live and not _is_stray(agent, session):
                self._take(session, normalized)
        elif session.operation in ("create", "load") and session.replay is not None:
            session.replay.add(normalized)
        elif session.operation == "resume":
            self._complain(
                agent,
                session.id,
                "error",
                "session/resume-replayed-history",
                "agent replayed history while resuming; it was dropped",
            )
        elif session.operation in ("close", "delete"):
            self._complain(
                agent,
                session.id,
                "warn",
                "session/update-during-terminal-lifecycle",
                "agent sent update while the session was being ended",
            )
        elif session.is_live:
            self._take(session, normalized)

    def record(self, session: HostSession, normalized: Normalized) -> None:
        """Put what an agent said into the log, with what has to be added to it."""
        if normalized.type in TOOL_CALL_TYPES:
            for event in session.tool_calls.repaired(normalized):
                self._emitter.update(session, event)
            self._check_approved(session, normalized.payload)
            return
        self._emitter.update(session, normalized)
        if normalized.type == "session-info-update":
            session.take_info(normalized.payload)
            self._emitter.session_updated(session)
            self._emitter.journal.add_record(session.meta())

    def _check_approved(self, session: HostSession, payload: dict[str, Any]) -> None:
        """Report a call that is not the one that was allowed."""
        found = session.approved_calls.mismatch(payload)
        if found is not None:
            names = ", ".join(found.different)
            self._emitter.diagnostic(
                "warn",
                "approval-mismatch",
                f"call {found.tool_call_id} was allowed as it was shown; the agent now reports"
                f" another {names}",
                session_id=session.id,
                data={
                    "requestId": found.request_id,
                    "toolCallId": found.tool_call_id,
                    "different": found.different,
                },
            )

    def record_history(self, session: HostSession, said: Sequence[Normalized]) -> None:
        """Put what an agent said while a session was being opened into its log."""
        for normalized in said:
            for event in session.tool_calls.repaired(normalized):
                self._emitter.update(session, event)
            if normalized.type == "session-info-update":
                session.take_info(normalized.payload)

    def _is_echo(self, session: HostSession, normalized: Normalized) -> bool:
        """Tell whether an agent repeats the prompt that we have recorded ourselves."""
        if not session.echoes or normalized.payload.get("content") != session.echoes[0]:
            return False
        session.echoes.popleft()
        return True

    def _complain(
        self, agent: AgentProcess, session_id: str, level: Any, code: str, message: str
    ) -> None:
        self._emitter.diagnostic(level, code, message, agent_id=agent.id, session_id=session_id)


def _is_stray(agent: AgentProcess, session: HostSession) -> bool:
    """Tell whether an update belongs to a load or resume that was given up, not to the session."""
    return session.id in agent.abandoned and session.status != "prompting"


def check_place(
    cwd: Any, mcp_servers: Any, additional_directories: Any, *, needs_servers: bool
) -> SessionFolders:
    """Check where a session is to work.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    if not isinstance(cwd, str) or not cwd:
        raise config_invalid("cwd must be a non-empty string")
    if mcp_servers is None and needs_servers:
        raise config_invalid("mcpServers must be a list")
    if mcp_servers is not None and not _is_list(mcp_servers, Mapping):
        raise config_invalid("mcpServers must be a list")
    check_json(mcp_servers, "mcpServers")
    if not _is_list(additional_directories, str):
        raise config_invalid("additionalDirectories must be a list of strings")
    if any("\0" in path for path in (cwd, *additional_directories)):
        raise config_invalid("cwd and additionalDirectories cannot hold a null character")
    return SessionFolders(
        cwd=absolute_path(cwd),
        mcp_servers=None if mcp_servers is None else tuple(dict(each) for each in mcp_servers),
        additional_directories=tuple(absolute_path(each) for each in additional_directories),
    ).resolved()


def _is_list(value: Any, of: type) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(each, of) for each in value)
    )

"""All sessions of a host: finds them, and records what their agents send.

The statuses of a session, and what changes them:

    from                     to            by
    (new)                    creating      `SessionLifecycle`: waits for the agent, not published
    creating                 active        `create`, `load` and `resume`: the agent's answer
    active                   prompting     `Turns.prompt`
    prompting                active        the end of the turn (`prompt-finished`)
    active, disconnected     resuming      `load` and `resume` begin
    resuming                 active        they succeed (`resumed: true`)
    resuming                 (as before)   they fail
    closed                   active        `load` succeeds; until then it stays closed
    active, prompting,       disconnected  `SessionTeardown.disconnect`: the agent has ended
      resuming
    (in storage)             disconnected  `SessionRecovery`: a session of an earlier host
    any live one             closed        `SessionTeardown.close`
    any                      deleted       `SessionTeardown.delete`; final
    prompting, resuming      active,       `SessionTeardown`, if an end could not be stored
                             disconnected

`Emitter.set_status` publishes every change. `HostSession.operation` says what is under way (create,
load, resume, close, delete); agents' requests are refused meanwhile.

`known` has all published sessions but deleted ones; `staged` has those that are being opened and
are not published yet. `tombstones` has the ids of sessions that were closed or deleted, also by an
earlier host: they cannot be created or resumed again.

Updates are handled in the read loop, in wire order. Almost all are recorded as they are; the rest
of `on_update` is for updates that arrive before, during or after an operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.errors import RpcError
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import check_json, config_invalid, session_closed
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.repair import TOOL_CALL_TYPES
from quarterdeck.host.options import absolute_path
from quarterdeck.host.requests.mismatches import report_mismatch
from quarterdeck.host.sessions.session import LIVE, HostSession, SessionFolders
from quarterdeck.host.sessions.settings import SETTING_TYPES
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.normalization import normalize_in_place
from quarterdeck.storage import Lifecycle
from quarterdeck.wire import INVALID_PARAMS

_PLAIN = frozenset({"agent-message-chunk", "agent-thought-chunk"})  # recorded without a second look
_HISTORY = _PLAIN | TOOL_CALL_TYPES | {"user-message-chunk", "plan"}
_UNRECOGNIZED_HISTORY = frozenset(
    {
        *("user_message", "agent_message", "agent_thought", "session_message"),
        *("session_message_chunk", "tool_call_content_chunk", "compaction_update"),
        *("compaction_summary_chunk", "plan_update", "plan_removed", "subagent_update"),
        *("terminal_update", "terminal_output_chunk"),
    }
)
"""Updates that belong to a conversation and have no event type of their own."""


class SessionRegistry:
    """The sessions of a host: known, staged, and tombstones of those that ended."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self.known: dict[str, HostSession] = {}
        self.staged: dict[str, HostSession] = {}
        self.tombstones: dict[str, Lifecycle] = {}

    def current_settings(self, session_id: str) -> tuple[str | None, str | None]:
        """Return the current model and mode of a session; None for what is unknown."""
        session = self.known.get(session_id)
        return (None, None) if session is None else session.settings.current()

    def live(self, session_id: str) -> HostSession:
        """Return a session that is neither closed nor deleted.

        Raises:
            AcpError: `acpjs/session-closed` if it is closed, deleted or unknown.
        """
        session = self.known.get(session_id)
        if session is None or not session.is_live:
            raise session_closed(f"session {session_id} is closed or unknown")
        return session

    def find(self, session_id: str) -> HostSession | None:
        """Return a session that is known or staged."""
        return self.known.get(session_id) or self.staged.get(session_id)

    def has(self, session_id: str) -> bool:
        """Return whether a session is known or staged: then it has its one stream."""
        return session_id in self.known or session_id in self.staged

    def publish(self, session: HostSession) -> None:
        """Make a staged or new session visible."""
        self.staged.pop(session.id, None)
        self.known[session.id] = session

    def of_agent(self, agent_id: str) -> list[HostSession]:
        sessions = (*self.known.values(), *self.staged.values())
        return [session for session in sessions if session.agent_id == agent_id]

    def find_for_request(self, agent_id: str, session_id: Any) -> HostSession:
        """Return the session that a request of an agent names.

        Raises:
            RpcError: if it is not a live session of that agent, or an operation is under way.
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
        """Handle an update; called in the read loop, in wire order."""
        session = self.known.get(session_id) or self.staged.get(session_id)
        if session is None:
            self.buffer_early(agent, session_id, update)
        elif session.agent_id != agent.id:
            self.report_foreign(agent, session_id)
        elif session.operation is None and not agent.abandoned:  # almost always
            if session.status in LIVE:
                normalized = normalize_in_place(update)
                if normalized.type in _PLAIN:
                    self._emitter.enqueue(session, normalized)
                else:
                    self._record_unless_echo(session, normalized)
            else:
                _report_dropped(agent, session_id, f"which is {session.status}")
        else:
            self._on_update_meanwhile(agent, session, normalize_in_place(update))

    def report_foreign(self, agent: AgentProcess, session_id: str) -> None:
        """Report an update for a session of another agent."""
        message = "agent sent update for a session it does not own"
        self._report(agent, session_id, "error", "session/update-cross-agent", message)

    def buffer_early(self, agent: AgentProcess, session_id: str, update: dict[str, Any]) -> None:
        """Keep an update of a session whose `session/new` is not answered yet."""
        if not agent.is_creating_session or session_id in self.tombstones:
            ended = self.tombstones.get(session_id)
            which = "which is not known here" if ended is None else f"which is {ended}"
            _report_dropped(agent, session_id, which)
            return
        if not agent.early_updates.add(session_id, update):
            self._report(
                agent,
                session_id,
                "error",
                "session/early-update-dropped",
                "agent sent too many updates for sessions it has not created yet",
            )

    def _record_unless_echo(self, session: HostSession, normalized: Normalized) -> None:
        if normalized.type != "user-message-chunk" or not self._is_echo(session, normalized):
            self.record(session, normalized)

    def _on_update_meanwhile(
        self, agent: AgentProcess, session: HostSession, normalized: Normalized
    ) -> None:
        """Handle an update while an operation is under way, or after one was abandoned."""
        if session.operation is None:
            if session.is_live and not _is_stray(agent, session):
                self._record_unless_echo(session, normalized)
            else:
                _report_dropped(agent, session.id, "whose opening was given up")
        elif session.operation in ("create", "load") and session.replay is not None:
            session.replay.add(normalized)
        elif (
            session.operation == "resume"
            and session.replay is not None
            and not is_history(normalized)
        ):
            session.replay.add(normalized)  # what holds now; it is recorded with the answer
        elif session.operation == "resume":
            self._report(
                agent,
                session.id,
                "error",
                "session/resume-replayed-history",
                "agent replayed history while resuming; it was dropped",
            )
        elif session.operation in ("close", "delete"):
            self._report(
                agent,
                session.id,
                "warn",
                "session/update-during-terminal-lifecycle",
                "agent sent update while the session was being ended",
            )
        elif session.is_live:
            self._record_unless_echo(session, normalized)

    def record(self, session: HostSession, normalized: Normalized) -> None:
        """Queue an update for the log, with the events that repair it."""
        if normalized.type in TOOL_CALL_TYPES:
            self._record_call(session, normalized)
            self.check_approved(session, normalized.payload)
            return
        if normalized.type in SETTING_TYPES:
            for event in session.settings.repaired(normalized):
                self._emitter.enqueue(session, event)
            return
        self._emitter.enqueue(session, normalized)
        if normalized.type == "session-info-update":
            session.apply_info(normalized.payload)
            self._emitter.session_updated(session)
            self._emitter.journal.write_record(session.meta())

    def _record_call(self, session: HostSession, normalized: Normalized) -> None:
        calls, enqueue = session.tool_calls, self._emitter.enqueue
        size = max([enqueue(session, event) for event in calls.repaired(normalized)])
        calls.measure(normalized.payload.get("toolCallId"), size)

    def check_approved(self, session: HostSession, payload: dict[str, Any]) -> None:
        """Report a call that is not what was shown when it was allowed."""
        report_mismatch(self._emitter, session, session.approved_calls.mismatch(payload))

    def record_history(self, session: HostSession, updates: Sequence[Normalized]) -> None:
        """Queue the updates that an agent sent while its session was being opened."""
        for normalized in updates:
            if normalized.type in SETTING_TYPES:
                for event in session.settings.repaired(normalized):
                    self._emitter.enqueue(session, event)
            else:
                self._record_call(session, normalized)
            if normalized.type == "session-info-update":
                session.apply_info(normalized.payload)

    def _is_echo(self, session: HostSession, normalized: Normalized) -> bool:
        """Return whether an agent repeats a block of the prompt, which is recorded already."""
        if not session.echoes or normalized.payload.get("content") != session.echoes[0]:
            return False
        session.echoes.popleft()
        return True

    def _report(
        self, agent: AgentProcess, session_id: str, level: Any, code: str, message: str
    ) -> None:
        self._emitter.diagnostic(level, code, message, agent_id=agent.id, session_id=session_id)


def _report_dropped(agent: AgentProcess, session_id: str, which: str) -> None:
    message = f"agent {agent.id} sent an update for session {session_id}, {which}; it was dropped"
    agent.report_dropped("session/update-dropped", session_id, message, sessionId=session_id)


def is_history(normalized: Normalized) -> bool:
    """Return whether an update is a part of a conversation, and not of what holds now."""
    if normalized.type == "unrecognized-update":
        return normalized.payload.get("sessionUpdate") in _UNRECOGNIZED_HISTORY
    return normalized.type in _HISTORY


def _is_stray(agent: AgentProcess, session: HostSession) -> bool:
    """Return whether an update belongs to an abandoned load or resume, not to the session."""
    return session.id in agent.abandoned and session.status != "prompting"


def check_folders(
    cwd: Any, mcp_servers: Any, additional_directories: Any, *, needs_servers: bool
) -> SessionFolders:
    """Check the folders and MCP servers of a session.

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

"""All sessions of a host, by their ids; `updates` records what their agents send.

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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.errors import RpcError
from quarterdeck.host.checks import check_json, config_invalid, session_closed, stop_sentence
from quarterdeck.host.options import absolute_path
from quarterdeck.host.sessions.session import HostSession, SessionFolders
from quarterdeck.storage import Lifecycle
from quarterdeck.wire import INVALID_PARAMS


class SessionRegistry:
    """The sessions of a host: known, staged, and tombstones of those that ended."""

    def __init__(self) -> None:
        self.known: dict[str, HostSession] = {}
        self.staged: dict[str, HostSession] = {}
        self.tombstones: dict[str, Lifecycle] = {}
        self.stopped: dict[str, str] = {}
        """Why logs get no more events, by session; each is closed for good."""

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
            self.check_continues(session_id)
            raise session_closed(f"session {session_id} is closed or unknown")
        return session

    def check_continues(self, session_id: str) -> None:
        """Refuse a session whose log gets no more events.

        Raises:
            AcpError: `acpjs/session-closed`, with the reason.
        """
        reason = self.stopped.get(session_id)
        if reason is not None:
            raise session_closed(stop_sentence(session_id, reason))

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

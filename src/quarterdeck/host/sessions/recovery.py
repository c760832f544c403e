"""Restores the sessions of an earlier host, and resumes those of a restarted agent.

Restoring reads the records of sessions, not their events: ten thousand sessions take a fraction of
a second. What a crash left open in a log (a pending request that can no longer be answered, a
status that is out of date) is closed when that log is first read
(`SessionRecovery.close_leftovers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never

from quarterdeck.errors import AcpError, QuarterdeckError
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import check_text
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.stream import FIRST_LIMIT, decode_stored, next_limit
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.requests.elicitations import record_elicitation
from quarterdeck.host.sessions.lifecycle import SessionLifecycle
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession, SessionFolders
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
    ApprovalMismatchEvent,
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    ForegroundEvent,
    HostEvent,
    MessageUpdateEvent,
    Normalized,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PlanRemovedEvent,
    PlanUpdateEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    UsageUpdateEvent,
    UserMessageChunkEvent,
    any_event,
)
from quarterdeck.storage import SessionMeta

_CHUNKS: Final = tuple(
    f'{{"type":"{name}",'.encode()
    for name in ("agent-message-chunk", "agent-thought-chunk", "user-message-chunk")
)
"""The first bytes of most events of a log, which have nothing to do with open requests."""
_Pending = dict[Any, dict[str, Any] | None]
"""Open requests by id: None for a permission request, the last payload for an elicitation."""


class StoredSessions:
    """The sessions in storage; finds and supersedes the requests that a log leaves open."""

    def __init__(self, options: ResolvedHostOptions, emitter: Emitter) -> None:
        self._storage = options.storage
        # A host without a hook writes the events of acpjs, without extensions.
        self._names_restart = options.on_permission is not None
        self._find_decision = options.find_decision
        self._emitter = emitter
        self.metas: dict[str, SessionMeta] = {}
        """The record of every session that storage had when the host started."""

    async def read_metas(self) -> list[SessionMeta]:
        """Fill `metas`, when the host starts."""
        found = await self.all()
        self.metas = {meta.session_id: meta for meta in found}
        return found

    async def all(self) -> list[SessionMeta]:
        """Return the records that storage has now."""
        return await self._storage.sessions()

    async def read(self, session: HostSession) -> Callable[[], None]:
        """Return a function that supersedes the open requests of a session's log.

        The caller runs it when the session starts: if that fails, the numbers of these events
        must not have been used.
        """
        pending, _ = await self.left_open(session)
        return lambda: self.supersede(session, pending)

    async def left_open(self, session: HostSession) -> tuple[_Pending, str | None]:
        """Read a log; return the requests that are open in it, and its last status."""
        pending: _Pending = {}
        status: str | None = None
        after, limit = 0, FIRST_LIMIT
        while page := await self._storage.read(session.id, after, limit):
            limit = next_limit(page)
            after += len(page)  # more, if some were deleted: then the last event has the number
            relevant = [data for data in page[:-1] if not data.startswith(_CHUNKS)]
            relevant.append(page[-1])
            # Events that cannot be read are left out; the sizes of the others are not exact then.
            for data, event in zip(relevant, decode_stored(relevant), strict=False):
                after = max(after, event.seq)
                status = _fold(session, event, pending, status, len(data))
        return pending, status

    def supersede(self, session: HostSession, pending: _Pending) -> None:
        """Record in a session's log that its open requests are superseded."""
        restart = {"quarterdeck": {"decidedBy": {"kind": "restart"}}}
        extensions = restart if self._names_restart else None
        for request_id, elicitation in pending.items():
            if elicitation is None:
                payload = {"requestId": request_id, "status": "superseded"}
                decided = self._decided(session.id, request_id)
                self._emitter.session_event(
                    session,
                    "permission-request-resolved",
                    *(decided or (payload, extensions)),
                )
            else:
                record_elicitation(self._emitter, session, {**elicitation, "status": "superseded"})

    def _decided(
        self, session_id: str, request_id: Any
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return payload and extensions of a decision that could not be stored at its time."""
        if self._find_decision is None or not isinstance(request_id, str):
            return None
        decision = self._find_decision(session_id, request_id)
        if decision is None:
            return None
        outcome, by = decision
        payload = {"requestId": request_id, "status": "answered", "outcome": dict(outcome)}
        return payload, {"quarterdeck": {"decidedBy": dict(by)}}


class SessionRecovery:
    """Restores stored sessions, and resumes sessions of restarted agents."""

    def __init__(
        self,
        stored: StoredSessions,
        emitter: Emitter,
        sessions: SessionRegistry,
        lifecycle: SessionLifecycle,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._lifecycle = lifecycle
        self.stored = stored
        self._unread: set[str] = set()

    async def read_index(self) -> int:
        """Read the records of all stored sessions; add tombstones for those that have ended.

        Returns the number of events that were ever stored.
        """
        stored = 0
        for meta in await self.stored.read_metas():
            stored += meta.last_seq
            if meta.lifecycle != "open":
                self._sessions.tombstones[meta.session_id] = meta.lifecycle
            if meta.stopped is not None:
                self._sessions.stopped[meta.session_id] = meta.stopped
        return stored

    async def restore(self) -> list[HostSession]:
        """Restore the sessions that storage has and the host does not; return them."""
        restored = [
            self._restored(meta)
            for meta in await self.stored.all()
            if meta.lifecycle == "open" and not self._sessions.has(meta.session_id)
        ]
        await self._emitter.journal.wait_stored()
        return restored

    def restore_session(self, session_id: str) -> None:
        """Restore one session if storage has it and the host does not."""
        meta = self.stored.metas.get(check_text(session_id, "the session's id"))
        is_ended = session_id in self._sessions.tombstones
        if meta is not None and not is_ended and not self._sessions.has(session_id):
            self._restored(meta)

    def _restored(self, meta: SessionMeta) -> HostSession:
        session = self.unpublished(meta)
        self._sessions.known[session.id] = session
        self._unread.add(session.id)
        self._emitter.session_updated(session)
        return session

    def unpublished(self, meta: SessionMeta) -> HostSession:
        """Return a stored session that the host does not list."""
        stream = self._emitter.new_stream(meta.session_id, last_seq=meta.last_seq)
        folders = SessionFolders(
            cwd=meta.cwd,
            mcp_servers=meta.mcp_servers,
            additional_directories=meta.additional_directories,
        )
        return HostSession(
            meta.session_id,
            stream,
            folders,
            definition_id=meta.agent_definition_id,
            status="disconnected",
            title=meta.title,
            updated_at=meta.updated_at,
            parent_id=meta.parent_session_id,
            forked_from=meta.forked_from,
            can_cancel=meta.parent_session_id is None,
            stopped=meta.stopped,
        )

    def may_have_leftovers(self, session: HostSession) -> bool:
        return session.id in self._unread

    def expect_leftovers(self, session: HostSession) -> None:
        """Look for leftovers again, because the log has other events now."""
        session.reset()
        self._unread.add(session.id)

    async def close_leftovers(self, session: HostSession) -> None:
        """Close what a crash left open in the log of a restored session; once."""
        if session.id in self._unread:
            await self._emitter.hold.passed()
            await self.close_leftovers_now(session)

    async def close_leftovers_now(self, session: HostSession) -> None:
        """Close them even while numbering is held back: the log is complete."""
        if session.id not in self._unread:
            return
        pending, status = await self.stored.left_open(session)
        if session.id not in self._unread:
            return  # another reader closed them meanwhile
        self._unread.discard(session.id)
        self.stored.supersede(session, pending)
        self._emitter.close_tool_calls(session, "restart")
        if status != "disconnected" and session.status == "disconnected":
            payload = {"status": "disconnected"}
            self._emitter.session_event(session, "session-status-change", payload)
        await self._emitter.journal.wait_stored()

    async def recover(self, agent: AgentProcess) -> None:
        """Resume the sessions that an agent had before it was restarted."""
        for session in self._sessions.of_agent(agent.id):
            if session.status != "disconnected" or not session.stream.last_seq:
                continue
            if session.parent_id is not None:
                continue  # a sub-agent is opened by its parent
            if not agent.can("resume"):
                self._skip(agent, session, "agent does not support session/resume")
                continue
            try:
                await self._lifecycle.resume(agent, session.id, session.folders)
            except (AcpError, QuarterdeckError):
                continue  # reported as a diagnostic already

    def _skip(self, agent: AgentProcess, session: HostSession, reason: str) -> None:
        self._emitter.diagnostic(
            "info",
            "session/recovery-skipped",
            reason,
            agent_id=agent.id,
            session_id=session.id,
        )


def _fold(
    session: HostSession, event: Event, pending: _Pending, status: str | None, size: int
) -> str | None:
    """Apply one stored event of so many bytes; return the last status so far."""
    known = any_event(event)
    match known:
        case PermissionRequestCreatedEvent():
            pending[event.payload.get("requestId")] = None
        case PermissionRequestResolvedEvent():
            pending.pop(event.payload.get("requestId"), None)
        case SessionStatusChangeEvent():
            session.tool_calls.learn(Normalized(event.type, event.payload))
            return str(event.payload.get("status"))
        case SessionResetEvent():
            session.tool_calls.forget()
            session.settings.forget()
            pending.clear()
        case (
            ToolCallEvent()
            | ToolCallUpdateEvent()
            | ToolCallContentChunkEvent()
            | PromptFinishedEvent()
        ):
            session.tool_calls.learn(Normalized(event.type, event.payload), size)
        case UnrecognizedUpdateEvent():
            if "quarterdeck" in (event.extensions or {}):  # an agent may send any update
                _fold_elicitation(event.payload, pending)
        case CurrentModeUpdateEvent() | SessionConfigInitEvent() | ConfigOptionsUpdateEvent():
            session.settings.learn(event.type, event.payload)
        case SessionEvent() | HostEvent() | UnknownEvent():
            _leave(known)
        case _:
            assert_never(known)
    return status


def _leave(
    _event: UserMessageChunkEvent
    | AgentMessageChunkEvent
    | AgentThoughtChunkEvent
    | PlanEvent
    | AvailableCommandsUpdateEvent
    | SessionInfoUpdateEvent
    | UsageUpdateEvent
    | ApprovalMismatchEvent
    | TerminalOutputEvent
    | TerminalUpdateEvent
    | MessageUpdateEvent
    | ForegroundEvent
    | PlanUpdateEvent
    | PlanRemovedEvent
    | HostEvent
    | UnknownEvent,
) -> None:
    """Do nothing: such an event leaves nothing open."""


def _fold_elicitation(payload: dict[str, Any], pending: _Pending) -> None:
    if payload.get("sessionUpdate") != ELICITATION_UPDATED:
        return
    if payload.get("status") == "pending":
        pending[payload.get("requestId")] = payload
    else:
        pending.pop(payload.get("requestId"), None)

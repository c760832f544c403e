"""Sessions that another program runs, recorded in the log as every other session.

A foreign session has a log, a title and a status like any other, but no agent of this host: it is
`disconnected` all the time. Its events have the times at which they happened, and say where they
come from (`extensions.quarterdeck.source`: the adapter's name, and the cursor after the update). It
has the id that its program gives it, so when that program has ended, the session is continued by
`resume` or `load` with the program's ACP agent. While an agent of this host has it open, nothing is
recorded here: the same updates come through ACP.

A permission request of its program is one of the host's: the hook decides first, it is pending
until it is answered or withdrawn, and both are in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.host.checks import check_session_id, session_closed
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import LARGE_BYTES, TOOL_CALL_TYPES
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.requests.permission_request import PermissionRequest
from quarterdeck.host.sessions.recovery import SessionRecovery
from quarterdeck.host.sessions.registry import SessionRegistry, check_folders
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import Normalized, ToolCallFacts
from quarterdeck.views.context import ForeignSession, ForeignUpdate


def source_of(adapter: str, cursor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `extensions.quarterdeck` of an event of a foreign session."""
    return {"source": {"adapter": adapter, "cursor": cursor}}


class ForeignSessions:
    """Opens foreign sessions, records their updates, and takes their permission requests."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        recovery: SessionRecovery,
        requests: AllRequests,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recovery = recovery
        self._requests = requests

    async def open(self, adapter: str, found: ForeignSession) -> int:
        """Make a session known, unless it is; return the number of its last event.

        Raises:
            AcpError: `acpjs/session-closed` if it was closed or deleted here,
                `acpjs/config-invalid` if its id or folder cannot be used.
            StorageFailed: if it could not be stored.
        """
        await self._emitter.hold.passed()
        check_session_id(found.id)
        ended = self._sessions.tombstones.get(found.id)
        if ended is not None:
            raise session_closed(f"session {found.id} was {ended} here; it is not imported again")
        self._recovery.restore_session(found.id)
        session = self._sessions.find(found.id)
        if session is None:
            session = self._new(adapter, found)
            await self._emitter.journal.wait_stored()
        else:
            await self._recovery.close_leftovers(session)
        return session.stream.last_seq

    def _new(self, adapter: str, found: ForeignSession) -> HostSession:
        session = HostSession(
            found.id,
            self._emitter.new_stream(found.id),
            check_folders(found.cwd or "/", None, (), needs_servers=False),
            definition_id=adapter,
            status="disconnected",
            parent_id=found.parent_id,
            can_cancel=found.parent_id is None,
        )
        if found.title:
            session.title = found.title
        self._sessions.publish(session)
        ours = source_of(adapter, {})
        if found.parent_call_id is not None:
            ours["source"]["parentCallId"] = found.parent_call_id
        status = Normalized("session-status-change", {"status": "disconnected"})
        with self._emitter.journal.batch():
            at = found.changed_at or None
            extended = Normalized(status.type, status.payload, {"quarterdeck": ours})
            self._emitter.enqueue(session, extended, at)
            self._emitter.session_updated(session)
            self._emitter.journal.write_record(session.meta())
        return session

    def is_ours(self, session_id: str) -> bool:
        """Return whether an agent of this host has a session open, or opens it."""
        session = self._sessions.find(session_id)
        return session is not None and (
            session.agent_id is not None and session.status != "disconnected"
        )

    def can_record(self, session_id: str) -> bool:
        """Return whether updates of a session are to be recorded here now."""
        session = self._sessions.known.get(session_id)
        return (
            session is not None
            and session.status == "disconnected"
            and session.operation is None
            and session.stopped is None
        )

    def last_number(self, session_id: str) -> int:
        """Return the last number given to an event of a session, stored or not; 0 if unknown."""
        session = self._sessions.known.get(session_id)
        return 0 if session is None else session.stream.last_seq

    async def room(self) -> None:
        """Wait while too much waits to be stored."""
        wait = self._emitter.journal.back_pressure()
        if wait is not None:
            await wait.wait()

    def record(self, adapter: str, session_id: str, updates: Sequence[ForeignUpdate]) -> None:
        """Queue updates as one batch; `Host.wait_stored` returns when they are stored.

        Raises:
            AcpError: `acpjs/session-closed` if the session is not one to record.
        """
        session = self._sessions.known.get(session_id)
        if session is None or not self.can_record(session_id):
            raise session_closed(f"session {session_id} is not open for updates from elsewhere")
        with self._emitter.journal.batch():
            for each in updates:
                ours = source_of(adapter, each.cursor)
                extensions = dict(each.update.extensions or ())
                extensions["quarterdeck"] = {**extensions.get("quarterdeck", {}), **ours}
                update = Normalized(each.update.type, each.update.payload, extensions)
                self._record(session, update, each.at)

    def _record(self, session: HostSession, update: Normalized, at: int) -> None:
        enqueue = self._emitter.enqueue
        if update.type in TOOL_CALL_TYPES:
            largest = max(enqueue(session, each, at) for each in session.repaired(update))
            if largest >= LARGE_BYTES:
                session.tool_calls.measure(update.payload.get("toolCallId"), largest)
            return
        if update.type == "prompt-finished":
            for closing in session.tool_calls.close_open(str(update.payload.get("stopReason"))):
                enqueue(session, closing, at)
            session.tool_calls.next_turn()
        enqueue(session, update, at)
        if update.type == "session-info-update" and update.payload:
            session.apply_info(update.payload)
            self._emitter.session_updated(session)
            self._emitter.journal.write_record(session.meta())

    def reset(self, adapter: str, session_id: str) -> None:
        """Start a session over: what was read before is not there any more."""
        session = self._sessions.known.get(session_id)
        if session is None or not self.can_record(session_id):
            raise session_closed(f"session {session_id} is not open for updates from elsewhere")
        self._requests.supersede(lambda request: request.session is session)
        ours = {"quarterdeck": source_of(adapter, {})}
        self._emitter.session_event(session, "session-reset", {"reason": "load"}, ours)
        session.reset()

    # ---- permission requests -------------------------------------------------------------

    def open_calls(self, session_id: str) -> tuple[ToolCallFacts, ...]:
        """Return the tool calls of a session that have not ended."""
        session = self._sessions.known.get(session_id)
        return () if session is None else session.tool_calls.open_calls()

    def request_permission(self, session_id: str, params: dict[str, Any]) -> PermissionRequest:
        """Open a permission request of a foreign program: rules decide it, or it is pending.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
        """
        session = self._sessions.live(session_id)
        return self._requests.permissions.open(session, params)

    def withdraw(self, request_id: str) -> None:
        """Withdraw a pending request: its program does not wait for it any more."""
        self._requests.supersede(lambda request: request.id == request_id)

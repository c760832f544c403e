"""What agents send about their sessions (`session/update`), recorded in the log.

Updates are handled in the read loop, in wire order. Almost all are recorded as they are; the rest
of `on_update` is for updates that arrive before, during or after an operation:

    the session                       the update is
    not known, `session/new` pending  buffered until the answer names the session
    not known, or ended               dropped and reported
    of another agent                  dropped and reported
    no operation                      normalized, repaired, queued for the log
                                      (a block of the prompt that the agent repeats is left out:
                                      the prompt is in the log already)
    create, load                      collected; recorded with the agent's answer
    resume                            collected if it is about what holds now; history is dropped
    close, delete                     dropped and reported

Agents with ACP 2 have rules of their own (`host/acp2/updates`), and record through this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import LARGE_BYTES, TOOL_CALL_TYPES
from quarterdeck.host.requests.mismatches import report_mismatch
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import LIVE, HostSession
from quarterdeck.host.sessions.settings import SETTING_TYPES
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.normalization import normalize_in_place

_SPEECH = frozenset({"agent-message-chunk", "agent-thought-chunk"})
_PLAIN = _SPEECH | {"plan", "usage-update", "available-commands-update"}
"""Types that are recorded without a second look."""
_HISTORY = _SPEECH | TOOL_CALL_TYPES | {"user-message-chunk", "plan"}
_UNRECOGNIZED_HISTORY = frozenset(
    {
        *("user_message", "agent_message", "agent_thought", "session_message"),
        *("session_message_chunk", "tool_call_content_chunk", "compaction_update"),
        *("compaction_summary_chunk", "plan_update", "plan_removed", "subagent_update"),
        *("terminal_update", "terminal_output_chunk"),
    }
)
"""Updates that belong to a conversation and that ACP 1 has no event type for."""


class UpdateRecorder:
    """Records what agents send about their sessions; it has no state of its own."""

    def __init__(self, emitter: Emitter, sessions: SessionRegistry) -> None:
        self._emitter = emitter
        # The dictionaries themselves: every update looks its session up.
        self._known, self._staged = sessions.known, sessions.staged
        self._tombstones = sessions.tombstones

    def on_update(self, agent: AgentProcess, session_id: str, update: dict[str, Any]) -> None:
        """Handle an update; called in the read loop, in wire order."""
        session = self._known.get(session_id) or self._staged.get(session_id)
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
        if not agent.is_creating_session or session_id in self._tombstones:
            ended = self._tombstones.get(session_id)
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
            if session.approved_calls:
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
        calls, enqueue, largest = session.tool_calls, self._emitter.enqueue, 0
        for event in calls.repaired(normalized):
            size = enqueue(session, event)
            if size > largest:
                largest = size
        if largest >= LARGE_BYTES:
            calls.measure(normalized.payload.get("toolCallId"), largest)

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

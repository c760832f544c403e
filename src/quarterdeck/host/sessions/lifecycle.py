"""Opens sessions: create, load, resume.

    operation   the session's status       shown to subscribers
    create      creating → active          from the agent's answer on
    load        resuming → active          a session that is new here is staged until it succeeds
    resume      resuming → active          the same
    (fails)     back to the status before  a diagnostic `session/<operation>-failed`

`registry` has the whole table of statuses. A closed session stays `closed` while it is loaded, and
only a load opens it again.

**Order.** The agent's answer is handled in the read loop (`on_response`), so an update that the
agent sends right behind it finds the session. While a load is under way the agent replays the
history; it is collected in `HostSession.replay` and recorded in one step when the load succeeds. A
resume keeps in the same way what is no history: commands, title, usage, options, notices.

**Stored before published.** What replaces a session's history is committed first
(`Journal.commit_record`): if that fails, the call fails and nothing has changed. A reload does not
restart the numbering: it appends a `session-reset`, then the history as the agent replays it
(INV-1).

**Cancellation.** Until the agent has answered, a caller that is cancelled, or a timeout, abandons
the operation: the session returns to what it was, and if the agent opens it later, it is asked to
close it. From the answer on the operation completes, with or without its caller.

**Generations.** Ending a session while it is being opened raises `HostSession.generation`. An
operation whose generation is not the session's any more is void: its late answer changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol

import anyio

from quarterdeck.errors import (
    AcpError,
    CallTimedOut,
    ConnectionClosed,
    ConnectionFailed,
    ProtocolError,
    RpcError,
    StorageFailed,
)
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import (
    check_session_id,
    config_invalid,
    session_closed,
    unsupported,
)
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.operations import HostOperation, InBackground
from quarterdeck.host.sessions.fork import Fork, fork_of
from quarterdeck.host.sessions.opening import (
    SessionOpening,
    check_can_open,
    check_directories,
    ended_meanwhile,
    folder_params,
    is_in_use,
    read_object,
    report_empty,
)
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession, Replay, SessionFolders
from quarterdeck.host.sessions.settings import offered_settings
from quarterdeck.host.sessions.teardown import SessionTeardown
from quarterdeck.host.sessions.updates import UpdateRecorder
from quarterdeck.protocol import SessionStatus
from quarterdeck.storage import SessionMeta
from quarterdeck.wire import Failure, Result

OnResponse = Callable[[Result | Failure], None]
_ALSO_KEPT: Final = ("models", "_meta")


class EarlierSessions(Protocol):
    """The sessions that storage had when the host started."""

    @property
    def metas(self) -> Mapping[str, SessionMeta]: ...

    async def read(self, session: HostSession) -> Callable[[], None]:
        """Read a session's log; return a function that supersedes the requests left open in it."""


class SessionLifecycle:
    """Creates, loads and resumes sessions."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        teardown: SessionTeardown,
        in_background: InBackground,
        open_seconds: float,
        stored: EarlierSessions,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recorder = UpdateRecorder(emitter, sessions)
        self._teardown = teardown
        self._in_background = in_background
        self._open_seconds = open_seconds
        self._stored = stored

    async def fork(self, agent: AgentProcess, source: HostSession) -> HostSession:
        """Create a session that continues another one, whose history it has."""
        agent.connection()
        if not agent.can("fork"):
            raise unsupported(f"agent {agent.id} cannot fork sessions")
        fork = await fork_of(self._emitter, source)
        return await self.create(agent, source.folders, fork)

    async def create(
        self, agent: AgentProcess, folders: SessionFolders, fork: Fork | None = None
    ) -> HostSession:
        """Create a session.

        Raises:
            AcpError: if the agent cannot do it or the id it chose cannot be used.
            RpcError: if the agent refuses.
        """
        await self._emitter.hold.passed()
        created: list[tuple[HostSession, dict[str, Any]]] = []
        is_wanted = True

        def on_response(answer: Result | Failure) -> None:
            if not isinstance(answer, Result):
                return
            settings = read_object(answer.value)
            if is_wanted:
                created.append((self._add_created(agent, folders, settings, fork), settings))
            else:
                self._close_unwanted(agent, settings.get("sessionId"))

        try:
            await self._call_new(agent, folders, on_response, fork)
            session, settings = created[0]
            if session.operation == "create":
                await self._start_on_old_log(session, agent, settings, fork)
            self._emitter.journal.write_record(session.meta())
            await self._emitter.journal.wait_stored()
        except BaseException:
            is_wanted = False
            for unwanted, _ in created:
                self._drop(agent, unwanted)
            raise
        self._sessions.check_continues(session.id)
        return session

    def _drop(self, agent: AgentProcess, session: HostSession) -> None:
        """Close a new session whose caller is gone, unless it has ended already."""
        if self._sessions.known.get(session.id) is session:
            self._teardown.close_detached(agent, session)
        elif self._sessions.staged.get(session.id) is session:
            del self._sessions.staged[session.id]
            session.void()
            self._close_unwanted(agent, session.id)

    async def _call_new(
        self,
        agent: AgentProcess,
        folders: SessionFolders,
        on_response: OnResponse,
        fork: Fork | None,
    ) -> None:
        connection, params = agent.connection(), folder_params(agent, folders)
        method = "session/new" if fork is None else "session/fork"
        if fork is not None:
            params["sessionId"] = fork.source_id
        self._emitter.journal.check_writable()
        with agent.creating_session():
            try:
                await connection.call(
                    method, params, on_response=on_response, timeout_seconds=self._open_seconds
                )
            except (ConnectionFailed, ProtocolError) as error:
                raise await agent.failure(error) from error

    def _close_unwanted(self, agent: AgentProcess, session_id: Any) -> None:
        """Ask an agent to close what it opened too late, unless it is in use by now."""
        if not isinstance(session_id, str):
            return
        session = self._sessions.find(session_id)
        if session is None or session.agent_id != agent.id or not is_in_use(session):
            self._teardown.close_at_agent(agent, session_id)

    def _add_created(
        self,
        agent: AgentProcess,
        folders: SessionFolders,
        answer: dict[str, Any],
        fork: Fork | None,
    ) -> HostSession:
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise config_invalid("the agent created a session without an id")
        try:
            check_session_id(session_id)
        except AcpError as error:
            self._close_unwanted(agent, session_id)
            message = f"the agent created a session that cannot be used: {error.message}"
            raise config_invalid(message) from error
        if self._sessions.has(session_id):
            raise config_invalid(f"session {session_id} already exists")
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        session = self._new(session_id, agent, folders)
        if session.stream.last_seq:
            # Storage has a log of this id that was not restored: the agent has reused the id.
            # Requests left open in that log are closed first; updates are buffered until then.
            session.operation, session.replay = "create", Replay()
            self._sessions.staged[session_id] = session
        else:
            self._start(session, agent, answer, fork)
        for update in agent.early_updates.pop(session_id):
            agent.take_update(agent, session_id, update)
        return session

    def _start(
        self,
        session: HostSession,
        agent: AgentProcess,
        answer: dict[str, Any],
        fork: Fork | None = None,
    ) -> None:
        """Publish a new session: the history of a fork, its settings, then its status."""
        self._sessions.publish(session)
        if fork is not None:
            fork.start(self._emitter, session)
        self._configure(session, agent, answer, always=True, fork=fork)
        self._emitter.set_status(session, "active")

    async def _start_on_old_log(
        self,
        session: HostSession,
        agent: AgentProcess,
        answer: dict[str, Any],
        fork: Fork | None,
    ) -> None:
        """Start a new session whose id has a log already."""
        generation = session.generation
        supersede_open_requests = await self._stored.read(session)
        if session.generation != generation:
            raise ended_meanwhile(session, agent)
        if session.replay is not None:
            session.replay.check()
        supersede_open_requests()
        self._emitter.session_event(session, "session-reset", {"reason": "load"})
        session.reset()
        updates, session.operation = session.end_replay(), None
        self._start(session, agent, answer, fork)
        for normalized in updates:
            self._recorder.record(session, normalized)

    def _new(self, session_id: str, agent: AgentProcess, folders: SessionFolders) -> HostSession:
        meta = self._stored.metas.get(session_id)
        stream = self._emitter.new_stream(session_id, last_seq=meta.last_seq if meta else 0)
        return HostSession(
            session_id, stream, folders, agent_id=agent.id, definition_id=agent.definition.id
        )

    def _configure(
        self,
        session: HostSession,
        agent: AgentProcess,
        answer: dict[str, Any],
        *,
        always: bool,
        fork: Fork | None = None,
    ) -> None:
        """Emit the settings that an agent answered with.

        The extensions carry what readers of a log find nowhere else: the agent's name and version,
        and the parts of its answer that have no place in the payload.
        """
        payload = offered_settings(answer)
        if not payload and not always:
            return
        extensions = {name: answer[name] for name in _ALSO_KEPT if answer.get(name) is not None}
        if agent.info is not None:
            extensions["agentInfo"] = agent.info
        if fork is not None:
            extensions["quarterdeck"] = {"forkedFrom": fork.origin()}
        self._emitter.setting_event(session, "session-config-init", payload, extensions or None)

    # ---- load and resume -----------------------------------------------------------------

    async def load(self, agent: AgentProcess, session_id: str, folders: SessionFolders) -> None:
        """Load a session from its agent, or load it again."""
        await self._emitter.hold.passed()
        if self._sessions.tombstones.get(session_id) == "deleted":
            raise session_closed(f"session {session_id} is deleted")
        agent.connection()
        if agent.capabilities.get("loadSession") is not True:
            raise unsupported(f"agent {agent.id} cannot load sessions")
        check_directories(agent, folders)
        opening = self._begin("load", agent, session_id, folders)
        opening.session.replay, opening.session.fold = Replay(), None
        finishing: list[HostOperation] = []

        def on_success(answer: dict[str, Any]) -> None:
            if opening.session.replay is not None:
                opening.session.replay.on_response()
            finishing.append(
                HostOperation(self._in_background, lambda: self._finish_load(opening, answer))
            )

        await self._call_agent(opening, on_success)
        await finishing[0].wait()

    async def _finish_load(self, opening: SessionOpening, answer: dict[str, Any]) -> None:
        session = opening.session
        try:
            opening.check_history()
            await self._emitter.journal.commit_record(session.meta())
        except (AcpError, StorageFailed) as error:
            self._undo(opening, str(error))
            self._close_unwanted(opening.agent, session.id)
            raise
        if opening.is_void:
            raise self._ended_while_storing(opening)
        # A reset empties the state: a request that is still pending would no longer be visible.
        self._teardown.supersede_requests(session)
        self._emitter.session_event(session, "session-reset", {"reason": "load"})
        self._repeat_info(session)
        known = session.settings.known_beyond(answer)
        session.reset()
        if known:
            extensions = mark("known before the reload")
            self._emitter.setting_event(session, "session-config-init", known, extensions)
        (history, late), session.operation = session.split_replay(), None
        session.status = "active"  # from here on updates are recorded, not replayed
        self._sessions.publish(session)
        self._sessions.tombstones.pop(session.id, None)
        self._recorder.record_history(session, history)
        self._configure(session, opening.agent, answer, always=False)
        self._emitter.set_status(session, "active", resumed=True)
        self._recorder.record_history(session, late)  # behind the answer, as the agent sent it
        if late:
            self._emitter.session_updated(session)
        self._emitter.journal.write_record(session.meta())
        await self._emitter.journal.wait_stored()
        self._sessions.check_continues(session.id)

    def _ended_while_storing(self, opening: SessionOpening) -> AcpError:
        """Return what to raise for a stored load whose session has ended meanwhile."""
        session, agent = opening.session, opening.agent
        if session.status == "closed" and session.operation is None:
            self._emitter.journal.write_record(
                session.meta("closed")
            )  # the load had it stored open
        return ended_meanwhile(session, agent)

    def _repeat_info(self, session: HostSession) -> None:
        """Emit again after a reset what is known of a session: few agents replay its title."""
        given = {"title": session.title, "updatedAt": session.updated_at}
        payload = {name: value for name, value in given.items() if isinstance(value, str)}
        if payload:
            extensions = mark("known before the reload")
            self._emitter.session_event(session, "session-info-update", payload, extensions)

    async def resume(self, agent: AgentProcess, session_id: str, folders: SessionFolders) -> None:
        """Reopen a session at its agent without replaying its history."""
        await self._emitter.hold.passed()
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        agent.connection()
        if not agent.can("resume"):
            raise unsupported(f"agent {agent.id} cannot resume sessions")
        check_directories(agent, folders)
        opening = self._begin("resume", agent, session_id, folders)
        session = opening.session
        session.replay = Replay()

        def on_success(answer: dict[str, Any]) -> None:
            try:
                opening.check_history()
            except AcpError as error:  # nothing of it is kept; the session itself is fine
                code = "session/resume-replayed-history"
                self._emitter.diagnostic(
                    "error", code, error.message, agent_id=agent.id, session_id=session.id
                )
            said, session.operation = session.end_replay(), None
            self._sessions.publish(session)
            self._recorder.record_history(session, said)
            self._configure(session, agent, answer, always=False)
            self._emitter.set_status(session, "active", resumed=True)
            self._emitter.journal.write_record(session.meta())

        await self._call_agent(opening, on_success)
        await self._emitter.journal.wait_stored()
        self._sessions.check_continues(session.id)

    def _begin(
        self,
        operation: Literal["load", "resume"],
        agent: AgentProcess,
        session_id: str,
        folders: SessionFolders,
    ) -> SessionOpening:
        """Find or stage a session, and keep what to restore on failure."""
        self._emitter.journal.check_writable()
        session = self._sessions.known.get(check_session_id(session_id))
        self._sessions.check_continues(session_id)
        if session_id in self._sessions.staged:
            raise config_invalid(f"session {session_id} is being opened already")
        before: SessionStatus | None = None
        agent_before: str | None = None
        if session is None:
            session = self._sessions.staged[session_id] = self._new(session_id, agent, folders)
        else:
            before, agent_before = session.status, session.agent_id
            check_can_open(session, agent)
            session.generation += 1
        session.operation = operation
        if before not in (None, "closed"):
            self._emitter.set_status(session, "resuming")
        session.agent_id = agent.id
        return SessionOpening(
            operation=operation,
            agent=agent,
            session=session,
            before=before,
            agent_before=agent_before,
            folders=folders,
            generation=session.generation,
        )

    async def _call_agent(
        self, opening: SessionOpening, on_success: Callable[[dict[str, Any]], None]
    ) -> None:
        session, agent = opening.session, opening.agent

        def on_response(answer: Result | Failure) -> None:
            if opening.is_abandoned:
                self._on_late_answer(opening, answer)
            elif opening.is_void:
                raise session_closed(f"session {session.id} was ended meanwhile")
            elif isinstance(answer, Result):
                report_empty(agent, f"session/{opening.operation}", answer)
                opening.succeed()
                on_success(read_object(answer.value))

        params = {"sessionId": session.id, **folder_params(agent, opening.folders)}
        method, seconds = f"session/{opening.operation}", self._open_seconds
        try:
            await agent.connection().call(
                method, params, on_response=on_response, timeout_seconds=seconds
            )
        except RpcError as error:
            self._undo(opening, error.message)
            raise
        except ConnectionClosed as error:
            self._sessions.staged.pop(session.id, None)
            raise await agent.failure(error) from error
        except CallTimedOut as error:
            self._abandon(opening, str(error))
            raise await agent.failure(error) from error
        except (ConnectionFailed, ProtocolError) as error:
            self._undo(opening, str(error))
            raise await agent.failure(error) from error
        except anyio.get_cancelled_exc_class():
            self._abandon(opening, "the caller was cancelled")
            raise

    def _abandon(self, opening: SessionOpening, reason: str) -> None:
        """Give up while the agent may still be working on it, unless it has just answered."""
        if opening.is_answered:
            return
        opening.agent.add_abandoned(opening.session.id)
        opening.is_abandoned = True
        self._undo(opening, reason)
        if not opening.is_void:
            opening.session.generation += 1

    def _on_late_answer(self, opening: SessionOpening, answer: Result | Failure) -> None:
        """Handle the agent's answer to an abandoned opening."""
        agent, session_id = opening.agent, opening.session.id
        agent.remove_abandoned(session_id)
        session = self._sessions.find(session_id)
        if session is not None and session.replay is not None:
            session.replay.clear()  # what it has is from the abandoned load
        if isinstance(answer, Result):
            self._close_unwanted(agent, session_id)

    def _undo(self, opening: SessionOpening, reason: str) -> None:
        """Report a failed opening, and restore the session as it was."""
        if opening.is_void:
            return
        session, agent = opening.session, opening.agent
        code, reason = f"session/{opening.operation}-failed", agent.secrets.hidden(reason)
        self._emitter.diagnostic("warn", code, reason, agent_id=agent.id, session_id=session.id)
        self._sessions.staged.pop(session.id, None)
        session.operation = None
        session.replay = None
        opening.undo()
        if opening.before is not None and opening.before != "closed":
            self._emitter.set_status(session, opening.before)

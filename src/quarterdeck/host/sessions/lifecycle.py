"""How sessions begin, come back and end.

    create   active                       (an id that is taken is refused)
    load     resuming → active(resumed)   unknown ones are staged: nobody sees them before success
    resume   resuming → active(resumed)
    close    closed                       load opens it again; nothing else does
    delete   deleted                      for ever
    an agent's end                        disconnected

Answers of an agent are taken in the read loop, so what it sends right behind an answer finds the
session there. What ends a session, and what replaces its history, is stored before it is said: if
it cannot be stored the call fails and nothing has changed. A reload does not start numbering
again: it appends a `session-reset` and the history as the agent tells it now (INV-1).

Whoever asks may go away, or the agent may take too long. Until the agent has answered, that gives
the whole thing up: the session is what it was before, and what the agent opens later it is told to
close. From the answer on it is seen through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

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
from quarterdeck.host.agents import AgentProcess
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.repair import mark
from quarterdeck.host.operations import HostOperation, InBackground
from quarterdeck.host.options import check_text, config_invalid
from quarterdeck.host.sessions.opening import (
    SessionOpening,
    check_can_open,
    check_directories,
    ended_meanwhile,
    is_in_use,
    place_params,
    read_object,
)
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import (
    HostSession,
    Replay,
    SessionFolders,
    session_closed,
    unsupported,
)
from quarterdeck.host.sessions.teardown import SessionTeardown
from quarterdeck.protocol import SessionStatus
from quarterdeck.storage import SessionMeta
from quarterdeck.wire import Failure, Result

OnAnswer = Callable[[Result | Failure], None]


class EarlierSessions(Protocol):
    """The sessions that storage had when the host began."""

    @property
    def metas(self) -> Mapping[str, SessionMeta]: ...

    async def read(self, session: HostSession) -> Callable[[], None]:
        """Read the log of a session; return what supersedes the requests it leaves open."""


class SessionLifecycle:
    """Opens sessions, new and old."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        endings: SessionTeardown,
        in_background: InBackground,
        open_seconds: float,
        stored: EarlierSessions,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._endings = endings
        self._in_background = in_background
        self._open_seconds = open_seconds
        self._stored = stored

    async def create(self, agent: AgentProcess, place: SessionFolders) -> HostSession:
        """Create a session.

        Raises:
            AcpError: if the agent cannot do it or the id it chose cannot be used.
            RpcError: if the agent refuses.
        """
        created: list[tuple[HostSession, dict[str, Any]]] = []
        is_wanted = True

        def on_answer(answer: Result | Failure) -> None:
            if not isinstance(answer, Result):
                return
            settings = read_object(answer.value)
            if is_wanted:
                created.append((self._created(agent, place, settings), settings))
            else:
                self._disown(agent, settings.get("sessionId"))

        try:
            await self._ask_for_new(agent, place, on_answer)
            session, settings = created[0]
            if session.operation == "create":
                await self._begin_again(session, agent, settings)
            self._emitter.journal.add_record(session.meta())
            await self._emitter.journal.settled()
        except BaseException:
            is_wanted = False
            for unwanted, _ in created:
                self._drop(agent, unwanted)
            raise
        return session

    def _drop(self, agent: AgentProcess, session: HostSession) -> None:
        """End a new session that nobody knows of; if it has ended by itself, that is that."""
        if self._sessions.known.get(session.id) is session:
            self._endings.close_unheard(agent, session)
        elif self._sessions.staged.get(session.id) is session:
            del self._sessions.staged[session.id]
            session.void()
            self._disown(agent, session.id)

    async def _ask_for_new(
        self, agent: AgentProcess, place: SessionFolders, on_answer: OnAnswer
    ) -> None:
        connection, params = agent.connection(), place_params(agent, place)
        self._emitter.journal.check()
        agent.expects_session += 1
        try:
            await connection.call(
                "session/new", params, on_answer=on_answer, timeout_seconds=self._open_seconds
            )
        except (ConnectionFailed, ProtocolError) as error:
            raise await agent.failure(error) from error
        finally:
            agent.expects_session -= 1
            if not agent.expects_session:
                agent.early.clear()

    def _disown(self, agent: AgentProcess, session_id: Any) -> None:
        """Have an agent close what it has opened too late, unless it is in use by now."""
        if not isinstance(session_id, str):
            return
        session = self._sessions.known.get(session_id) or self._sessions.staged.get(session_id)
        if session is None or session.agent_id != agent.id or not is_in_use(session):
            self._endings.disown(agent, session_id)

    def _created(
        self, agent: AgentProcess, place: SessionFolders, answer: dict[str, Any]
    ) -> HostSession:
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise config_invalid("the agent created a session without an id")
        if self._sessions.has(session_id):
            raise config_invalid(f"session {session_id} already exists")
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        session = self._new(session_id, agent, place)
        if session.stream.last_seq:
            # Stored by an earlier host that nobody restored: the agent gave its name away again.
            # What that log left open is closed first; what the agent says waits until then.
            session.operation, session.replay = "create", Replay()
            self._sessions.staged[session_id] = session
        else:
            self._begin_new(session, agent, answer)
        for update in agent.early.take(session_id):
            self._sessions.on_update(agent, session_id, update)
        return session

    def _begin_new(self, session: HostSession, agent: AgentProcess, answer: dict[str, Any]) -> None:
        self._sessions.publish(session)
        self._configure(session, agent, answer, always=True)
        self._emitter.status(session, "active")

    async def _begin_again(
        self, session: HostSession, agent: AgentProcess, answer: dict[str, Any]
    ) -> None:
        """Begin a session whose name has a log."""
        generation = session.generation
        close_what_is_open = await self._stored.read(session)
        if session.generation != generation:
            raise ended_meanwhile(session, agent)
        if session.replay is not None:
            session.replay.check()
        close_what_is_open()
        self._emitter.session_event(session, "session-reset", {"reason": "load"})
        session.forget_calls()
        said, session.operation = session.take_replay(), None
        self._begin_new(session, agent, answer)
        for normalized in said:
            self._sessions.record(session, normalized)

    def _new(self, session_id: str, agent: AgentProcess, place: SessionFolders) -> HostSession:
        meta = self._stored.metas.get(session_id)
        stream = self._emitter.new_stream(session_id, last_seq=meta.last_seq if meta else 0)
        return HostSession(
            session_id, stream, place, agent_id=agent.id, definition_id=agent.definition.id
        )

    def _configure(
        self, session: HostSession, agent: AgentProcess, answer: dict[str, Any], *, always: bool
    ) -> None:
        """Emit the settings that an agent answered with; config options replace modes.

        Who it says it is goes along: a log is read where its agent is not known.
        """
        payload: dict[str, Any] = {}
        if answer.get("configOptions") is not None:
            payload["configOptions"] = answer["configOptions"]
            session.has_config_options = True
        elif answer.get("modes") is not None:
            payload["modes"] = answer["modes"]
            session.has_modes = True
        if payload or always:
            who = None if agent.info is None else {"agentInfo": agent.info}
            self._emitter.session_event(session, "session-config-init", payload, who)

    # ---- load and resume -----------------------------------------------------------------

    async def load(self, agent: AgentProcess, session_id: str, place: SessionFolders) -> None:
        """Load a session from its agent, or load it again."""
        if self._sessions.tombstones.get(session_id) == "deleted":
            raise session_closed(f"session {session_id} is deleted")
        agent.connection()
        if agent.capabilities.get("loadSession") is not True:
            raise unsupported(f"agent {agent.id} cannot load sessions")
        check_directories(agent, place)
        opening = self._begin("load", agent, session_id, place)
        opening.session.replay = Replay()
        finishing: list[HostOperation] = []

        def on_success(answer: dict[str, Any]) -> None:
            work = HostOperation(self._in_background, lambda: self._finish_load(opening, answer))
            finishing.append(work)

        await self._ask_agent(opening, on_success)
        await finishing[0].done()

    async def _finish_load(self, opening: SessionOpening, answer: dict[str, Any]) -> None:
        session = opening.session
        try:
            opening.check_history()
            await self._emitter.journal.commit(session.meta())
        except (AcpError, StorageFailed) as error:
            self._give_up(opening, str(error))
            self._disown(opening.agent, session.id)
            raise
        if opening.is_void:
            raise self._ended_while_storing(opening)
        # A reset empties the state: a question that still waited could not be seen any more.
        self._endings.supersede_questions(session)
        self._emitter.session_event(session, "session-reset", {"reason": "load"})
        self._repeat_info(session)
        session.forget_calls()
        replay, session.operation = session.take_replay(), None
        session.status = "active"  # from here on updates are the session's own
        self._sessions.publish(session)
        self._sessions.tombstones.pop(session.id, None)
        self._sessions.record_history(session, replay)
        self._configure(session, opening.agent, answer, always=False)
        self._emitter.status(session, "active", resumed=True)
        self._emitter.journal.add_record(session.meta())
        await self._emitter.journal.settled()

    def _ended_while_storing(self, opening: SessionOpening) -> AcpError:
        """Return what to raise for a load that was answered and stored, but in vain."""
        session, agent = opening.session, opening.agent
        if session.status == "closed" and session.operation is None:
            self._emitter.journal.add_record(session.meta("closed"))  # the load had it stored open
        return ended_meanwhile(session, agent)

    def _repeat_info(self, session: HostSession) -> None:
        """Say again after a reset what we know of a session: few agents replay its title."""
        given = {"title": session.title, "updatedAt": session.updated_at}
        payload = {name: value for name, value in given.items() if isinstance(value, str)}
        if payload:
            extensions = mark("known before the reload")
            self._emitter.session_event(session, "session-info-update", payload, extensions)

    async def resume(self, agent: AgentProcess, session_id: str, place: SessionFolders) -> None:
        """Go on with a session without its history."""
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        agent.connection()
        if not agent.can("resume"):
            raise unsupported(f"agent {agent.id} cannot resume sessions")
        check_directories(agent, place)
        opening = self._begin("resume", agent, session_id, place)
        session = opening.session

        def on_success(answer: dict[str, Any]) -> None:
            session.operation = None
            self._sessions.publish(session)
            self._configure(session, agent, answer, always=False)
            self._emitter.status(session, "active", resumed=True)
            self._emitter.journal.add_record(session.meta())

        await self._ask_agent(opening, on_success)
        await self._emitter.journal.settled()

    def _begin(
        self,
        operation: Literal["load", "resume"],
        agent: AgentProcess,
        session_id: str,
        place: SessionFolders,
    ) -> SessionOpening:
        """Find or stage a session, and note what to go back to on failure."""
        self._emitter.journal.check()
        session = self._sessions.known.get(check_text(session_id, "the session's id"))
        if session_id in self._sessions.staged:
            raise config_invalid(f"session {session_id} is being opened already")
        before: SessionStatus | None = None
        agent_before: str | None = None
        if session is None:
            session = self._sessions.staged[session_id] = self._new(session_id, agent, place)
        else:
            before, agent_before = session.status, session.agent_id
            check_can_open(session, agent)
            session.generation += 1
        session.operation = operation
        if before not in (None, "closed"):
            self._emitter.status(session, "resuming")
        session.agent_id = agent.id
        return SessionOpening(
            operation=operation,
            agent=agent,
            session=session,
            before=before,
            agent_before=agent_before,
            place=place,
            generation=session.generation,
        )

    async def _ask_agent(
        self, opening: SessionOpening, on_success: Callable[[dict[str, Any]], None]
    ) -> None:
        session, agent = opening.session, opening.agent

        def on_answer(answer: Result | Failure) -> None:
            if opening.is_abandoned:
                self._on_late_answer(opening, answer)
            elif opening.is_void:
                raise session_closed(f"session {session.id} was ended meanwhile")
            elif isinstance(answer, Result):
                opening.succeed()
                on_success(read_object(answer.value))

        params = {"sessionId": session.id, **place_params(agent, opening.place)}
        method, seconds = f"session/{opening.operation}", self._open_seconds
        try:
            await agent.connection().call(
                method, params, on_answer=on_answer, timeout_seconds=seconds
            )
        except RpcError as error:
            self._give_up(opening, error.message)
            raise
        except ConnectionClosed as error:
            self._sessions.staged.pop(session.id, None)
            raise await agent.failure(error) from error
        except CallTimedOut as error:
            self._abandon(opening, str(error))
            raise await agent.failure(error) from error
        except (ConnectionFailed, ProtocolError) as error:
            self._give_up(opening, str(error))
            raise await agent.failure(error) from error
        except anyio.get_cancelled_exc_class():
            self._abandon(opening, "whoever asked for it has gone")
            raise

    def _abandon(self, opening: SessionOpening, reason: str) -> None:
        """Give up while the agent may still be at it; too late if it has just answered."""
        if opening.is_answered:
            return
        abandoned = opening.agent.abandoned
        abandoned[opening.session.id] = abandoned.get(opening.session.id, 0) + 1
        opening.is_abandoned = True
        self._give_up(opening, reason)
        if not opening.is_void:
            opening.session.generation += 1

    def _on_late_answer(self, opening: SessionOpening, answer: Result | Failure) -> None:
        agent, session_id = opening.agent, opening.session.id
        count = agent.abandoned.pop(session_id, 0)
        if count > 1:
            agent.abandoned[session_id] = count - 1
        session = self._sessions.known.get(session_id) or self._sessions.staged.get(session_id)
        if session is not None and session.replay is not None:
            session.replay.clear()  # so far it was that of the load that was given up
        if isinstance(answer, Result):
            self._disown(agent, session_id)

    def _give_up(self, opening: SessionOpening, reason: str) -> None:
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
            self._emitter.status(session, opening.before)

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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from quarterdeck.errors import (
    AcpError,
    ConnectionClosed,
    ConnectionFailed,
    ProtocolError,
    RpcError,
    StorageFailed,
)
from quarterdeck.host.agents import Agent
from quarterdeck.host.emitter import Emitter
from quarterdeck.host.endings import InBackground, see_through
from quarterdeck.host.options import config_invalid
from quarterdeck.host.permissions import Permissions
from quarterdeck.host.repair import mark
from quarterdeck.host.sessions import (
    Operation,
    Place,
    Session,
    agent_exited,
    session_closed,
    unsupported,
)
from quarterdeck.host.table import Sessions
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import ERROR_CODES, SessionStatus
from quarterdeck.storage import SessionMeta
from quarterdeck.wire import Failure, Result


class _Opening(NamedTuple):
    """A load or resume that is under way."""

    operation: Literal["load", "resume"]
    agent: Agent
    session: Session
    before: SessionStatus | None
    """What to go back to if it fails; None for a session that nobody has seen."""
    place: Place
    generation: int
    """That of the session; when it has another one, somebody has ended this."""

    @property
    def is_void(self) -> bool:
        return self.session.generation != self.generation


class Lifecycles:
    """Opens sessions, new and old."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: Sessions,
        permissions: Permissions,
        in_background: InBackground,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._permissions = permissions
        self._in_background = in_background
        self.stored: dict[str, SessionMeta] = {}
        """What storage had of every session when we began."""

    async def create(self, agent: Agent, place: Place) -> Session:
        """Create a session.

        Raises:
            AcpError: if the agent cannot do it or the id it chose cannot be used.
            RpcError: if the agent refuses.
        """
        connection = agent.connection()
        created: list[Session] = []

        def on_answer(answer: Result | Failure) -> None:
            if isinstance(answer, Result):
                created.append(self._created(agent, place, _object(answer.value)))

        agent.expects_session += 1
        try:
            await connection.call("session/new", _params(agent, place), on_answer=on_answer)
        except (ConnectionFailed, ProtocolError) as error:
            raise await agent.failure(error) from error
        finally:
            agent.expects_session -= 1
            if not agent.expects_session:
                agent.early.clear()
        session = created[0]
        self._emitter.journal.add_record(session.meta())
        await self._emitter.journal.settled()
        return session

    def _created(self, agent: Agent, place: Place, answer: dict[str, Any]) -> Session:
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise config_invalid("the agent created a session without an id")
        if self._sessions.has(session_id):
            raise config_invalid(f"session {session_id} already exists")
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        session = self._new(session_id, agent, place)
        self._sessions.known[session_id] = session
        if session.stream.last_seq:
            # Stored by an earlier host that nobody restored: the agent gave its name away again.
            self._emitter.session_event(session, "session-reset", {"reason": "load"})
        self._configure(session, answer, always=True)
        self._emitter.status(session, "active")
        for update in agent.early.pop(session_id, ()):
            self._sessions.on_update(agent, session_id, update)
        return session

    def _new(self, session_id: str, agent: Agent, place: Place) -> Session:
        meta = self.stored.get(session_id)
        stream = self._emitter.new_stream(session_id, last_seq=meta.last_seq if meta else 0)
        return Session(
            session_id, stream, place, agent_id=agent.id, definition_id=agent.definition.id
        )

    def _configure(self, session: Session, answer: dict[str, Any], *, always: bool) -> None:
        """Emit the settings that an agent answered with; config options replace modes."""
        payload: dict[str, Any] = {}
        if answer.get("configOptions") is not None:
            payload["configOptions"] = answer["configOptions"]
            session.has_config_options = True
        elif answer.get("modes") is not None:
            payload["modes"] = answer["modes"]
            session.has_modes = True
        if payload or always:
            self._emitter.session_event(session, "session-config-init", payload)

    # ---- load and resume -----------------------------------------------------------------

    async def load(self, agent: Agent, session_id: str, place: Place) -> None:
        """Load a session from its agent, or load it again."""
        await see_through(self._in_background, lambda: self._load(agent, session_id, place))

    async def _load(self, agent: Agent, session_id: str, place: Place) -> None:
        if self._sessions.tombstones.get(session_id) == "deleted":
            raise session_closed(f"session {session_id} is deleted")
        agent.connection()
        if agent.capabilities.get("loadSession") is not True:
            raise unsupported(f"agent {agent.id} cannot load sessions")
        _check_directories(agent, place)
        session, before = self._begin("load", agent, session_id, place)
        session.replay = []
        opening = _Opening("load", agent, session, before, place, session.generation)
        answer = await self._ask_agent(opening)
        try:
            await self._emitter.journal.commit(session.meta())
        except StorageFailed as error:
            self._give_up(opening, str(error))
            raise
        if opening.is_void:
            raise self._ended_while_storing(opening)
        # A reset empties the state: a question that still waited could not be seen any more.
        self._permissions.supersede(lambda pending: pending.session is session)
        self._emitter.session_event(session, "session-reset", {"reason": "load"})
        self._repeat_info(session)
        session.tool_calls.forget()
        replay, session.replay, session.operation = session.replay or [], None, None
        session.status = "active"  # from here on updates are the session's own
        self._publish_staged(session)
        self._sessions.tombstones.pop(session_id, None)
        for normalized in replay:
            for event in session.tool_calls.repaired(normalized):
                self._emitter.update(session, event)
            if normalized.type == "session-info-update":
                session.take_info(normalized.payload)
        self._configure(session, answer, always=False)
        self._emitter.status(session, "active", resumed=True)
        self._emitter.journal.add_record(session.meta())
        await self._emitter.journal.settled()

    def _ended_while_storing(self, opening: _Opening) -> AcpError:
        """Return what to raise for a load that was answered and stored, but in vain."""
        session, agent = opening.session, opening.agent
        if session.status == "closed" and session.operation is None:
            self._emitter.journal.add_record(session.meta("closed"))  # the load had it stored open
        if not agent.is_connected:
            return agent_exited(f"agent {agent.id} exited while session {session.id} was loaded")
        return session_closed(f"session {session.id} was ended meanwhile")

    def _repeat_info(self, session: Session) -> None:
        """Say again after a reset what we know of a session: few agents replay its title."""
        given = {"title": session.title, "updatedAt": session.updated_at}
        payload = {name: value for name, value in given.items() if isinstance(value, str)}
        if payload:
            extensions = mark("known before the reload")
            self._emitter.session_event(session, "session-info-update", payload, extensions)

    async def resume(self, agent: Agent, session_id: str, place: Place) -> None:
        """Go on with a session without its history."""
        await see_through(self._in_background, lambda: self._resume(agent, session_id, place))

    async def _resume(self, agent: Agent, session_id: str, place: Place) -> None:
        if session_id in self._sessions.tombstones:
            raise session_closed(f"session {session_id} is closed or deleted")
        agent.connection()
        if not agent.can("resume"):
            raise unsupported(f"agent {agent.id} cannot resume sessions")
        _check_directories(agent, place)
        session, before = self._begin("resume", agent, session_id, place)

        def on_success(answer: dict[str, Any]) -> None:
            session.operation = None
            self._publish_staged(session)
            self._configure(session, answer, always=False)
            self._emitter.status(session, "active", resumed=True)

        opening = _Opening("resume", agent, session, before, place, session.generation)
        await self._ask_agent(opening, on_success)
        self._emitter.journal.add_record(session.meta())
        await self._emitter.journal.settled()

    def _begin(
        self, operation: Operation, agent: Agent, session_id: str, place: Place
    ) -> tuple[Session, SessionStatus | None]:
        """Find or stage a session; return it and the status to go back to on failure."""
        session = self._sessions.known.get(session_id)
        if session_id in self._sessions.staged:
            raise config_invalid(f"session {session_id} is being opened already")
        if session is None:
            session = self._new(session_id, agent, place)
            session.operation = operation
            self._sessions.staged[session_id] = session
            return session, None
        before = session.status
        if before == "prompting":
            message = f"session {session_id} has a prompt in flight"
            raise AcpError(ERROR_CODES["prompt_in_flight"], message)
        if session.operation is not None:
            raise config_invalid(f"session {session_id} is busy: {session.operation}")
        if before not in ("disconnected", "closed") and session.agent_id != agent.id:
            raise config_invalid(f"session {session_id} belongs to another agent")
        if (
            session.agent_id not in (None, agent.id)
            and session.definition_id != agent.definition.id
        ):
            raise config_invalid(f"session {session_id} belongs to another agent")
        session.operation = operation
        session.generation += 1
        if before != "closed":
            self._emitter.status(session, "resuming")
        session.agent_id = agent.id
        return session, before

    async def _ask_agent(
        self, opening: _Opening, on_success: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        session, agent = opening.session, opening.agent
        taken: dict[str, Any] = {}

        def on_answer(answer: Result | Failure) -> None:
            if opening.is_void:
                raise session_closed(f"session {session.id} was ended meanwhile")
            if isinstance(answer, Result):
                taken.update(_object(answer.value))
                session.place = opening.place
                session.agent_id = agent.id
                session.definition_id = agent.definition.id
                if on_success is not None:
                    on_success(taken)

        params = {"sessionId": session.id, **_params(agent, opening.place)}
        method = f"session/{opening.operation}"
        try:
            await agent.connection().call(method, params, on_answer=on_answer)
        except RpcError as error:
            self._give_up(opening, error.message)
            raise
        except ConnectionClosed as error:
            self._sessions.staged.pop(session.id, None)
            raise await agent.failure(error) from error
        except (ConnectionFailed, ProtocolError) as error:
            self._give_up(opening, str(error))
            raise await agent.failure(error) from error
        if opening.is_void:
            raise session_closed(f"session {session.id} was ended meanwhile")
        return taken

    def _give_up(self, opening: _Opening, reason: str) -> None:
        if opening.is_void:
            return
        session = opening.session
        code = f"session/{opening.operation}-failed"
        agent_id = opening.agent.id
        self._emitter.diagnostic("warn", code, reason, agent_id=agent_id, session_id=session.id)
        self._sessions.staged.pop(session.id, None)
        session.operation = None
        session.replay = None
        if opening.before is not None and opening.before != "closed":
            self._emitter.status(session, opening.before)

    def _publish_staged(self, session: Session) -> None:
        self._sessions.staged.pop(session.id, None)
        self._sessions.known[session.id] = session


def _params(agent: Agent, place: Place) -> dict[str, Any]:
    _check_directories(agent, place)
    params: dict[str, Any] = {"cwd": place.cwd}
    if place.mcp_servers is not None:
        params["mcpServers"] = list(place.mcp_servers)
    if agent.can("additionalDirectories"):
        params["additionalDirectories"] = list(place.additional_directories)
    return params


def _check_directories(agent: Agent, place: Place) -> None:
    if place.additional_directories and not agent.can("additionalDirectories"):
        raise unsupported(f"agent {agent.id} cannot use additional directories")


def _object(value: bytes) -> dict[str, Any]:
    decoded = decode_json(value)
    return decoded if isinstance(decoded, dict) else {}

"""How sessions end: closed, deleted, or left behind by their agent."""

from __future__ import annotations

from typing import Any, Literal

import anyio.lowlevel

from quarterdeck.errors import ConnectionFailed, QuarterdeckError, RpcError, StorageFailed
from quarterdeck.host.agents import AgentProcess
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.operations import HostOperation, InBackground, OnUnheard
from quarterdeck.host.options import config_invalid
from quarterdeck.host.requests.handlers import AgentRequests
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.storage import SessionMeta

Ending = Literal["close", "delete"]

TELL_SECONDS = 30.0  # for an agent to answer that a session has ended


class SessionTeardown:
    """Ends sessions here, and tells their agent."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        asked: AgentRequests,
        terminal: Any,
        in_background: InBackground,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._asked = asked
        self._terminal = terminal
        self._in_background = in_background

    async def close(self, agent: AgentProcess | None, session: HostSession) -> None:
        await self._work("close", agent, session).done()

    async def delete(self, agent: AgentProcess | None, session: HostSession) -> None:
        if self._sessions.staged.pop(session.id, None) is not None:
            session.void()
            await self.delete_unknown(agent, session.id)  # nobody has seen it
            return
        await self._work("delete", agent, session).done()

    def close_unheard(self, agent: AgentProcess, session: HostSession) -> None:
        """Close a session that nobody knows of who asked for it."""
        self._work("close", agent, session).leave()

    def _work(
        self, ending: Ending, agent: AgentProcess | None, session: HostSession
    ) -> HostOperation:
        on_unheard = self._on_unheard(ending, session.id)
        return HostOperation(
            self._in_background, lambda: self._end(ending, agent, session), on_unheard
        )

    def _on_unheard(self, ending: Ending, session_id: str) -> OnUnheard:
        def tell(error: Exception) -> None:
            code = "storage/write-failed" if isinstance(error, StorageFailed) else _failed(ending)
            message = f"session {session_id} could not be ended: {error}"
            self._emitter.diagnostic("error", code, message, session_id=session_id)

        return tell

    async def delete_unknown(self, agent: AgentProcess | None, session_id: str) -> None:
        """Delete a session we never had: remember it, so that it does not come back."""

        async def delete() -> None:
            meta = SessionMeta(session_id=session_id, cwd="", lifecycle="deleted")
            await self._emitter.journal.commit(meta)
            self._sessions.tombstones[session_id] = "deleted"
            await self._tell("delete", agent, session_id)

        await HostOperation(
            self._in_background, delete, self._on_unheard("delete", session_id)
        ).done()

    def disconnect(self, session: HostSession) -> None:
        """The agent of a session is gone."""
        if session.id in self._sessions.staged:
            session.void()
            del self._sessions.staged[session.id]
            return
        if session.operation == "load" and session.status == "closed":
            session.void()  # it was being opened again, and stays closed
        if session.status in ("closed", "deleted", "disconnected"):
            return
        session.void()
        self._clean_up(session)
        self._emitter.status(session, "disconnected")

    async def _end(self, ending: Ending, agent: AgentProcess | None, session: HostSession) -> None:
        if session.operation in ("close", "delete"):
            raise config_invalid(f"session {session.id} is busy: {session.operation}")
        was_prompting = session.status == "prompting"
        session.void()
        generation, session.operation = session.generation, ending
        if was_prompting and agent is not None:
            await self._cancel_first(agent, session)
        withdrawn = self._asked.withdraw(lambda question: question.session is session)
        try:
            self._clean_up(session)
            await self._commit(ending, session, generation)
            await self._tell(ending, agent, session.id)
        finally:
            # After it was told of the end, as acpjs does; whatever went wrong, it is not left
            # waiting.
            for question in withdrawn:
                question.refuse()
        try:
            await self._emitter.journal.settled()
        finally:
            if ending == "delete":
                session.stream.end()

    async def _commit(self, ending: Ending, session: HostSession, generation: int) -> None:
        lifecycle: Literal["closed", "deleted"] = "closed" if ending == "close" else "deleted"
        try:
            await self._emitter.journal.commit(session.meta(lifecycle))
        except StorageFailed:
            if session.generation == generation:
                self._go_back(session)
            raise
        finally:
            session.operation = None
        self._sessions.tombstones[session.id] = lifecycle
        self._emitter.status(session, lifecycle)
        if lifecycle == "deleted":
            self._sessions.known.pop(session.id, None)

    def supersede_questions(self, session: HostSession) -> None:
        """Withdraw what was asked about a session."""
        self._asked.supersede(lambda question: question.session is session)

    def _go_back(self, session: HostSession) -> None:
        """Let a session that could not be ended go on; what was under way has ended."""
        if session.status == "prompting":
            self._emitter.session_event(session, "prompt-finished", {"stopReason": "cancelled"})
            session.tool_calls.next_turn()
            self._emitter.status(session, "active")
        elif session.status == "resuming":
            self._emitter.status(session, "disconnected")

    async def _cancel_first(self, agent: AgentProcess, session: HostSession) -> None:
        try:
            await agent.connection().notify("session/cancel", {"sessionId": session.id})
        except QuarterdeckError as error:
            self._complain(agent, session.id, "session/cancel-before-close-failed", str(error))

    def _clean_up(self, session: HostSession) -> None:
        """End the terminals of a session, without waiting for them."""
        if self._terminal is None:
            return

        async def clean() -> None:
            try:
                await self._terminal.cleanup_session(session.id)
            except Exception as error:  # noqa: BLE001 - a handler is foreign code
                reason = f"the terminals of {session.id} could not be ended: {error}"
                self._emitter.diagnostic(
                    "warn", "session/cleanup-failed", reason, session_id=session.id
                )

        self._in_background(clean)

    def disown(self, agent: AgentProcess, session_id: str) -> None:
        """Have an agent close a session that it has opened for somebody who is gone."""
        if agent.can("close"):
            self._in_background(lambda: self._tell("close", agent, session_id))
        else:
            message = f"session {session_id} stays open at an agent that cannot close sessions"
            self._complain(agent, session_id, "session/abandoned", message)

    async def _tell(self, ending: Ending, agent: AgentProcess | None, session_id: str) -> None:
        """Let the agent know, if it cares; what it answers changes nothing here."""
        if agent is None or not agent.can(ending):
            return
        if agent.status != "ready":
            self._complain(agent, session_id, f"session/{ending}-skipped", "agent is not ready")
            return
        connection = agent.connection()

        async def tell() -> None:
            try:
                await connection.call(
                    f"session/{ending}", {"sessionId": session_id}, timeout_seconds=TELL_SECONDS
                )
            except RpcError as error:
                self._complain(agent, session_id, _failed(ending), error.message)
            except ConnectionFailed as error:
                self._complain(agent, session_id, _failed(ending), str(error))

        self._in_background(tell)
        # The task writes in its first step: what our caller sends next, which may be a load of this
        # very session, does not overtake it.
        await anyio.lowlevel.checkpoint()

    def _complain(self, agent: AgentProcess, session_id: str, code: str, message: str) -> None:
        message = agent.secrets.hidden(message)
        self._emitter.diagnostic("warn", code, message, agent_id=agent.id, session_id=session_id)


def _failed(ending: Ending) -> str:
    return f"session/{ending}-failed"

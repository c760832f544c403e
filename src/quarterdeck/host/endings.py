"""How sessions end: closed, deleted, or left behind by their agent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal

import anyio
import anyio.lowlevel

from quarterdeck.errors import ConnectionFailed, QuarterdeckError, RpcError, StorageFailed
from quarterdeck.host.agents import Agent
from quarterdeck.host.emitter import Emitter
from quarterdeck.host.options import config_invalid
from quarterdeck.host.permissions import Permissions
from quarterdeck.host.sessions import Session, session_closed
from quarterdeck.host.table import Sessions
from quarterdeck.storage import SessionMeta

Ending = Literal["close", "delete"]
Work = Callable[[], Coroutine[Any, Any, None]]
InBackground = Callable[[Work], None]


async def see_through(in_background: InBackground, work: Work) -> None:
    """Do some work in a task of the host: a caller that goes away does not leave it half done."""
    ended = anyio.Event()
    failure: list[Exception] = [session_closed("the host was disposed")]

    async def run() -> None:
        try:
            await work()
            failure.clear()
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised there
            failure[0] = error
        finally:
            ended.set()

    in_background(run)
    await ended.wait()
    if failure:
        raise failure[0]


class Endings:
    """Ends sessions here, and tells their agent."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: Sessions,
        permissions: Permissions,
        terminal: Any,
        in_background: InBackground,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._permissions = permissions
        self._terminal = terminal
        self._in_background = in_background

    async def close(self, agent: Agent | None, session: Session) -> None:
        await see_through(self._in_background, lambda: self._end("close", agent, session))

    async def delete(self, agent: Agent | None, session: Session) -> None:
        if self._sessions.staged.pop(session.id, None) is not None:
            session.void()
            await self.delete_unknown(agent, session.id)  # nobody has seen it
            return
        await see_through(self._in_background, lambda: self._end("delete", agent, session))

    async def delete_unknown(self, agent: Agent | None, session_id: str) -> None:
        """Delete a session we never had: remember it, so that it does not come back."""
        meta = SessionMeta(session_id=session_id, cwd="", lifecycle="deleted")
        await self._emitter.journal.commit(meta)
        self._sessions.tombstones[session_id] = "deleted"
        await self._tell("delete", agent, session_id)

    def disconnect(self, session: Session) -> None:
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

    async def _end(self, ending: Ending, agent: Agent | None, session: Session) -> None:
        if session.operation in ("close", "delete"):
            raise config_invalid(f"session {session.id} is busy: {session.operation}")
        was_prompting = session.status == "prompting"
        session.void()
        generation, session.operation = session.generation, ending
        if was_prompting and agent is not None:
            await self._cancel_first(agent, session)
        self._permissions.supersede(lambda pending: pending.session is session)
        self._clean_up(session)
        lifecycle: Literal["closed", "deleted"] = "closed" if ending == "close" else "deleted"
        try:
            await self._emitter.journal.commit(session.meta(lifecycle))
        except StorageFailed:
            if session.generation == generation:
                self._go_on(session)
            raise
        finally:
            session.operation = None
        self._sessions.tombstones[session.id] = lifecycle
        self._emitter.status(session, lifecycle)
        if lifecycle == "deleted":
            self._sessions.known.pop(session.id, None)
        await self._tell(ending, agent, session.id)
        await self._emitter.journal.settled()

    def _go_on(self, session: Session) -> None:
        """Settle a session that could not be ended: what was under way was, and says so."""
        if session.status == "prompting":
            self._emitter.session_event(session, "prompt-finished", {"stopReason": "cancelled"})
            self._emitter.status(session, "active")
        elif session.status == "resuming":
            self._emitter.status(session, "disconnected")

    async def _cancel_first(self, agent: Agent, session: Session) -> None:
        try:
            await agent.connection().notify("session/cancel", {"sessionId": session.id})
        except QuarterdeckError as error:
            self._complain(agent, session.id, "session/cancel-before-close-failed", str(error))

    def _clean_up(self, session: Session) -> None:
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

    async def _tell(self, ending: Ending, agent: Agent | None, session_id: str) -> None:
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
                    f"session/{ending}", {"sessionId": session_id}, timeout_seconds=30
                )
            except RpcError as error:
                self._complain(agent, session_id, f"session/{ending}-failed", error.message)
            except ConnectionFailed as error:
                self._complain(agent, session_id, f"session/{ending}-failed", str(error))

        self._in_background(tell)
        # The task writes in its first step: what our caller sends next, which may be a load of this
        # very session, does not overtake it.
        await anyio.lowlevel.checkpoint()

    def _complain(self, agent: Agent, session_id: str, code: str, message: str) -> None:
        self._emitter.diagnostic("warn", code, message, agent_id=agent.id, session_id=session_id)

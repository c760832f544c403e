"""Ends sessions: close, delete, and the end of their agent.

The order of a close or delete:

1. Void the operation under way; cancel a running turn at the agent.
2. Withdraw the session's pending requests, without answering the agent yet; end its terminals.
3. Commit the end (`Journal.commit_record`). If that fails, the session stays as it was.
4. Publish the new status, then notify the agent. Its answer changes nothing here.
5. Answer the withdrawn requests, after the agent has been notified, as acpjs does.

The whole is a `HostOperation`: it completes even if its caller is cancelled.
"""

from __future__ import annotations

from typing import Literal

import anyio.lowlevel

from quarterdeck.errors import ConnectionFailed, QuarterdeckError, RpcError, StorageFailed
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.capabilities import TerminalHandler
from quarterdeck.host.checks import config_invalid, stop_sentence
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.operations import HostOperation, InBackground, OnUnobservedFailure
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.host.turns import Turns
from quarterdeck.protocol import has_agent
from quarterdeck.storage import SessionMeta

Ending = Literal["close", "delete"]

NOTIFY_SECONDS = 30.0  # for an agent to answer `session/close` or `session/delete`


class SessionTeardown:
    """Ends sessions in the host, and notifies their agents."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        requests: AllRequests,
        terminal: TerminalHandler | None,
        in_background: InBackground,
        turns: Turns,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._requests = requests
        self._terminal = terminal
        self._in_background = in_background
        self._turns = turns

    async def close(self, agent: AgentProcess | None, session: HostSession) -> None:
        await self._start("close", agent, session).wait()

    async def delete(self, agent: AgentProcess | None, session: HostSession) -> None:
        if self._sessions.staged.pop(session.id, None) is not None:
            session.void()
            await self.delete_unknown(agent, session.id)  # it was never published
            return
        await self._start("delete", agent, session).wait()

    def close_detached(self, agent: AgentProcess, session: HostSession) -> None:
        """Close a session without waiting: its caller was cancelled while it was created."""
        self._start("close", agent, session).detach()

    def _start(
        self, ending: Ending, agent: AgentProcess | None, session: HostSession
    ) -> HostOperation:
        on_unobserved_failure = self._on_unobserved_failure(ending, session.id)
        return HostOperation(
            self._in_background, lambda: self._end(ending, agent, session), on_unobserved_failure
        )

    def _on_unobserved_failure(self, ending: Ending, session_id: str) -> OnUnobservedFailure:
        def report(error: Exception) -> None:
            code = "storage/write-failed" if isinstance(error, StorageFailed) else _failed(ending)
            message = f"session {session_id} could not be ended: {error}"
            self._emitter.diagnostic("error", code, message, session_id=session_id)

        return report

    async def delete_unknown(self, agent: AgentProcess | None, session_id: str) -> None:
        """Delete a session that the host does not have: store a tombstone for its id."""

        async def delete() -> None:
            meta = SessionMeta(session_id=session_id, cwd="", lifecycle="deleted")
            await self._emitter.journal.commit_record(meta)
            self._sessions.tombstones[session_id] = "deleted"
            await self._notify("delete", agent, session_id)

        await HostOperation(
            self._in_background, delete, self._on_unobserved_failure("delete", session_id)
        ).wait()

    def disconnect(self, session: HostSession) -> None:
        """Disconnect a session whose agent has ended."""
        if session.id in self._sessions.staged:
            session.void()
            del self._sessions.staged[session.id]
            return
        if session.operation == "load" and session.status == "closed":
            session.void()  # it was being loaded again, and stays closed
        if not has_agent(session.status):
            return
        session.void()
        self._clean_up(session)
        self._emitter.close_tool_calls(session, "disconnected")
        self._emitter.set_status(session, "disconnected")

    async def _end(self, ending: Ending, agent: AgentProcess | None, session: HostSession) -> None:
        if session.operation in ("close", "delete"):
            raise config_invalid(f"session {session.id} is busy: {session.operation}")
        was_prompting = session.status == "prompting"
        session.void()
        generation, session.operation = session.generation, ending
        if was_prompting and agent is not None:
            self._cancel_first(agent, session)
        withdrawn = self._requests.withdraw(lambda request: request.session is session)
        try:
            self._clean_up(session)
            await self._commit(ending, session, generation)
            await self._notify(ending, agent, session.id)
        finally:
            # In `finally`: whatever fails above, the agent must not wait for its requests for ever.
            for request in withdrawn:
                request.release_superseded()
        try:
            await self._emitter.journal.wait_stored()
        finally:
            if ending == "delete":
                session.stream.end()

    async def _commit(self, ending: Ending, session: HostSession, generation: int) -> None:
        lifecycle: Literal["closed", "deleted"] = "closed" if ending == "close" else "deleted"
        try:
            await self._emitter.journal.commit_record(session.meta(lifecycle))
        except StorageFailed:
            if session.generation == generation:
                self._keep_open(session)
            raise
        finally:
            session.operation = None
        self._sessions.tombstones[session.id] = lifecycle
        self._emitter.close_tool_calls(session, lifecycle)
        self._emitter.set_status(session, lifecycle)
        if lifecycle == "deleted":
            self._sessions.known.pop(session.id, None)

    # ---- sessions that must stop ---------------------------------------------------------------

    def stop(
        self, agent: AgentProcess | None, session: HostSession, code: str, reason: str
    ) -> None:
        """Stop a session whose log gets no more events: close it, without an event in the log.

        Its turn is cancelled and its requests are withdrawn. What is queued for its log and what
        its agent still sends is dropped.
        """
        if session.stopped is not None:
            return
        session.stopped = self._sessions.stopped[session.id] = reason
        self._emitter.journal.stop_session(session.id)
        was_prompting = session.status == "prompting"
        session.void()
        if self._sessions.staged.get(session.id) is session:
            self._sessions.publish(session)
        self._sessions.tombstones[session.id] = "closed"
        session.status = "closed"
        if was_prompting and agent is not None:
            self._cancel_first(agent, session)
        self._turns.abandon(session)
        self._requests.supersede(lambda request: request.session is session)
        self._clean_up(session)
        session.stream.discard()
        session.stream.release_tail()
        session.release_tool_calls()
        sentence = stop_sentence(session.id, reason)
        self._emitter.diagnostic("error", code, sentence, session_id=session.id)
        self._emitter.session_updated(session)
        self._in_background(lambda: self._notify("close", agent, session.id))

    def restore_status(
        self, session: HostSession, status: Literal["closed", "disconnected"]
    ) -> None:
        """Set the status that the log of a session has, which has changed without this host."""
        session.status = status
        lifecycle: Literal["open", "closed"] = "closed" if status == "closed" else "open"
        if status == "closed":
            self._sessions.tombstones[session.id] = "closed"
        else:
            self._sessions.tombstones.pop(session.id, None)
        self._emitter.journal.write_record(session.meta(lifecycle))
        self._emitter.session_updated(session)

    def supersede_requests(self, session: HostSession) -> None:
        """Withdraw all pending requests of a session, and answer its agent."""
        self._requests.supersede(lambda request: request.session is session)

    def _keep_open(self, session: HostSession) -> None:
        """Keep a session whose end could not be stored; its turn or opening has ended."""
        if session.status == "prompting":
            self._emitter.close_tool_calls(session, "cancelled")
            self._emitter.session_event(session, "prompt-finished", {"stopReason": "cancelled"})
            session.tool_calls.next_turn()
            self._emitter.set_status(session, "active")
        elif session.status == "resuming":
            self._emitter.set_status(session, "disconnected")

    def _cancel_first(self, agent: AgentProcess, session: HostSession) -> None:
        try:
            agent.connection().post("session/cancel", {"sessionId": session.id})
        except QuarterdeckError as error:
            self._report(agent, session.id, "session/cancel-before-close-failed", str(error))

    def _clean_up(self, session: HostSession) -> None:
        """End the terminals of a session, without waiting for them."""
        terminal = self._terminal
        if terminal is None:
            return

        async def clean() -> None:
            try:
                await terminal.cleanup_session(session.id)
            except Exception as error:  # noqa: BLE001 - a handler is foreign code
                reason = f"the terminals of {session.id} could not be ended: {error}"
                self._emitter.diagnostic(
                    "warn", "session/cleanup-failed", reason, session_id=session.id
                )

        self._in_background(clean)

    def close_at_agent(self, agent: AgentProcess, session_id: str) -> None:
        """Ask an agent to close a session that it opened for a caller that is gone."""
        if agent.can("close"):
            self._in_background(lambda: self._notify("close", agent, session_id))
        else:
            message = f"session {session_id} stays open: its agent cannot close sessions"
            self._report(agent, session_id, "session/abandoned", message)

    async def _notify(self, ending: Ending, agent: AgentProcess | None, session_id: str) -> None:
        """Notify the agent, if it supports that; its answer changes nothing here."""
        if agent is None or not agent.can(ending):
            return
        if agent.status != "ready":
            self._report(agent, session_id, f"session/{ending}-skipped", "agent is not ready")
            return
        connection = agent.connection()

        async def call() -> None:
            try:
                await connection.call(
                    f"session/{ending}", {"sessionId": session_id}, timeout_seconds=NOTIFY_SECONDS
                )
            except RpcError as error:
                self._report(agent, session_id, _failed(ending), error.message)
            except ConnectionFailed as error:
                self._report(agent, session_id, _failed(ending), str(error))

        self._in_background(call)
        # The task writes in its first step: the caller's next message, maybe a load of the same
        # session, must not overtake it.
        await anyio.lowlevel.checkpoint()

    def _report(self, agent: AgentProcess, session_id: str, code: str, message: str) -> None:
        message = agent.secrets.hidden(message)
        self._emitter.diagnostic("warn", code, message, agent_id=agent.id, session_id=session_id)


def _failed(ending: Ending) -> str:
    return f"session/{ending}-failed"

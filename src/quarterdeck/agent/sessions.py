"""`AgentSessions`: opens, finds, closes and deletes the sessions of one served agent.

A session belongs to the client connection that opened it; requests from other clients are
rejected. Opening, closing and deleting the same session happen one after the other, in the order
of the requests (`alone`), because clients need not wait for a response before the next request.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from quarterdeck.agent.checks import McpServer, invalid
from quarterdeck.agent.definition import ServedAgent
from quarterdeck.agent.session import (
    AgentSession,
    ClientLink,
    GrowingOutput,
    call_failed,
    follow_call,
    recorded_update,
)
from quarterdeck.agent.store import SessionRecord, SessionStore, StoredSession
from quarterdeck.errors import RpcError, StorageFailed
from quarterdeck.jsontext import encode_json
from quarterdeck.wire import INVALID_REQUEST, rpc_error

HOOK_SECONDS: Final = 5.0
"""Limit for the agent's `close_session`, and before that for a cancelled turn to end."""

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionParams:
    """The validated params of new, load and resume: folders and MCP servers."""

    cwd: Path
    additional: Sequence[Path]
    mcp_servers: Sequence[McpServer]


class UnknownSession(RpcError):
    """There is no such session, or it is not open."""

    def __init__(self, sentence: str) -> None:
        error = invalid(sentence)
        super().__init__(error.code, error.message, error.data)
        self.sentence = sentence


class _Queue:
    """Requests that open, close or delete one session."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.length = 0


class AgentSessions:
    """All open sessions of one agent."""

    def __init__(
        self, agent: ServedAgent, store: SessionStore | None, initial_message: str | None
    ) -> None:
        self.agent = agent
        self.store = store
        self._initial_message = initial_message
        self._open: dict[str, AgentSession] = {}
        self._queues: dict[str, _Queue] = {}

    def find(self, session_id: str, link: ClientLink) -> AgentSession:
        """Return an open session.

        Raises:
            RpcError: if it is not open, or belongs to another client.
        """
        session = self._open.get(session_id)
        if session is None:
            raise _unknown(session_id, can_load=self.store is not None)
        if session.link is not link:
            raise _foreign(session_id)
        return session

    def listed(self, link: ClientLink, cwd: str | None) -> list[dict[str, Any]]:
        """Return the open sessions of a client as `session/list` does."""
        return [
            {"sessionId": session.id, "cwd": str(session.cwd)}
            for session in self._open.values()
            if session.link is link and cwd in (None, str(session.cwd))
        ]

    @asynccontextmanager
    async def alone(self, session_id: str) -> AsyncIterator[None]:
        """Run after earlier requests for this session, and before later ones.

        A load sent right after a close, without waiting for its response, finds it closed.
        """
        queue = self._queues.setdefault(session_id, _Queue())
        queue.length += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[session_id]

    async def create(self, link: ClientLink, params: SessionParams) -> AgentSession:
        """Open a new session."""
        with self._reserved(link):
            return await self._create(link, params)

    async def _create(self, link: ClientLink, params: SessionParams) -> AgentSession:
        session_id = f"session-{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"
        record = SessionRecord(
            cwd=str(params.cwd),
            additional_directories=tuple(map(str, params.additional)),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            mode=self.agent.default_mode,
            initial_message=self._initial_message,
        )
        stored = None
        if self.store is not None:
            stored = await _open_shielded(self.store.create, session_id, record)
        session = AgentSession(
            session_id,
            self.agent,
            link,
            record,
            mcp_servers=params.mcp_servers,
            stored=stored,
        )
        try:
            await self._enter(session)
        except BaseException:
            if self.store is not None and stored is not None:
                stored.close()
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(self.store.delete, session_id)
            raise
        return session

    async def reopen(
        self, session_id: str, link: ClientLink, params: SessionParams, *, replay: bool
    ) -> AgentSession:
        """Open a stored session, and send its whole history if `replay`."""
        if session_id in self._open:
            if self.find(session_id, link).turn is not None:
                raise rpc_error(INVALID_REQUEST, "prompt already running")
            await self.close(session_id, link)
        with self._reserved(link):
            return await self._reopen(session_id, link, params, replay=replay)

    async def _reopen(
        self, session_id: str, link: ClientLink, params: SessionParams, *, replay: bool
    ) -> AgentSession:
        stored = await self._open_stored(session_id)
        try:
            record = self._record(stored, params)
            if record != stored.record:  # a load must succeed on a full disk
                await to_thread.run_sync(stored.save, record)
            session = AgentSession(
                session_id,
                self.agent,
                link,
                record,
                mcp_servers=params.mcp_servers,
                stored=stored,
            )
            if replay:
                await _replay(session, stored)
            await self._enter(session)
        except BaseException:
            stored.close()
            raise
        return session

    async def close(self, session_id: str, link: ClientLink) -> None:
        """Cancel the running turn of a session and close it."""
        await self._close(self.find(session_id, link))

    async def delete(self, session_id: str, link: ClientLink) -> None:
        """Delete a session permanently, open or not."""
        assert self.store is not None, "without a store there is no session/delete"
        if session_id in self._open:
            await self.close(session_id, link)
        # Deleting a session that does not exist succeeds silently, as ACP requires.
        await to_thread.run_sync(self.store.delete, session_id)

    async def close_all(self, link: ClientLink) -> None:
        """Close every session of a disconnected client."""
        mine = [session for session in self._open.values() if session.link is link]
        async with anyio.create_task_group() as tasks:
            for session in mine:
                tasks.start_soon(self._close, session)

    @contextmanager
    def _reserved(self, link: ClientLink) -> Iterator[None]:
        """Reserve a slot for a session; raises `RpcError` at the client's limit."""
        mine = sum(session.link is link for session in self._open.values()) + link.opening
        if link.max_sessions is not None and mine >= link.max_sessions:
            reason = f"this client has {mine} sessions open, which is all it may have"
            raise rpc_error(INVALID_REQUEST, f"{reason}; close one with session/close")
        link.opening += 1
        try:
            yield
        finally:
            link.opening -= 1

    async def _enter(self, session: AgentSession) -> None:
        if self.agent.open_session is not None:
            await self.agent.open_session(session)
        try:
            session.fill_config()
        except BaseException:
            await self._run_close_hook(session)
            raise
        self._open[session.id] = session

    async def _close(self, session: AgentSession) -> None:
        if self._open.pop(session.id, None) is None:
            return  # closed concurrently
        try:
            if session.turn is not None:
                session.turn.cancel()
                with anyio.move_on_after(HOOK_SECONDS):
                    await session.wait_idle()
            await self._run_close_hook(session)
        finally:
            session.is_open = False
            await _sync_and_close(session)

    async def _run_close_hook(self, session: AgentSession) -> None:
        if self.agent.close_session is None:
            return
        try:
            with anyio.move_on_after(HOOK_SECONDS):
                await self.agent.close_session(session)
        except Exception:  # the agent's code failed; the session is closed anyway
            logger.exception("the agent failed to close a session")

    async def _open_stored(self, session_id: str) -> StoredSession:
        if self.store is None:
            raise _unknown(session_id, can_load=False)
        stored = await _open_shielded(self.store.open, session_id)
        if stored is None:
            raise UnknownSession(f"session not found: {session_id}")
        return stored

    def _record(self, stored: StoredSession, params: SessionParams) -> SessionRecord:
        modes = [mode["id"] for mode in self.agent.modes]
        mode = stored.record.mode if stored.record.mode in modes else self.agent.default_mode
        return replace(
            stored.record,
            cwd=str(params.cwd),
            additional_directories=tuple(map(str, params.additional)),
            mode=mode,
        )


async def _open_shielded(open_files: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Open files in a thread, shielded: a cancellation must not leak them."""
    with anyio.CancelScope(shield=True):
        return await to_thread.run_sync(lambda: open_files(*arguments, **named))
    raise AssertionError("the scope is never cancelled")


async def _replay(session: AgentSession, stored: StoredSession) -> None:
    """Send the recorded updates; tool calls without a recorded end are reported as failed.

    Those failures are not recorded, because a load must succeed on a full disk.
    """
    batches = stored.updates()
    unfinished: dict[str, None] = {}
    growing = GrowingOutput()

    def next_batch() -> list[bytes] | None:
        batch = next(batches, None)
        if batch is None:
            return None
        return [whole for line in batch if (whole := restored(line)) is not None]

    def restored(line: bytes) -> bytes | None:
        recorded = recorded_update(line)
        update = None if recorded is None else growing.restored(recorded)
        if update is None:
            logger.warning("skipped a damaged line of a recorded session")
            return None
        growing.follow(update)
        follow_call(update, unfinished)
        return line if update is recorded else encode_json(dict(update))

    while (batch := await to_thread.run_sync(next_batch)) is not None:
        for line in batch:
            await session.room()
            session.post_history(line)
    for call_id in unfinished:
        session.post_history(encode_json(call_failed(call_id)))
    session.end_history()


async def _sync_and_close(session: AgentSession) -> None:
    if session.stored is None:
        return
    try:
        with anyio.CancelScope(shield=True):
            await session.sync()
    except StorageFailed as error:
        logger.error("a session was closed before it was synced to disk: %s", error)  # noqa: TRY400
    finally:
        session.stored.close()


def _unknown(session_id: str, *, can_load: bool) -> RpcError:
    hint = "; open it with session/load or session/resume" if can_load else ""
    return UnknownSession(f"session not found: {session_id}{hint}")


def _foreign(session_id: str) -> RpcError:
    return rpc_error(INVALID_REQUEST, f"{session_id} is open at another client; close it there")

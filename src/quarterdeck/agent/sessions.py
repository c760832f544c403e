"""The sessions that are open: opened, found, closed, deleted, each by its own client only."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import anyio
from anyio import to_thread
from msgspec.structs import replace

from quarterdeck.agent.checks import McpServer, invalid
from quarterdeck.agent.definition import ServedAgent
from quarterdeck.agent.session import (
    AgentSession,
    ClientLink,
    Growth,
    call_failed,
    follow_call,
    recorded_update,
)
from quarterdeck.agent.store import SessionRecord, SessionStore, StoredSession
from quarterdeck.errors import RpcError, StorageFailed
from quarterdeck.jsontext import encode_json
from quarterdeck.wire import INVALID_REQUEST, rpc_error

HOOK_SECONDS: Final = 5.0
"""How long an agent may take to close a session, and a cancelled turn to end before that."""

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionParams:
    """Where a session is to work, and with what."""

    cwd: Path
    additional: Sequence[Path]
    mcp_servers: Sequence[McpServer]


class _Queue:
    """Those who want to open, close or delete one session."""

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
        """Return a session that is open.

        Raises:
            RpcError: if there is none, or it is another client's.
        """
        session = self._open.get(session_id)
        if session is None:
            raise _unknown(session_id, can_load=self.store is not None)
        if session.link is not link:
            raise _foreign(session_id)
        return session

    @asynccontextmanager
    async def alone(self, session_id: str) -> AsyncIterator[None]:
        """Wait for those who opened, closed or deleted this session before, and hold up the next.

        Clients need not wait for an answer: a load behind a close finds the session closed.
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

    async def create(self, link: ClientLink, place: SessionParams) -> AgentSession:
        """Open a new session."""
        with self._room(link):
            return await self._create(link, place)

    async def _create(self, link: ClientLink, place: SessionParams) -> AgentSession:
        session_id = f"session-{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"
        record = SessionRecord(
            cwd=str(place.cwd),
            additional_directories=tuple(map(str, place.additional)),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            mode=self.agent.default_mode,
            initial_message=self._initial_message,
        )
        stored = None
        if self.store is not None:
            stored = await _seen_through(self.store.create, session_id, record)
        session = AgentSession(
            session_id,
            self.agent,
            link,
            record,
            mcp_servers=place.mcp_servers,
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
        self, session_id: str, link: ClientLink, place: SessionParams, *, replay: bool
    ) -> AgentSession:
        """Open a session that was stored, and send its whole history if `replay`."""
        if session_id in self._open:
            if self.find(session_id, link).turn is not None:
                raise rpc_error(INVALID_REQUEST, "prompt already running")
            await self.close(session_id, link)
        with self._room(link):
            return await self._reopen(session_id, link, place, replay=replay)

    async def _reopen(
        self, session_id: str, link: ClientLink, place: SessionParams, *, replay: bool
    ) -> AgentSession:
        stored = await self._open_stored(session_id)
        try:
            record = self._record(stored, place)
            if record != stored.record:  # what is only read must be readable on a full disk
                await to_thread.run_sync(stored.save, record)
            session = AgentSession(
                session_id,
                self.agent,
                link,
                record,
                mcp_servers=place.mcp_servers,
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
        """Cancel what runs in a session and close it."""
        await self._close(self.find(session_id, link))

    async def delete(self, session_id: str, link: ClientLink) -> None:
        """Delete a session for good, open or not."""
        assert self.store is not None, "without a store there is no session/delete"
        if session_id in self._open:
            await self.close(session_id, link)
        # One that is not there was deleted before: ACP wants that to succeed silently.
        await to_thread.run_sync(self.store.delete, session_id)

    async def close_all(self, link: ClientLink) -> None:
        """Close every session of a client that is gone."""
        mine = [session for session in self._open.values() if session.link is link]
        async with anyio.create_task_group() as tasks:
            for session in mine:
                tasks.start_soon(self._close, session)

    @contextmanager
    def _room(self, link: ClientLink) -> Iterator[None]:
        """Refuse a session that would be one too many for its client."""
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
            await self._let_agent_close(session)
            raise
        self._open[session.id] = session

    async def _close(self, session: AgentSession) -> None:
        if self._open.pop(session.id, None) is None:
            return  # somebody else was faster
        try:
            if session.turn is not None:
                session.turn.cancel()
                with anyio.move_on_after(HOOK_SECONDS):
                    await session.wait_idle()
            await self._let_agent_close(session)
        finally:
            session.is_open = False
            await _put_away(session)

    async def _let_agent_close(self, session: AgentSession) -> None:
        if self.agent.close_session is None:
            return
        try:
            with anyio.move_on_after(HOOK_SECONDS):
                await self.agent.close_session(session)
        except Exception:  # an agent's code: the session is closed all the same
            logger.exception("the agent failed to close a session")

    async def _open_stored(self, session_id: str) -> StoredSession:
        if self.store is None:
            raise _unknown(session_id, can_load=False)
        stored = await _seen_through(self.store.open, session_id)
        if stored is None:
            raise invalid(f"session not found: {session_id}")
        return stored

    def _record(self, stored: StoredSession, place: SessionParams) -> SessionRecord:
        modes = [mode["id"] for mode in self.agent.modes]
        mode = stored.record.mode if stored.record.mode in modes else self.agent.default_mode
        return replace(
            stored.record,
            cwd=str(place.cwd),
            additional_directories=tuple(map(str, place.additional)),
            mode=mode,
        )


async def _seen_through(open_files: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Open something in a thread; a cancellation meanwhile must not lose it, open."""
    with anyio.CancelScope(shield=True):
        return await to_thread.run_sync(lambda: open_files(*arguments, **named))
    raise AssertionError("nobody cancels a scope of our own")


async def _replay(session: AgentSession, stored: StoredSession) -> None:
    """Send all there is; calls that were running when a process was killed are told to have failed.

    That they failed is not recorded: what is only read must be readable on a full disk.
    """
    batches = stored.updates()
    unfinished: dict[str, None] = {}
    growth = Growth()

    def next_batch() -> list[bytes] | None:
        batch = next(batches, None)
        if batch is None:
            return None
        return [whole for line in batch if (whole := restored(line)) is not None]

    def restored(line: bytes) -> bytes | None:
        recorded = recorded_update(line)
        update = None if recorded is None else growth.restored(recorded)
        if update is None:
            logger.warning("a damaged line of a recorded session is left out")
            return None
        growth.follow(update)
        follow_call(update, unfinished)
        return line if update is recorded else encode_json(dict(update))

    while (batch := await to_thread.run_sync(next_batch)) is not None:
        for line in batch:
            await session.room()
            session.post(line)
    for call_id in unfinished:
        session.post(encode_json(call_failed(call_id)))


async def _put_away(session: AgentSession) -> None:
    if session.stored is None:
        return
    try:
        with anyio.CancelScope(shield=True):
            await session.sync()
    except StorageFailed as error:
        logger.error("a session was closed without being on disk: %s", error)  # noqa: TRY400
    finally:
        session.stored.close()


def _unknown(session_id: str, *, can_load: bool) -> RpcError:
    hint = "; open it with session/load or session/resume" if can_load else ""
    return invalid(f"session not found: {session_id}{hint}")


def _foreign(session_id: str) -> RpcError:
    return rpc_error(INVALID_REQUEST, f"{session_id} is open at another client; close it there")

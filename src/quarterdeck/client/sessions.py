"""The sessions of a host, as a client sees and commands them.

All sessions that are not closed or deleted are mirrored; the events of one are followed only once
somebody asks for its store, so that a host with ten thousand sessions costs a client a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quarterdeck.client.link import Link
from quarterdeck.client.listeners import Listener, Unsubscribe
from quarterdeck.client.mirror import Mirror
from quarterdeck.client.session import Session
from quarterdeck.client.snapshots import read_session, read_sessions
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, AcpRpcMethod, SessionSnapshotWire

McpServers = Sequence[Mapping[str, Any]]
_OVER = ("closed", "deleted")


class Sessions:
    """A live copy of the host's sessions. Calls raise `AcpError`."""

    def __init__(self, link: Link) -> None:
        self.mirror: Mirror[SessionSnapshotWire] = Mirror()
        self._link = link
        self._handles: dict[str, Session] = {}

    def get(self, session_id: str) -> Session | None:
        """Return the handle of a session that is known here and not over."""
        snapshot = self.mirror.get(session_id)
        return None if snapshot is None else self._handle(snapshot)

    def all(self) -> tuple[Session, ...]:
        return tuple(self._handle(snapshot) for snapshot in self.mirror.all())

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` when a session comes, goes, or its snapshot changes."""
        return self.mirror.subscribe(listener)

    async def create(
        self,
        agent_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers = (),
        additional_directories: Sequence[str] = (),
    ) -> Session:
        params = _place(cwd, mcp_servers, additional_directories)
        with self.mirror.question() as told:
            answer = await self._link.call(
                AcpRpcMethod.CREATE_SESSION, {"agentId": agent_id, **params}
            )
            snapshot = read_session(answer)
            self._take((snapshot,), told)
        return self._opened(snapshot.session_id)

    async def load(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers = (),
        additional_directories: Sequence[str] = (),
    ) -> Session:
        """Load a session with its history from its agent, also one that was closed."""
        ids = {"agentId": agent_id, "sessionId": session_id}
        params = _place(cwd, mcp_servers, additional_directories)
        await self._link.call(AcpRpcMethod.LOAD_SESSION, {**ids, **params})
        return await self._found(session_id)

    async def resume(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers | None = None,
        additional_directories: Sequence[str] = (),
    ) -> Session:
        """Go on with a session without its history."""
        ids = {"agentId": agent_id, "sessionId": session_id}
        params = _place(cwd, mcp_servers, additional_directories)
        await self._link.call(AcpRpcMethod.RESUME_SESSION, {**ids, **params})
        return await self._found(session_id)

    async def list(
        self, agent_id: str, *, cursor: str | None = None, cwd: str | None = None
    ) -> Any:
        """Ask an agent for the sessions that it knows; returns its answer as it is."""
        given = {"agentId": agent_id, "cursor": cursor, "cwd": cwd}
        params = {name: value for name, value in given.items() if value is not None}
        return await self._link.call(AcpRpcMethod.LIST_SESSIONS, params)

    async def delete(self, agent_id: str, session_id: str) -> None:
        params = {"agentId": agent_id, "sessionId": session_id}
        await self._link.call(AcpRpcMethod.DELETE_SESSION, params)

    async def restore(self) -> tuple[Session, ...]:
        """Let the host bring back what its storage has; return the sessions that are new."""
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.RESTORE_SESSIONS, {})
            restored = read_sessions(answer)
            self._take(restored, told)
        handles = (self.get(snapshot.session_id) for snapshot in restored)
        return tuple(handle for handle in handles if handle is not None)

    async def refresh(self) -> None:
        """Ask the host for all sessions."""
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.GET_ALL_SESSIONS, {})
            listed = read_sessions(answer)
            current = {each.session_id: each for each in listed if each.status not in _OVER}
            self.mirror.replace_answer(current, told)
            for session_id in [key for key in self._handles if self.mirror.get(key) is None]:
                self._handles.pop(session_id).end()
            self._tell_handles(current)

    # ---- for `Client` --------------------------------------------------------------------

    def tell(self, snapshot: SessionSnapshotWire) -> None:
        """Take in what an event told of a session."""
        handle = self._handles.get(snapshot.session_id)
        if handle is not None:
            handle.tell(snapshot)
        if snapshot.status in _OVER:
            self._handles.pop(snapshot.session_id, None)
            if handle is not None:
                handle.end()
            self.mirror.remove(snapshot.session_id)
        else:
            self.mirror.put(snapshot.session_id, snapshot)

    def lose_stream(self, session_id: str) -> None:
        if session_id in self._handles:
            self._handles[session_id].lose_stream()

    def end(self) -> None:
        """Stop following all sessions; handles and stores keep what they have."""
        for handle in self._handles.values():
            handle.end()

    def _take(self, snapshots: Sequence[SessionSnapshotWire], told: set[str]) -> None:
        current = {each.session_id: each for each in snapshots if each.status not in _OVER}
        self.mirror.add_answer(current, told)
        self._tell_handles(current)

    def _tell_handles(self, named: Mapping[str, SessionSnapshotWire]) -> None:
        for session_id in named:
            handle, snapshot = self._handles.get(session_id), self.mirror.get(session_id)
            if handle is not None and snapshot is not None:
                handle.tell(snapshot)

    def _handle(self, snapshot: SessionSnapshotWire) -> Session:
        handle = self._handles.get(snapshot.session_id)
        if handle is None:
            handle = self._handles[snapshot.session_id] = Session(self._link, snapshot)
        return handle

    async def _found(self, session_id: str) -> Session:
        if self.mirror.get(session_id) is None:  # a host whose answers overtake its events
            await self.refresh()
        return self._opened(session_id)

    def _opened(self, session_id: str) -> Session:
        handle = self.get(session_id)
        if handle is None:
            message = f"session {session_id} was ended meanwhile"
            raise AcpError(ERROR_CODES["session_closed"], message)
        _ = handle.store  # follow it from here on
        return handle


def _place(
    cwd: str, mcp_servers: McpServers | None, additional_directories: Sequence[str]
) -> dict[str, Any]:
    params: dict[str, Any] = {
        "cwd": cwd,
        "additionalDirectories": list(additional_directories),
    }
    if mcp_servers is not None:
        params["mcpServers"] = [dict(server) for server in mcp_servers]
    return params

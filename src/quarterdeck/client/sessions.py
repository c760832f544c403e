"""The sessions of a host, as a client sees and commands them.

All sessions that are not closed or deleted are mirrored; the events of one are followed only once
somebody asks for its store, so that a host with ten thousand sessions costs a client a list.

One session in a client's hands.

The live state of one session: its events, folded as they come.

    an event of another session     ignored
    an event that is not new        ignored, except `session-reset`, which always counts
    any other event                 moves `last_seq`; listeners hear of it if the state changed

Gaps are accepted: what is missing is the business of whoever delivers. After a `session-reset` the
numbering is that of the reset: our host goes on, others start again. The host's own word on a
session (`apply_projection`) may come ahead of the session's events and never moves `last_seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.client.link import Link, Listener, Listeners, Unsubscribe
from quarterdeck.client.mirror import Mirror, read_session, read_sessions
from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ERROR_CODES,
    AcpRpcMethod,
    Event,
    SessionConfigValue,
    SessionSnapshotWire,
    SessionState,
    initial_state,
    reduce,
    to_json,
)


class LiveSession:
    """What a session looks like now."""

    def __init__(self, session_id: str) -> None:
        self.state: SessionState = initial_state(session_id)
        self.last_seq = 0
        self._session_id = session_id
        self._listeners = Listeners()

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` after each change of `state`."""
        return self._listeners.add(listener)

    def apply(self, event: Event) -> None:
        """Take in an event of the session's stream."""
        if event.session_id != self._session_id:
            return
        if event.seq <= self.last_seq and event.type != "session-reset":
            return
        self.last_seq = event.seq
        self._move(reduce(self.state, event))

    def apply_projection(self, snapshot: SessionSnapshotWire) -> bool:
        """Take in the host's own word; tell whether it was news."""
        if snapshot.session_id != self._session_id:
            return False
        before, info = self.state, self.state.info
        title = info.title if snapshot.title is UNSET else snapshot.title
        updated_at = info.updated_at if snapshot.updated_at is UNSET else snapshot.updated_at
        after = replace(
            before,
            connection=replace(before.connection, status=snapshot.status),
            info=replace(info, title=title, updated_at=updated_at),
        )
        if (after.connection, after.info) == (before.connection, before.info):
            return False
        self._move(after)
        return True

    def _move(self, state: SessionState) -> None:
        if state is not self.state:
            self.state = state
            self._listeners.notify()


Prompt = str | Sequence[Mapping[str, Any]]
ConfigValue = SessionConfigValue | Mapping[str, Any] | str | bool


class SessionHandle:
    """A handle; there is one per session and client until it is closed or deleted."""

    def __init__(self, link: Link, snapshot: SessionSnapshotWire) -> None:
        self.id = snapshot.session_id
        self.snapshot = snapshot
        """The host's word on the session, kept up to date."""
        self._link = link
        self._store = LiveSession(self.id)
        self._unfollow: Unsubscribe | None = None
        self._listening: dict[object, Unsubscribe] = {}
        self._has_ended = False

    @property
    def store(self) -> LiveSession:
        """The live state. It begins to follow the session when it is first asked for.

        Raises:
            AcpError: if it cannot be followed: closed, deleted, or no connection.
        """
        if self._unfollow is None and not self._has_ended and self._link.status != "closed":
            self._store.apply_projection(self.snapshot)
            self._unfollow = self._link.follow(self.id, self._store.last_seq, self._store.apply)
        return self._store

    def on_event(
        self, listener: Callable[[Event], None], *, from_seq: int | None = None
    ) -> Unsubscribe:
        """Call `listener` with each event after `from_seq`, or after what the store has seen."""
        start = self.store.last_seq if from_seq is None else from_seq
        key = object()
        self._listening[key] = self._link.follow(self.id, start, listener)
        return lambda: self._stop_listening(key)

    async def prompt(self, prompt: Prompt) -> dict[str, Any]:
        """Run one turn; return its stop reason, usage and error."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        result: dict[str, Any] = await self._call(AcpRpcMethod.PROMPT, prompt=blocks)
        return result

    async def cancel(self) -> None:
        await self._call(AcpRpcMethod.CANCEL)

    async def close(self) -> None:
        await self._call(AcpRpcMethod.CLOSE_SESSION)

    async def set_mode(self, mode_id: str) -> None:
        await self._call(AcpRpcMethod.SET_MODE, modeId=mode_id)

    async def set_config_option(self, config_id: str, value: ConfigValue) -> list[Any]:
        """Change an option; return all options as they are then."""
        given = to_json(value) if isinstance(value, SessionConfigValue) else value
        method = AcpRpcMethod.SET_CONFIG_OPTION
        options: list[Any] = await self._call(method, configId=config_id, value=given)
        return options

    # ---- for `SessionCollection` ---------

    def tell(self, snapshot: SessionSnapshotWire) -> None:
        """Take in the host's word."""
        self.snapshot = snapshot
        if self._unfollow is not None:
            self._store.apply_projection(snapshot)

    def lose_stream(self) -> None:
        """Take the store's stream for ended: it is followed again when next asked for."""
        self._unfollow = None

    def end(self) -> None:
        """Stop following; what the store has it keeps."""
        self._has_ended = True
        for key in tuple(self._listening):
            self._stop_listening(key)
        if self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _stop_listening(self, key: object) -> None:
        stop = self._listening.pop(key, None)
        if stop is not None:
            stop()

    async def _call(self, method: AcpRpcMethod, **params: Any) -> Any:
        return await self._link.call(method, {"sessionId": self.id, **params})


McpServers = Sequence[Mapping[str, Any]]
_OVER = ("closed", "deleted")


class SessionCollection:
    """A live copy of the host's sessions. Calls raise `AcpError`."""

    def __init__(self, link: Link) -> None:
        self.mirror: Mirror[SessionSnapshotWire] = Mirror()
        self._link = link
        self._handles: dict[str, SessionHandle] = {}

    def get(self, session_id: str) -> SessionHandle | None:
        """Return the handle of a session that is known here and not over."""
        snapshot = self.mirror.get(session_id)
        return None if snapshot is None else self._handle(snapshot)

    def all(self) -> tuple[SessionHandle, ...]:
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
    ) -> SessionHandle:
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
    ) -> SessionHandle:
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
    ) -> SessionHandle:
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

    async def restore(self) -> tuple[SessionHandle, ...]:
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

    def _handle(self, snapshot: SessionSnapshotWire) -> SessionHandle:
        handle = self._handles.get(snapshot.session_id)
        if handle is None:
            handle = self._handles[snapshot.session_id] = SessionHandle(self._link, snapshot)
        return handle

    async def _found(self, session_id: str) -> SessionHandle:
        if self.mirror.get(session_id) is None:  # a host whose answers overtake its events
            await self.refresh()
        return self._opened(session_id)

    def _opened(self, session_id: str) -> SessionHandle:
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

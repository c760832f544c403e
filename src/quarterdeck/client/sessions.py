"""The sessions of a host, as a client sees and controls them.

`SessionCollection` mirrors all sessions that are not closed or deleted. `SessionHandle` controls
one. `LiveSession`, its store, is the state of one, reduced from its events. A handle subscribes to
the events only when its store is first used, so that a host with ten thousand sessions costs a
client no more than a list.

How `LiveSession.apply` treats an event:

    an event of another session     ignored
    an event that is not new        ignored, except `session-reset`, which always counts
    any other event                 moves `last_seq`; subscribers are called if the state changed

Gaps are accepted: completeness is the transport's duty. After a `session-reset` the numbering is
that of the reset: this host continues it, other hosts start again at 1. A snapshot of the host
(`apply_snapshot`) may arrive before the session's events and never moves `last_seq`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.client.connection import ChangeSubscribers, ClientConnection, OnChange, Unsubscribe
from quarterdeck.client.mirror import Mirror, read_session, read_sessions
from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ERROR_CODES,
    AcpRpcMethod,
    Event,
    PromptResult,
    SessionConfigOption,
    SessionConfigValue,
    SessionSnapshotWire,
    SessionState,
    initial_state,
    reduce,
    to_json,
)


class LiveSession:
    """The live state of a session."""

    def __init__(self, session_id: str) -> None:
        self.state: SessionState = initial_state(session_id)
        self.last_seq = 0
        self._session_id = session_id
        self._subscribers = ChangeSubscribers()

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        """Call `subscriber` after each change of `state`."""
        return self._subscribers.add(subscriber)

    def apply(self, event: Event) -> None:
        """Reduce an event of the session."""
        if event.session_id != self._session_id:
            return
        if event.seq <= self.last_seq and event.type != "session-reset":
            return
        self.last_seq = event.seq
        self._move(reduce(self.state, event))

    def reset(self) -> None:
        """Forget all events: the log has gone back or was replaced, and they come again."""
        self.last_seq = 0
        self._move(initial_state(self._session_id))

    def apply_snapshot(self, snapshot: SessionSnapshotWire) -> bool:
        """Apply a snapshot of the host; return whether it changed the state."""
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
            self._subscribers.notify()


Prompt = str | Sequence[Mapping[str, Any]]
ConfigValue = SessionConfigValue | Mapping[str, Any] | str | bool


class SessionHandle:
    """Controls one session; a client has one handle per session until it is closed or deleted."""

    def __init__(self, link: ClientConnection, snapshot: SessionSnapshotWire) -> None:
        self.id = snapshot.session_id
        self.snapshot = snapshot
        """The host's snapshot of the session, kept up to date."""
        self._link = link
        self._store = LiveSession(self.id)
        self._unsubscribe: Unsubscribe | None = None
        self._event_listeners: dict[object, Unsubscribe] = {}
        self._has_ended = False

    @property
    def store(self) -> LiveSession:
        """The live state. The first use subscribes to the session's events.

        Raises:
            AcpError: if that fails: the session is closed or deleted, or there is no connection.
        """
        if self._unsubscribe is None and not self._has_ended and self._link.status != "closed":
            self._store.apply_snapshot(self.snapshot)
            self._unsubscribe = self._link.subscribe_events(
                self.id,
                self._store.last_seq,
                self._store.apply,
                epoch=self._link.epoch_of(self.id),
                on_reset=self._store.reset,
            )
        return self._store

    def on_event(
        self,
        subscriber: Callable[[Event], None],
        *,
        from_seq: int | None = None,
        epoch: str = "",
        on_reset: Callable[[], None] | None = None,
    ) -> Unsubscribe:
        """Call `subscriber` with each event after `from_seq`; by default after the store's last.

        A number of an earlier connection needs the `epoch` it was of (`Client.connection.epoch_of`
        then). If the log has gone back since, `on_reset` is called and all events come again.
        """
        start, given = from_seq, epoch
        if start is None:
            start, given = self.store.last_seq, self._link.epoch_of(self.id)
        key = object()
        self._event_listeners[key] = self._link.subscribe_events(
            self.id, start, subscriber, epoch=given, on_reset=on_reset
        )
        return lambda: self._remove_listener(key)

    async def prompt(self, prompt: Prompt) -> PromptResult:
        """Run one turn; return its stop reason, usage and error (see `raise_for_error`)."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        return PromptResult(await self._call(AcpRpcMethod.PROMPT, prompt=blocks))

    async def cancel(self) -> None:
        await self._call(AcpRpcMethod.CANCEL)

    async def close(self) -> None:
        await self._call(AcpRpcMethod.CLOSE_SESSION)

    async def set_mode(self, mode_id: str) -> None:
        await self._call(AcpRpcMethod.SET_MODE, modeId=mode_id)

    async def set_config_option(
        self, config_id: str, value: ConfigValue
    ) -> list[SessionConfigOption]:
        """Change an option; return all options as they are then."""
        given = to_json(value) if isinstance(value, SessionConfigValue) else value
        method = AcpRpcMethod.SET_CONFIG_OPTION
        options: list[SessionConfigOption] = await self._call(
            method, configId=config_id, value=given
        )
        return options

    # ---- for `SessionCollection` ---------------------------------------------------------

    def apply_snapshot(self, snapshot: SessionSnapshotWire) -> None:
        """Apply a snapshot of the host."""
        self.snapshot = snapshot
        if self._unsubscribe is not None:
            self._store.apply_snapshot(snapshot)

    def drop_stream(self) -> None:
        """Forget the store's subscription, which has ended; the next use subscribes again."""
        self._unsubscribe = None

    def end(self) -> None:
        """Unsubscribe; the store keeps its state."""
        self._has_ended = True
        for key in tuple(self._event_listeners):
            self._remove_listener(key)
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _remove_listener(self, key: object) -> None:
        stop = self._event_listeners.pop(key, None)
        if stop is not None:
            stop()

    async def _call(self, method: AcpRpcMethod, **params: Any) -> Any:
        return await self._link.call(method, {"sessionId": self.id, **params})


McpServers = Sequence[Mapping[str, Any]]
_OVER = ("closed", "deleted")


class SessionCollection:
    """A live copy of the host's sessions. Calls raise `AcpError`."""

    def __init__(self, link: ClientConnection) -> None:
        self.mirror: Mirror[SessionSnapshotWire] = Mirror()
        self._link = link
        self._handles: dict[str, SessionHandle] = {}

    def get(self, session_id: str) -> SessionHandle | None:
        """Return the handle of a session that is known and has not ended."""
        snapshot = self.mirror.get(session_id)
        return None if snapshot is None else self._handle(snapshot)

    def all(self) -> tuple[SessionHandle, ...]:
        return tuple(self._handle(snapshot) for snapshot in self.mirror.all())

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        """Call `subscriber` when a session is added or removed, or its snapshot changes."""
        return self.mirror.subscribe(subscriber)

    async def create(
        self,
        agent_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers = (),
        additional_directories: Sequence[str] = (),
    ) -> SessionHandle:
        params = _folder_params(cwd, mcp_servers, additional_directories)
        with self.mirror.fetching() as changed:
            answer = await self._link.call(
                AcpRpcMethod.CREATE_SESSION, {"agentId": agent_id, **params}
            )
            snapshot = read_session(answer)
            self._merge((snapshot,), changed)
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
        """Load a session with its history from its agent; also reopens a closed one."""
        ids = {"agentId": agent_id, "sessionId": session_id}
        params = _folder_params(cwd, mcp_servers, additional_directories)
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
        """Reopen a session at its agent without replaying its history."""
        ids = {"agentId": agent_id, "sessionId": session_id}
        params = _folder_params(cwd, mcp_servers, additional_directories)
        await self._link.call(AcpRpcMethod.RESUME_SESSION, {**ids, **params})
        return await self._found(session_id)

    async def list(
        self, agent_id: str, *, cursor: str | None = None, cwd: str | None = None
    ) -> Any:
        """Fetch an agent's own list of sessions; returns its answer unchanged."""
        given = {"agentId": agent_id, "cursor": cursor, "cwd": cwd}
        params = {name: value for name, value in given.items() if value is not None}
        return await self._link.call(AcpRpcMethod.LIST_SESSIONS, params)

    async def delete(self, agent_id: str, session_id: str) -> None:
        params = {"agentId": agent_id, "sessionId": session_id}
        await self._link.call(AcpRpcMethod.DELETE_SESSION, params)

    async def restore(self) -> tuple[SessionHandle, ...]:
        """Make the host restore the sessions that its storage has; return those that were added."""
        with self.mirror.fetching() as changed:
            answer = await self._link.call(AcpRpcMethod.RESTORE_SESSIONS, {})
            restored = read_sessions(answer)
            self._merge(restored, changed)
        handles = (self.get(snapshot.session_id) for snapshot in restored)
        return tuple(handle for handle in handles if handle is not None)

    async def refresh(self) -> None:
        """Fetch all sessions from the host."""
        with self.mirror.fetching() as changed:
            answer = await self._link.call(AcpRpcMethod.GET_ALL_SESSIONS, {})
            listed = read_sessions(answer)
            current = {each.session_id: each for each in listed if each.status not in _OVER}
            self.mirror.replace(current, changed)
            for session_id in [key for key in self._handles if self.mirror.get(key) is None]:
                self._handles.pop(session_id).end()
            self._apply_to_handles(current)

    # ---- for `Client` --------------------------------------------------------------------

    def apply_snapshot(self, snapshot: SessionSnapshotWire) -> None:
        """Apply the snapshot of an event."""
        handle = self._handles.get(snapshot.session_id)
        if handle is not None:
            handle.apply_snapshot(snapshot)
        if snapshot.status in _OVER:
            self._handles.pop(snapshot.session_id, None)
            if handle is not None:
                handle.end()
            self.mirror.remove(snapshot.session_id)
        else:
            self.mirror.put(snapshot.session_id, snapshot)

    def drop_stream(self, session_id: str) -> None:
        if session_id in self._handles:
            self._handles[session_id].drop_stream()

    def end(self) -> None:
        """Unsubscribe from all sessions; handles and stores keep their state."""
        for handle in self._handles.values():
            handle.end()

    def _merge(self, snapshots: Sequence[SessionSnapshotWire], changed: set[str]) -> None:
        current = {each.session_id: each for each in snapshots if each.status not in _OVER}
        self.mirror.merge(current, changed)
        self._apply_to_handles(current)

    def _apply_to_handles(self, named: Mapping[str, SessionSnapshotWire]) -> None:
        for session_id in named:
            handle, snapshot = self._handles.get(session_id), self.mirror.get(session_id)
            if handle is not None and snapshot is not None:
                handle.apply_snapshot(snapshot)

    def _handle(self, snapshot: SessionSnapshotWire) -> SessionHandle:
        handle = self._handles.get(snapshot.session_id)
        if handle is None:
            handle = self._handles[snapshot.session_id] = SessionHandle(self._link, snapshot)
        return handle

    async def _found(self, session_id: str) -> SessionHandle:
        if self.mirror.get(session_id) is None:  # the host's response overtook its events
            await self.refresh()
        return self._opened(session_id)

    def _opened(self, session_id: str) -> SessionHandle:
        handle = self.get(session_id)
        if handle is None:
            message = f"session {session_id} was ended meanwhile"
            raise AcpError(ERROR_CODES["session_closed"], message)
        _ = handle.store  # subscribe from here on
        return handle


def _folder_params(
    cwd: str, mcp_servers: McpServers | None, additional_directories: Sequence[str]
) -> dict[str, Any]:
    params: dict[str, Any] = {
        "cwd": cwd,
        "additionalDirectories": list(additional_directories),
    }
    if mcp_servers is not None:
        params["mcpServers"] = [dict(server) for server in mcp_servers]
    return params

"""One session in a client's hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quarterdeck.client.link import Link
from quarterdeck.client.listeners import Unsubscribe
from quarterdeck.client.store import SessionStore
from quarterdeck.protocol import (
    AcpRpcMethod,
    Event,
    SessionConfigValue,
    SessionSnapshotWire,
    to_json,
)

Prompt = str | Sequence[Mapping[str, Any]]
ConfigValue = SessionConfigValue | Mapping[str, Any] | str | bool


class Session:
    """A handle; there is one per session and client until it is closed or deleted."""

    def __init__(self, link: Link, snapshot: SessionSnapshotWire) -> None:
        self.id = snapshot.session_id
        self.snapshot = snapshot
        """The host's word on the session, kept up to date."""
        self._link = link
        self._store = SessionStore(self.id)
        self._unfollow: Unsubscribe | None = None
        self._listening: dict[object, Unsubscribe] = {}
        self._has_ended = False

    @property
    def store(self) -> SessionStore:
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

    # ---- for `Sessions` ------------------------------------------------------------------

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

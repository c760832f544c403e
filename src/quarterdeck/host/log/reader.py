"""Reads the logs of a host by session id: by callback, by iteration, as bytes, or by page.

Before the first reader sees a restored session, `SessionRecovery.close_leftovers` closes what a
crash left open in its log: requests, tool calls, a status that is out of date.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from quarterdeck.errors import StorageFailed
from quarterdeck.host.checks import config_invalid, session_closed
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.stream import EncodedLog, OnEvent, Stream, Subscriber, decode_stored
from quarterdeck.host.operations import InBackground
from quarterdeck.host.sessions.recovery import SessionRecovery
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import Event


class LogReader:
    """Finds the stream of a session, or the host's own, and reads it."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        recovery: SessionRecovery,
        in_background: InBackground,
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recovery = recovery
        self._in_background = in_background

    def subscribe(
        self, session_id: str | None, from_seq: int, callback: OnEvent
    ) -> Callable[[], None]:
        stream = self._stream(session_id)
        subscriber = Subscriber(callback, _checked(from_seq))
        session = None if session_id is None else self._sessions.known[session_id]
        is_ready = session is None or not self._recovery.may_have_leftovers(session)
        if not (is_ready and stream.join(subscriber)):
            self._in_background(lambda: self._catch_up(stream, subscriber, session))
        return lambda: stream.remove(subscriber)

    async def events(self, session_id: str | None, from_seq: int) -> AsyncIterator[Event]:
        stream = self._stream(session_id)
        if session_id is not None:
            await self._recovery.close_leftovers(self._sessions.known[session_id])
        async for event in stream.events(_checked(from_seq)):
            yield event

    async def open_log(self, session_id: str | None) -> EncodedLog:
        stream = self._stream(session_id)
        if session_id is not None:
            await self._recovery.close_leftovers(self._sessions.known[session_id])
        return EncodedLog(stream)

    async def page(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return stored events after a number, without those that are not published yet."""
        session = self._sessions.known.get(session_id)
        if session is None:
            return []
        page = await self._emitter.read(session_id, after, limit)
        while page and decode_seq(page[-1]) > session.stream.published:
            page.pop()
        return page

    def _stream(self, session_id: str | None) -> Stream:
        if session_id is None:
            return self._emitter.host_stream
        session = self._sessions.known.get(session_id)
        if session is None:
            raise session_closed(f"session {session_id} is closed or unknown")
        return session.stream

    async def _catch_up(
        self, stream: Stream, subscriber: Subscriber, session: HostSession | None
    ) -> None:
        with suppress(StorageFailed):  # the journal reports it; the log is shown as it is
            if session is not None:
                await self._recovery.close_leftovers(session)
        await stream.replay(subscriber)


def decode_seq(data: bytes) -> int:
    """Return the number of a stored event; 0 if it is damaged."""
    events = decode_stored([data])
    return events[0].seq if events else 0


def _checked(from_seq: Any) -> int:
    if not isinstance(from_seq, int):
        raise config_invalid(f"from_seq must be a number, not {type(from_seq).__name__}")
    return from_seq

"""Creates every event of a host: numbers, times and encodes it, and queues it in the journal.

Nothing is stored or published here; `quarterdeck.host.log.journal` says when that happens.
An agent's updates are only queued (`enqueue`): one commit covers all that a read delivered. Every
other event is queued and then committed and published at once (`session_event`, `host_event`).

Events of a session get their number when they are queued, because the number is part of the bytes
that are stored. Events of the host are never stored: they report what has changed, and what they
report about a session is in its log. They wait in the same queue, so when one is published, the
events of sessions before it are stored. They get their number when they are published, so that a
report about the storage, which overtakes the queue, does not break the order of numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any

from quarterdeck.errors import LogDamaged, StorageFailed
from quarterdeck.host.log.hold import NumberingHold
from quarterdeck.host.log.journal import Journal
from quarterdeck.host.log.stream import Stream
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.protocol import (
    DiagnosticLevel,
    Event,
    Normalized,
    SessionStatus,
    decode_event,
    make_host_event,
    to_json,
)
from quarterdeck.protocol.codec import encode_new_event
from quarterdeck.protocol.events import SESSION_EVENT_CLASSES
from quarterdeck.protocol.payloads import has_agent, has_ended
from quarterdeck.storage import Storage, Stored

logger = logging.getLogger(__name__)


def now_ms() -> int:
    """Return the time of an event. Order never depends on it: clocks are set back."""
    return time_ns() // 1_000_000


OnSessionHead = Callable[[str, int], None]
"""Takes the id of a session and the number of its newest published event."""

_Draft = tuple[str, dict[str, Any], str | None, dict[str, Any] | None]
"""Type, payload, agent and extensions of a host event that has no number yet."""


class _HostEvents:
    """Numbers and publishes the events of the host."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def publish(self, drafts: Sequence[_Draft]) -> None:
        stream = self._stream
        stream.publish(
            [
                make_host_event(
                    kind,
                    agent_id,
                    seq=stream.next_seq(),
                    ts=now_ms(),
                    payload=payload,
                    extensions=extensions,
                )
                for kind, payload, agent_id, extensions in drafts
            ]
        )


class _HostExtensions:
    """Numbers and publishes events of the host that are not part of the seed's closed set."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def publish(self, drafts: Sequence[tuple[str, Any, dict[str, Any]]]) -> None:
        for kind, payload, extensions in drafts:
            event = {
                "type": kind,
                "seq": self._stream.next_seq(),
                "ts": now_ms(),
                "payload": payload,
            }
            self._stream.publish([decode_event({**event, "extensions": extensions})])


class Emitter:
    """Creates all events of a host."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.journal = Journal(storage, self._on_storage_failed)
        self.hold = NumberingHold()
        self.host_stream = Stream(None, self._on_callback_failed)
        self._host_events = _HostEvents(self.host_stream)
        self._host_extensions = _HostExtensions(self.host_stream)
        self._reported: set[str] = set()
        self._head_subscribers: tuple[OnSessionHead, ...] = ()

    def subscribe_heads(self, on_head: OnSessionHead) -> Callable[[], None]:
        """Call `on_head` whenever events of any session are published; return an unsubscriber."""
        self._head_subscribers = (*self._head_subscribers, on_head)

        def unsubscribe() -> None:
            self._head_subscribers = tuple(
                each for each in self._head_subscribers if each is not on_head
            )

        return unsubscribe

    def new_stream(self, session_id: str, *, last_seq: int = 0) -> Stream:
        """Return the stream of a session whose log has `last_seq` events."""

        async def read_page(after: int, limit: int) -> Sequence[bytes]:
            return await self.read(session_id, after, limit)

        def read_now(after: int, limit: int) -> Sequence[bytes]:
            return self.storage.read_now(session_id, after, limit)

        def on_head(seq: int) -> None:
            for subscriber in self._head_subscribers:
                subscriber(session_id, seq)

        return Stream(
            read_page,
            self._on_callback_failed,
            read_now=read_now if self.storage.is_immediate else None,
            on_head=on_head,
            last_seq=last_seq,
        )

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Read stored events of a session; damage is reported once."""
        try:
            return await self.storage.read(session_id, after, limit)
        except LogDamaged as error:
            self.report_damage(session_id, error.reason)
            raise

    def report_damage(self, session_id: str | None, sentence: str) -> None:
        """Publish that a session's log is damaged, once for each damage."""
        if sentence not in self._reported:
            self._reported.add(sentence)
            message = f"the log is damaged: {sentence}"
            self.diagnostic("error", "storage/damaged", message, session_id=session_id)

    def session_event(
        self,
        session: HostSession,
        kind: str,
        payload: dict[str, Any],
        extensions: dict[str, Any] | None = None,
    ) -> int | None:
        """Queue, commit and publish a session's event; return its number, or None if unwritable."""
        before = session.stream.last_seq
        self.enqueue(session, Normalized(kind, payload, extensions))
        self.journal.commit_and_publish()
        return session.stream.last_seq if session.stream.last_seq > before else None

    def setting_event(
        self,
        session: HostSession,
        kind: str,
        payload: dict[str, Any],
        extensions: dict[str, Any] | None = None,
    ) -> None:
        """Queue, commit and publish a change of a session's settings, with what completes it."""
        with self.journal.batch():
            for event in session.settings.repaired(Normalized(kind, payload, extensions)):
                self.enqueue(session, event)

    def close_tool_calls(self, session: HostSession, reason: str) -> None:
        """Queue the ends of the tool calls that a turn leaves open; it ends in the next event."""
        for event in session.tool_calls.close_open(reason):
            self.enqueue(session, event)

    def enqueue(self, session: HostSession, normalized: Normalized, at: int | None = None) -> int:
        """Number, encode and queue a session's event; return its size in bytes.

        `at` is when it happened, if that is not now. It is committed and published by the next
        `Journal.commit_and_publish`: for an agent's updates at the end of the read that delivered
        them.
        """
        stream = session.stream
        seq = stream.last_seq + 1
        event = SESSION_EVENT_CLASSES[normalized.type](
            session_id=session.id,
            seq=seq,
            # `now_ms`, without the cost of a call for every update
            ts=time_ns() // 1_000_000 if at is None else at,
            payload=normalized.payload,
            extensions=normalized.extensions,
        )
        try:
            data = encode_new_event(event)
        except UNWRITABLE as error:
            self._report_unwritable(event, error)
            return 0
        stream.last_seq = seq
        stream.unpublished.append(data)
        self.journal.enqueue((Stored(session.id, seq, data), stream, event))
        return len(data)

    def _report_unwritable(self, event: Event, error: Exception) -> None:
        self.diagnostic(
            "error",
            "event/unserializable",
            f"an event could not be written as JSON: {error}",
            session_id=event.session_id,
            data={"type": event.type},
        )

    def set_status(
        self, session: HostSession, status: SessionStatus, *, resumed: bool | None = None
    ) -> None:
        """Change a session's status; publish it on the session's stream, then on the host's."""
        session.status = status
        payload: dict[str, Any] = {"status": status}
        if resumed is not None:
            payload["resumed"] = resumed
        with self.journal.batch():
            self.session_event(session, "session-status-change", payload)
            self.session_updated(session)
        if not has_agent(status):  # it gets no events
            session.stream.release_tail()
        if has_ended(status):
            session.release_tool_calls()

    def session_updated(self, session: HostSession) -> None:
        """Publish a session's snapshot on the host's stream."""
        self.host_event("session-updated", to_json(session.snapshot()))

    def host_event(
        self,
        kind: str,
        payload: dict[str, Any],
        agent_id: str | None = None,
        *,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        """Queue and publish an event of the host."""
        self.journal.write((None, self._host_events, (kind, payload, agent_id, extensions)))

    def diagnostic(
        self,
        level: DiagnosticLevel,
        code: str,
        message: str,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        data: Any = None,
    ) -> None:
        """Publish a diagnostic on the host's stream."""
        payload = _diagnostic(level, code, message, session_id, data)
        if data is not None and not _is_writable(payload):
            # Without `data`, which is what cannot be written.
            reason = f"a diagnostic could not be written as JSON: {code}"
            facts = {"type": "diagnostic"}
            payload = _diagnostic("error", "event/unserializable", reason, session_id, facts)
        self.host_event("diagnostic", payload, agent_id)

    def dropped(self, agent_id: str, code: str, message: str, facts: dict[str, Any]) -> None:
        """Publish that something of an agent was dropped; marked as ours: acpjs does not."""
        session_id = facts.get("sessionId")
        payload = _diagnostic("warn", code, message, session_id, facts)
        if not _is_writable(payload):
            payload = _diagnostic("warn", code, repr(message), None, None)
        self.host_event("diagnostic", payload, agent_id, extensions=mark("reported by this host"))

    def host_extension(
        self, kind: str, payload: dict[str, Any], extensions: dict[str, Any]
    ) -> None:
        """Queue and publish an event of the host that is not part of the seed's closed set."""
        self.journal.write((None, self._host_extensions, (kind, payload, extensions)))

    def _on_storage_failed(self, error: StorageFailed) -> None:
        payload = _diagnostic("error", "storage/write-failed", str(error), None, None)
        draft = ("diagnostic", payload, None, None)
        self.journal.publish_now((None, self._host_events, draft))

    def _on_callback_failed(self, event: Event, error: BaseException) -> None:
        logger.error("subscriber failed", extra={"event": event.type}, exc_info=error)
        if event.type == "diagnostic" and event.payload.get("code") == "subscriber/error":
            return  # a report about a failed report would never end
        self.diagnostic(
            "error",
            "subscriber/error",
            f"a subscriber failed with {type(error).__name__}: {error}",
            session_id=event.session_id,
            data={"type": event.type, "seq": event.seq},
        )


def _is_writable(payload: dict[str, Any]) -> bool:
    try:
        encode_json(payload)
    except UNWRITABLE:
        return False
    return True


def _diagnostic(
    level: DiagnosticLevel, code: str, message: str, session_id: str | None, data: Any
) -> dict[str, Any]:
    payload: dict[str, Any] = {"level": level, "code": code, "message": message}
    if session_id is not None:
        payload["sessionId"] = session_id
    if data is not None:
        payload["data"] = data
    return payload

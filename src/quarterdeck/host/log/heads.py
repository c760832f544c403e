"""The newest event of each log, compared with what another copy of the log has.

A hub keeps copies of what a runner published. After a power cut a log that is not synced with every
commit may have lost its last events, while the hub has them. `LogHeads` compares both by the digest
of one event, appends events that are missing here, and stops a session whose copies differ. It is
used by `quarterdeck.runner.heads`, which has the rules of the comparison.

Events that are taken back keep their numbers and their bytes: they are queued in the journal like
new ones, so subscribers see them in order. Leftovers are looked for again afterwards, because what
its log leaves open has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from msgspec import structs

from quarterdeck.errors import EventInvalid, RequestRejected, StorageFailed
from quarterdeck.host.acp2.children import agent_to_notify
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import stop_sentence
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.journal import NO_PUBLISHER
from quarterdeck.host.log.reader import decode_seq
from quarterdeck.host.log.stream import Stream
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.sessions.recovery import SessionRecovery
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.host.sessions.teardown import SessionTeardown
from quarterdeck.protocol import Event, decode_event
from quarterdeck.storage import LogEpoch, SessionMeta, Stored, UnconfirmedStorage, damages_of
from quarterdeck.storage.group_commit import ThreadedStorage

_MANY: Final = 100  # events that are read at once
_MOST_BYTES: Final = 4 << 20  # of these; what is beyond is read one by one
_DIGEST_BYTES: Final = 16
_STOPPED: Final = ("disconnected", "closed")


def event_digest(data: bytes) -> str:
    """Return the digest of a stored event: BLAKE2b with 128 bits, in hexadecimal."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


class LogHeads:
    """Compares, completes and stops the logs of a host; `Host.heads` has it."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        recovery: SessionRecovery,
        teardown: SessionTeardown,
        requests: AllRequests,
        agents: Mapping[str, AgentProcess],
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recovery = recovery
        self._teardown = teardown
        self._requests = requests
        self._agents = agents
        emitter.journal.on_session_refused = self._on_refused

    @property
    def _metas(self) -> dict[str, SessionMeta]:
        return self._recovery.stored.metas

    # ---- after a power cut ---------------------------------------------------------------------

    def begin(self) -> None:
        """Hold numbering back if the log may have lost events; called when it is opened."""
        if self.unconfirmed_epoch is not None:
            self._emitter.hold.begin()

    @property
    def unconfirmed_epoch(self) -> LogEpoch | None:
        """The epoch before a power cut while its losses are not known; None if they are."""
        storage = self._emitter.storage
        return storage.unconfirmed_epoch if isinstance(storage, UnconfirmedStorage) else None

    @property
    def is_held(self) -> bool:
        """Whether numbering is held back: `confirm`, then `release`."""
        return self._emitter.hold.is_held

    async def confirm(self) -> None:
        """Record what did not come back as lost; nothing is numbered before `release`."""
        storage = self._emitter.storage
        if self.is_held and isinstance(storage, UnconfirmedStorage):
            await self._emitter.journal.wait_stored()
            await storage.confirm()
        for damage in damages_of(storage):
            self._emitter.report_damage(damage.session_id, damage.sentence)

    async def close_leftovers(self, session_id: str) -> None:
        """Close what a crash left open in the log of a session, also before `release`."""
        session = self._sessions.known.get(session_id)
        if session is not None:
            await self._recovery.close_leftovers_now(session)

    def release(self) -> None:
        """Number events from here on."""
        self._emitter.hold.release()

    async def released(self) -> None:
        """Wait until events can be numbered."""
        await self._emitter.hold.passed()

    # ---- heads -------------------------------------------------------------------------------

    def last_seq(self, session_id: str) -> int | None:
        """Return the number of a session's newest event; None if there is no such session."""
        session = self._sessions.known.get(session_id)
        if session is not None:
            return session.stream.published
        meta = self._metas.get(session_id)
        return None if meta is None or meta.lifecycle == "deleted" else meta.last_seq

    def closed_meta(self, session_id: str) -> SessionMeta | None:
        """Return the record of a session that was closed before this host started."""
        return None if session_id in self._sessions.known else self._metas.get(session_id)

    async def digests(self, wanted: Sequence[tuple[str, int]]) -> list[str]:
        """Return the digests of events by session and number; empty for one that cannot be read."""
        found: list[str] = []
        for start in range(0, len(wanted), _MANY):
            found += await self._digests(wanted[start : start + _MANY])
        return found

    async def _digests(self, wanted: Sequence[tuple[str, int]]) -> list[str]:
        pages: list[list[bytes]] = [[] for _ in wanted]
        if isinstance(self._emitter.storage, ThreadedStorage) and len(wanted) > 1:
            requests = [(session_id, seq - 1, 1) for session_id, seq in wanted]
            pages = await self._emitter.storage.read_many(requests, _MOST_BYTES)
        return [
            await self._digest(session_id, seq, page)
            for (session_id, seq), page in zip(wanted, pages, strict=True)
        ]

    async def _digest(self, session_id: str, seq: int, page: list[bytes]) -> str:
        if seq < 1:
            return ""
        try:
            page = page or await self._emitter.read(session_id, seq - 1, 1)
        except StorageFailed:
            return ""  # damaged; it is reported
        # A later event, if this one was deleted.
        return event_digest(page[0]) if page and decode_seq(page[0]) == seq else ""

    # ---- events that come back -----------------------------------------------------------------

    async def take_back(self, session_id: str, events: Sequence[bytes]) -> None:
        """Append events that were lost here, with their numbers and bytes.

        Raises:
            RequestRejected: if they do not continue the log of a session that is not in use.
            StorageFailed: if they cannot be stored.
        """
        session, last_seq = self._sessions.known.get(session_id), self.last_seq(session_id)
        if last_seq is None:
            raise RequestRejected(
                "not-found", f"there is no session {session_id!r}; its events cannot be taken back"
            )
        decoded = _continuing(session_id, last_seq, events)
        self._check_unused(session_id, session)
        if session is None:
            self._append_closed(session_id, events)
        else:
            self._append(session, events, decoded)
        self._apply(session_id, decoded)
        # Ids of requests are numbers, too, and those in these events were given.
        self._requests.number_after(sum(self.last_seq(name) or 0 for name in self._metas))
        await self._emitter.journal.wait_stored()

    def _check_unused(self, session_id: str, session: HostSession | None) -> None:
        stopped = self.stopped_sentence(session_id)
        if stopped is not None:
            raise RequestRejected("stale", stopped)
        is_in_use = session_id in self._sessions.staged or (
            session is not None
            and (
                session.status not in _STOPPED
                or session.operation is not None
                or session.stream.last_seq != session.stream.published
            )
        )
        if is_in_use:
            message = f"session {session_id} is in use; compare its log again"
            raise RequestRejected("stale", message)

    def _append(
        self, session: HostSession, events: Sequence[bytes], decoded: Sequence[Event]
    ) -> None:
        stream: Stream = session.stream
        with self._emitter.journal.batch():
            for data, event in zip(events, decoded, strict=True):
                stream.number(event.seq, data)
                entry = (Stored(session.id, event.seq, data), stream, event)
                self._emitter.journal.enqueue(entry)
                if event.type == "session-info-update":
                    session.apply_info(event.payload)
            self._emitter.journal.write_record(session.meta(_lifecycle(session)))
        self._recovery.expect_leftovers(session)

    def _append_closed(self, session_id: str, events: Sequence[bytes]) -> None:
        meta = self._metas[session_id]
        with self._emitter.journal.batch():
            for seq, data in enumerate(events, meta.last_seq + 1):
                entry = (Stored(session_id, seq, data), NO_PUBLISHER, None)
                self._emitter.journal.enqueue(entry)
        self._metas[session_id] = structs.replace(meta, last_seq=meta.last_seq + len(events))

    def _apply(self, session_id: str, events: Sequence[Event]) -> None:
        """Close or open a session whose end or beginning is among the events."""
        status = _last_status(events)
        session = self._sessions.known.get(session_id)
        if status is None:
            return
        is_closed = status in ("closed", "deleted")
        if session is not None and is_closed != (session.status == "closed"):
            self._teardown.restore_status(session, "closed" if is_closed else "disconnected")
        elif session is None and not is_closed:
            self._sessions.tombstones.pop(session_id, None)
            meta = structs.replace(self._metas[session_id], lifecycle="open")
            self._metas[session_id] = meta
            self._emitter.journal.write_record(meta)
            self._recovery.restore_session(session_id)

    # ---- sessions that stop --------------------------------------------------------------------

    def stopped_sentence(self, session_id: str) -> str | None:
        """Return what to tell a user about a session that takes no more events, or None."""
        reason = self._sessions.stopped.get(session_id)
        return None if reason is None else stop_sentence(session_id, reason)

    def stopped_sessions(self) -> dict[str | None, str]:
        """Return every session that takes no more events, with a sentence that says why."""
        return {name: stop_sentence(name, each) for name, each in self._sessions.stopped.items()}

    def stopped_session(self, session_id: str) -> HostSession | None:
        """Return a session that takes no more events, to be forked; None if it does."""
        if session_id not in self._sessions.stopped:
            return None
        session = self._sessions.known.get(session_id)
        return session or self._recovery.unpublished(self._metas[session_id])

    def _on_refused(self, session_id: str, reason: str) -> None:
        """Stop a session whose records the storage does not accept; called by the journal."""
        session = self._sessions.find(session_id)
        if session is not None:
            self._stop(session, "session/refused", reason)

    def _stop(self, session: HostSession, code: str, reason: str) -> None:
        agent = self._agents.get(agent_to_notify(session) or "")
        self._teardown.stop(agent, session, code, reason)

    async def stop(self, session_id: str, reason: str) -> None:
        """Stop a session for good: its log can be read, and gets no more events.

        Raises:
            RequestRejected: if there is no such session.
            StorageFailed: if that cannot be stored; the session has stopped until the next start.
        """
        session = self._sessions.known.get(session_id)
        if session is not None:
            self._stop(session, "session/diverged", reason)
            await self._emitter.journal.commit_record(session.meta("closed"))
            return
        if self.last_seq(session_id) is None:
            raise RequestRejected("not-found", f"there is no session {session_id!r} to stop")
        meta = structs.replace(self._metas[session_id], stopped=reason)
        self._metas[session_id] = meta
        self._sessions.stopped[session_id] = reason
        sentence = stop_sentence(session_id, reason)
        self._emitter.diagnostic("error", "session/diverged", sentence, session_id=session_id)
        await self._emitter.journal.commit_record(meta)


def _continuing(session_id: str, last_seq: int, events: Sequence[bytes]) -> list[Event]:
    """Decode events that continue a log.

    Raises:
        RequestRejected: if they do not.
    """
    decoded: list[Event] = []
    for seq, data in enumerate(events, last_seq + 1):
        try:
            event = decode_event(data)
        except EventInvalid as error:
            raise _refused(session_id, f"event {seq} cannot be read: {error.reason}") from error
        if event.session_id != session_id:
            raise _refused(session_id, f"event {seq} is of session {event.session_id!r}")
        if event.seq != seq:
            raise _refused(session_id, f"the next event is {seq}, not {event.seq}")
        if b"\n" in data:
            raise _refused(session_id, f"event {seq} is not one line")
        decoded.append(event)
    return decoded


def _refused(session_id: str, reason: str) -> RequestRejected:
    message = f"events of session {session_id} cannot be taken back: {reason}; compare it again"
    return RequestRejected("stale", message)


def _last_status(events: Sequence[Event]) -> str | None:
    statuses = [each for each in events if each.type == "session-status-change"]
    return str(statuses[-1].payload.get("status")) if statuses else None


def _lifecycle(session: HostSession) -> Any:
    return "closed" if session.status == "closed" else "open"

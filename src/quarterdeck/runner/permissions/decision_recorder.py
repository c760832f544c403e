"""Keeps the decision index equal to the log: requests and how they ended, read from events.

`requested` and `resolved` are pure and make the rows. `DecisionRecorder` uses them for what the
host publishes, and at the start for what the index has missed, so both make the same row of the
same events.

An event of a session is stored before it is published, and before a host event that reports it
(`host/log/journal`), so what is recorded here is in the log. Rows wait in memory until the
database has them; readers get those as well, so a decision can be found as soon as it is made.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final, assert_never

import anyio
from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import DatabaseFailed, EventInvalid, LogDamaged, StorageFailed
from quarterdeck.host import Host
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentRemovedEvent,
    AgentUpdatedEvent,
    ApprovalMismatchEvent,
    DiagnosticEvent,
    Event,
    HostEvent,
    InstallProgressEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PermissionUpdatedEvent,
    SessionEvent,
    SessionUpdatedEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    any_event,
    decode_event,
    make_session_event,
)
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.permissions.card import digest_of
from quarterdeck.runner.permissions.decision_index import (
    DecidedBy,
    DecisionIndex,
    IndexEntry,
    IndexPosition,
    RecordedDecision,
    decided_by,
    read_shown_call,
)
from quarterdeck.runner.schema import now
from quarterdeck.storage import SessionMeta, Storage
from quarterdeck.wire import IndependentTasks

PAGE: Final = 1000
WITHDRAWN: Final = DecidedBy(kind="withdrawn")
_CLIENT: Final = DecidedBy(kind="client")
_MARKS: Final = (
    b'"permission-request-',
    ApprovalMismatchEvent.type.encode(),
    ELICITATION_UPDATED.encode(),
)
"""What an event about a request has in its bytes; nearly all others are not decoded."""


def ours(event: Event) -> Mapping[str, Any]:
    """Return `extensions.quarterdeck` of an event."""
    extensions: Any = event.extensions or {}
    found = extensions.get("quarterdeck")
    return found if isinstance(found, Mapping) else {}


def requested(
    event: Event, session_id: str | None, row_id: int, agent: str | None = None
) -> RecordedDecision:
    """Return the row of a request that is pending; `event` reports it."""
    payload: Any = event.payload
    derived = ours(event).get("request") or {}
    request_id = str(payload.get("requestId"))
    is_elicitation = "request" in payload
    digest = derived.get("digest", "")
    if not digest and not is_elicitation:  # a log of an earlier version
        digest = digest_of(
            session_id or "", request_id, payload.get("toolCall"), payload.get("options")
        )
    return RecordedDecision(
        id=row_id,
        request_id=request_id,
        session_id=session_id,
        agent=derived.get("agent", agent),
        digest=digest,
        request=payload["request"] if is_elicitation else payload.get("toolCall"),
        call=read_shown_call(derived.get("call")),
        state="pending",
        requested_at=derived.get("requestedAt") or iso_seconds(event.ts / 1000),
    )


def resolved(request: RecordedDecision, options: Any, event: Event) -> IndexEntry:
    """Return the row of a request after its end; `options` are those that it offered."""
    payload: Any = event.payload
    by_json = ours(event).get("decidedBy") or {}
    at = by_json.get("at") or iso_seconds(event.ts / 1000)
    is_answered = payload.get("status") == "answered"
    by = decided_by(by_json) if by_json else _CLIENT if is_answered else WITHDRAWN
    if not is_answered:
        return IndexEntry(replace(request, state="superseded", by=by, decided_at=at))
    if "request" in payload:
        outcome, kind = {"action": payload.get("action")}, None
    else:
        outcome = {
            name: value for name, value in (payload.get("outcome") or {}).items() if name != "_meta"
        }
        kind = _kind(options, outcome.get("optionId"))
    decision = replace(
        request,
        state="answered",
        outcome=outcome,
        option_kind=UNSET if kind is None else kind,
        by=by,
        decided_at=at,
    )
    return IndexEntry(decision, by_json.get("key"))


def _kind(options: Any, option_id: Any) -> str | None:
    for option in options if isinstance(options, list | tuple) else ():
        if isinstance(option, Mapping) and str(option.get("optionId")) == option_id:
            kind = option.get("kind")
            return kind if isinstance(kind, str) else None
    return None


def differences_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return the differences of an approval mismatch."""
    found = payload.get("differences")
    return list(found) if isinstance(found, list) else []


def mismatched(entry: IndexEntry, found: list[Any]) -> IndexEntry:
    """Return a row with what the agent did after the approval."""
    return IndexEntry(replace(entry.decision, mismatch=found), entry.key)


class SessionDecisions:
    """The decisions of one session, from the events of its log."""

    def __init__(self, session_id: str, agent: str | None, next_id: Callable[[], int]) -> None:
        self._session_id = session_id
        self._agent = agent
        self._next_id = next_id
        self._open: dict[str, tuple[RecordedDecision, Any]] = {}
        self.entries: dict[str, IndexEntry] = {}
        self.mismatches: dict[str, list[Any]] = {}

    @property
    def has_pending(self) -> bool:
        return any(each.decision.state == "pending" for each in self.entries.values())

    def take(self, event: Event) -> None:
        """Take the next event of the log."""
        payload: Any = event.payload
        request_id = str(payload.get("requestId"))
        known = any_event(event)
        match known:
            case PermissionRequestCreatedEvent():
                row = requested(event, self._session_id, self._next_id(), self._agent)
                self._open[request_id] = (row, payload.get("options"))
                self.entries[request_id] = IndexEntry(row)
            case PermissionRequestResolvedEvent():
                self._end(request_id, event)
            case ApprovalMismatchEvent():
                self._mismatch(request_id, differences_of(payload))
            case UnrecognizedUpdateEvent():
                if payload.get("sessionUpdate") == ELICITATION_UPDATED and ours(event):
                    self._take_elicitation(request_id, event)  # else an agent sent it
            case SessionEvent() | HostEvent() | UnknownEvent():
                pass  # about no request
            case _:
                assert_never(known)

    def _mismatch(self, request_id: str, found: list[Any]) -> None:
        entry = self.entries.get(request_id)
        if entry is None:  # indexed before
            self.mismatches[request_id] = found
        else:
            self.entries[request_id] = mismatched(entry, found)

    def _take_elicitation(self, request_id: str, event: Event) -> None:
        payload: Any = event.payload
        if payload.get("status") == "pending":
            row = requested(event, self._session_id, 0, self._agent)
            self._open[request_id] = (row, None)
        elif "decidedBy" in ours(event):
            self._end(request_id, event)

    def _end(self, request_id: str, event: Event) -> None:
        row, options = self._open.pop(request_id, (None, None))
        if row is not None:
            row = row if row.id else replace(row, id=self._next_id())
            self.entries[request_id] = resolved(row, options, event)


async def request_events(storage: Storage, session_id: str, after: int) -> AsyncIterator[Event]:
    """Iterate over the events of a log that are about requests, after a number."""
    while page := await storage.read(session_id, after, PAGE):
        after += len(page)
        for number, data in enumerate(page):
            if number < len(page) - 1 and not any(each in data for each in _MARKS):
                continue
            try:
                event = decode_event(data)
            except EventInvalid:
                continue
            after = max(after, event.seq)
            yield event


logger = logging.getLogger(__name__)

RECENT: Final = 1000  # decisions that are found without the database
RETRY_SECONDS: Final = 1.0
_BATCH: Final = 500  # sessions in one transaction of a start
_RESTART: Final = DecidedBy(kind="restart")


class DecisionRecorder:
    """Makes rows of the index from the events of requests."""

    def __init__(
        self,
        index: DecisionIndex,
        host: Host,
        on_stored: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """`on_stored` is called with the ids of requests whose decisions are in the log."""
        self._index = index
        self._host = host
        self._on_stored = on_stored
        self._last_id = 0
        self._open: dict[str, tuple[RecordedDecision, Any]] = {}
        """Rows and options of requests that were published and are not resolved."""
        self._recent: OrderedDict[str, IndexEntry] = OrderedDict()
        self._unwritten: dict[str, IndexEntry] = {}
        self._progress: dict[str, int] = {}
        self._mismatches: dict[str, list[Any]] = {}
        """What agents did that differs from what was shown, for rows that are only in the index."""
        self._unreadable: set[str] = set()
        """Sessions whose log could not be read: the index is not complete for them."""
        self._has_unwritten = anyio.Event()
        self._writing = anyio.Lock()

    async def start(self, tasks: IndependentTasks) -> None:
        """Bring the index up to date with the log, then keep it so.

        Raises:
            DatabaseFailed: if it cannot be read: without it, numbers would be given twice.
        """
        self._last_id = (await self._index.position()).last_id
        if not self._host.heads.is_held:  # else its log may not be complete yet
            await self.catch_up()
        tasks.start_soon(self._write_index)

    async def catch_up(self) -> None:
        """Bring the index up to date with the log, before anything new is decided."""
        try:
            await self._catch_up(await self._index.position())
        except (DatabaseFailed, StorageFailed) as error:  # a full disk; the next start does it
            logger.warning("the decision index is not complete", extra={"reason": str(error)})

    async def stop(self) -> None:
        """Write what is left, and how far the log is indexed: the next start then reads nothing."""
        if self._host.heads.is_held:
            return  # nothing was decided, and the log is not indexed
        for session in self._host.get_sessions():
            self._advance(session.session_id)
        try:
            await self._flush()
        except DatabaseFailed as error:
            logger.warning("the decision index was not written", extra={"reason": str(error)})

    def on_event(self, event: Event) -> None:
        """Follow the host's stream: what is published is stored."""
        known = any_event(event)
        match known:
            case PermissionUpdatedEvent():
                self._on_permission(event)
            case SessionUpdatedEvent(payload=payload):
                if payload.get("status") == "deleted":
                    self._on_deleted(str(payload.get("sessionId")))
            case DiagnosticEvent(payload=diagnostic):
                if diagnostic.get("code") == ApprovalMismatchEvent.type:
                    self._on_mismatch(diagnostic.get("data"))
            case UnknownEvent():
                if known.type == ELICITATION_UPDATED:
                    self._on_elicitation(event)
            case AgentUpdatedEvent() | AgentRemovedEvent() | InstallProgressEvent():
                pass  # about no request
            case SessionEvent():
                pass  # of a session, whose requests are reported to the host
            case _:
                assert_never(known)

    def _on_permission(self, event: Event) -> None:
        payload: Any = event.payload
        request_id: str = payload["requestId"]
        is_pending = payload["status"] == "pending"
        if is_pending or request_id not in self._open:
            row = requested(event, payload["sessionId"], self._next_id())
            self._open[request_id] = (row, payload["options"])
            if is_pending:
                self._queue(IndexEntry(row))
                return
        row, options = self._open.pop(request_id)
        self._decide(resolved(row, options, event))

    def _on_elicitation(self, event: Event) -> None:
        payload: Any = event.payload
        request_id: str = payload["requestId"]
        if payload["status"] == "pending":
            self._open[request_id] = (requested(event, payload.get("sessionId"), 0), None)
            return
        row, _ = self._open.pop(request_id, (None, None))
        if row is not None and "decidedBy" in ours(event):
            self._decide(resolved(replace(row, id=self._next_id()), None, event))

    def _on_mismatch(self, data: Any) -> None:
        """Note what an agent did after an approval; the log of its session has it, too."""
        if not isinstance(data, Mapping) or not isinstance(data.get("requestId"), str):
            return
        request_id, found = data["requestId"], differences_of(data)
        entry = self._recent.get(request_id)
        if entry is None:  # older than what is kept in memory
            self._mismatches[request_id] = found
            self._has_unwritten.set()
            return
        self._recent[request_id] = changed = mismatched(entry, found)
        self._queue(changed)

    def _on_deleted(self, session_id: str) -> None:
        """Keep who decided, not what was requested."""
        for entries in (self._unwritten, self._recent):
            for request_id, (decision, key) in entries.items():
                if decision.session_id == session_id:
                    entries[request_id] = IndexEntry(decision.blanked(), key)
                    self._mismatches.pop(request_id, None)
        self._progress.pop(session_id, None)

    # ---- the index -----------------------------------------------------------------------------

    def unstored(
        self, request_id: str, options: Any, outcome: Mapping[str, Any], by: Mapping[str, Any]
    ) -> IndexEntry:
        """Return the row of a decision whose event waits to be stored."""
        row, _ = self._open[request_id]
        payload = {"requestId": request_id, "status": "answered", "outcome": dict(outcome)}
        event = make_session_event(
            "permission-request-resolved",
            row.session_id or "",
            seq=1,
            ts=0,
            payload=payload,
            extensions={"quarterdeck": {"decidedBy": dict(by)}},
        )
        return resolved(row, options, event)

    async def find(self, request_id: str) -> IndexEntry | None:
        """Return the decision of a request, once it is stored."""
        await self._host.wait_stored()
        return self._recent.get(request_id) or await self._index.find(request_id)

    async def list(
        self, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        """Return decisions, the newest first."""
        await self._flush()
        return await self._index.list(before, session_id, limit)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _decide(self, entry: IndexEntry) -> None:
        self._on_stored([entry.decision.request_id])
        self._recent[entry.decision.request_id] = entry
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        self._queue(entry)

    def _queue(self, entry: IndexEntry) -> None:
        decision = entry.decision
        self._unwritten[decision.request_id] = entry
        if decision.session_id is not None:
            self._advance(decision.session_id)
        self._has_unwritten.set()

    def _advance(self, session_id: str) -> None:
        """Note how far a session is indexed; not while a request of it is open.

        Events are delivered in their order, so no event of a request is missing up to here. The
        end of an open request has to be read together with its beginning.
        """
        is_open = any(row.session_id == session_id for row, _ in self._open.values())
        if not is_open and session_id not in self._unreadable:
            self._progress[session_id] = self._host.last_seq(session_id)

    async def _write_index(self) -> None:
        while True:
            await self._has_unwritten.wait()
            self._has_unwritten = anyio.Event()
            try:
                await self._flush()
            except DatabaseFailed as error:
                logger.warning("decisions could not be indexed", extra={"reason": str(error)})
                self._has_unwritten.set()
                await anyio.sleep(RETRY_SECONDS)

    async def _flush(self) -> None:
        """Write what waits; it stays so if that fails.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        async with self._writing:
            entries, self._unwritten = self._unwritten, {}
            progress, self._progress = self._progress, {}
            mismatches, self._mismatches = self._mismatches, {}
            if not entries and not progress and not mismatches:
                return
            try:
                if mismatches:
                    await self._index.record_mismatches(mismatches)
                await self._index.record([*entries.values()], progress)
            except BaseException:
                self._unwritten = {**entries, **self._unwritten}
                self._progress = {**progress, **self._progress}
                self._mismatches = {**mismatches, **self._mismatches}
                raise

    async def _catch_up(self, position: IndexPosition) -> None:
        """Index what an earlier process stored and did not index, and end what it left pending."""
        for meta in await self._host.options.storage.sessions():
            after = position.progress.get(meta.session_id, 0)
            if meta.lifecycle == "deleted" or meta.last_seq <= after:
                continue
            try:
                await self._catch_up_session(meta, after)
            except LogDamaged as error:  # the log reports it
                self._unreadable.add(meta.session_id)
                logger.warning("a log is damaged", extra={"reason": error.reason})
            except (DatabaseFailed, StorageFailed):
                raise
            except Exception:  # one unreadable log must not cost the others
                self._unreadable.add(meta.session_id)
                extra = {"session": meta.session_id}
                logger.exception("the decisions of a session cannot be read", extra=extra)
            if len(self._progress) >= _BATCH:
                await self._flush()  # a commit for each of many sessions would take long
        await self._flush()
        await self._index.end_pending(_RESTART, now())

    async def _catch_up_session(self, meta: SessionMeta, after: int) -> None:
        found = SessionDecisions(meta.session_id, meta.agent_definition_id, self._next_id)
        last = await self._read(found, meta.session_id, after)
        if found.has_pending:
            # `resolved{superseded}` with `decidedBy: restart` is then behind what was read.
            await self._host.heads.close_leftovers(meta.session_id)
            last = await self._read(found, meta.session_id, last)
        self._unwritten.update(found.entries)
        self._on_stored(
            name for name, entry in found.entries.items() if entry.decision.state != "pending"
        )
        self._mismatches.update(found.mismatches)
        if not found.has_pending:
            self._progress[meta.session_id] = max(last, meta.last_seq)

    async def _read(self, found: SessionDecisions, session_id: str, after: int) -> int:
        async for event in request_events(self._host.options.storage, session_id, after):
            found.take(event)
            after = max(after, event.seq)
        return after

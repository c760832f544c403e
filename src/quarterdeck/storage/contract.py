"""The interface of every log, its records, and the rule of numbering.

A log stores numbered events as bytes, and for each session the facts that are needed to continue it
(`SessionMeta`). `Group` holds the rule behind INV-1 for every back end: an event is accepted only
if its seq is the next one of its session. tests/storage/test_contract.py runs against each back
end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.errors import JsonInvalid, LogGap
from quarterdeck.jsontext import decode_json, encode_json

logger = logging.getLogger(__name__)

Lifecycle: TypeAlias = Literal["open", "closed", "deleted"]
MOST_PAGE_BYTES: Final = 32 << 20
"""A page that has so many ends there, whatever its limit: large events must not fill the memory.
Ordinary pages are far below it."""


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a session was opened and its current status; the last one stored counts."""

    session_id: str
    agent_definition_id: str | None = None
    cwd: str
    mcp_servers: tuple[dict[str, Any], ...] | None = None
    additional_directories: tuple[str, ...] = ()
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    lifecycle: Lifecycle = "open"
    parent_session_id: str | None = None
    """The session whose sub-agent this is."""
    forked_from: dict[str, Any] | None = None
    """`sessionId` and `seq` of the session that this one continues."""
    stopped: str | None = None
    """Why its log gets no more events, ever; None if it may."""
    last_seq: int = 0
    """The seq of the last stored event. Set by storages on reading, ignored on writing."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event; `data` is `encode_event(event)`: one line of JSON with this id and this seq."""

    session_id: str
    seq: int
    data: bytes


class CompactedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a file in bytes before and after it was compacted."""

    file: str
    before: int
    after: int


Record: TypeAlias = Stored | SessionMeta
Batch: TypeAlias = Sequence[Record]

META_KIND: Final = "session-meta"
_META_KEYS: Final = {"kind", *(f.encode_name for f in msgspec.structs.fields(SessionMeta))}
_decode: Final = msgspec.json.Decoder(SessionMeta).decode


def encode_meta(meta: SessionMeta, *, freed_seq: int = 0, before: bytes | None = None) -> bytes:
    """Encode a meta as the line of JSON that acpjs writes.

    `lastSeq` is an addition to that format: events up to `freed_seq` were deleted, and numbering
    continues after it. Unknown keys of `before`, the meta that this one replaces, are kept.
    """
    line: dict[str, Any] = {"kind": META_KIND, **msgspec.to_builtins(meta)}
    # acpjs always writes these two; `omit_defaults` leaves them out.
    line["additionalDirectories"] = meta.additional_directories
    line["lifecycle"] = meta.lifecycle
    line.pop("lastSeq", None)
    if freed_seq:
        line["lastSeq"] = freed_seq
    if before is not None:
        line |= _unknown_keys(before)
    return encode_json(line)


def decode_meta(line: bytes) -> SessionMeta:
    """Decode a line of `encode_meta` or acpjs.

    Raises:
        msgspec.ValidationError: if it is JSON, but not a meta.
        JsonInvalid: if it is not JSON.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError):  # a lone surrogate, perhaps
        return msgspec.convert(decode_json(line), SessionMeta)


def listed_meta(session_id: str, line: bytes | None, last_seq: int) -> SessionMeta:
    """Return the meta of a session for a listing; one without is listed as acpjs does."""
    if line is not None:
        try:
            meta = decode_meta(line)
            # Just decoded, so no other code has it; `replace` would take longer than decoding.
            msgspec.structs.force_setattr(meta, "last_seq", last_seq)
            return meta
        except (msgspec.ValidationError, JsonInvalid):  # one bad meta must not hide all the others
            logger.warning("the meta of a session cannot be read", extra={"session": session_id})
    return SessionMeta(session_id=session_id, cwd="", last_seq=last_seq)


def _unknown_keys(line: bytes) -> dict[str, Any]:
    try:
        known = decode_json(line)
    except JsonInvalid:
        return {}
    return {key: value for key, value in known.items() if key not in _META_KEYS}


class Storage(Protocol):
    """A log of sessions. Its owner opens it once and closes it."""

    @property
    def is_durable(self) -> bool:
        """Whether stored events survive this process."""
        ...

    @property
    def is_immediate(self) -> bool:
        """Whether `read_now` may be called: reading needs neither a disk nor a thread."""
        ...

    async def open(self) -> None:
        """Open the log; does nothing if it is open; a closed one can be opened again.

        Raises:
            StorageRefused: if it is damaged, newer than this program, not a log, not writable
                or used by another process. Nothing was changed.
        """
        ...

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        """Store all records of a batch, or none, and return when they are stored.

        Batches are stored in the order of the calls. A caller that is cancelled does not know
        whether its batch was stored; if it was, it was stored whole.

        Raises:
            LogGap: if an event is not the next one of its session.
            LogFenced, LogDamaged: if the records of some sessions are not accepted, and never will
                be. The rest of the batch can be appended without them.
            StorageFailed: if it could not be stored. Batches that were appended before this
                failure was known fail with it, so appending all again, in order, is correct.
        """
        ...

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return the first `limit` events with a seq above `after`, in order, as stored.

        Fewer, if they are large: a page that has `MOST_PAGE_BYTES` or more ends there.
        """
        ...

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Read without waiting, if the storage `is_immediate`.

        Raises:
            StorageFailed: if it is not `is_immediate`.
        """
        ...

    async def sessions(self) -> list[SessionMeta]:
        """Return the meta of every session, in order of first appearance, with its last seq."""
        ...

    async def delete_events(self, session_id: str) -> None:
        """Delete all events of a session; its meta stays and its numbering continues."""
        ...

    async def close(self) -> None:
        """Store what was appended, then release files and threads; may be called twice."""
        ...


@runtime_checkable
class ImmediateStorage(Protocol):
    """A storage that can sometimes store without waiting."""

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        """Store the batch and return True, or do nothing and return False: then use `append`.

        Returns False as long as a batch that was appended before is not stored.

        Raises:
            LogGap, LogFenced, LogDamaged, StorageFailed: as `append`.
        """
        ...


Run = tuple[str, int, list[bytes]]
"""Consecutive events of one session: its id, the seq of the last, and their bytes."""

_session_id = attrgetter("session_id")


class Group:
    """The records of one commit: those of all offered batches that leave no gap."""

    def __init__(self, stored_seq: Callable[[str], int]) -> None:
        self.records: list[Record] = []
        self.runs: list[Run] = []
        """The events among the records; consecutive ones of a session are one run."""
        self.metas: dict[str, SessionMeta] = {}
        """The last meta of each session among the records."""
        self.last_seqs: dict[str, int] = {}
        """Every session of the group, in order, with its last seq after the commit."""
        self._stored_seq = stored_seq

    def offer(self, batch: Batch) -> LogGap | None:
        """Add a whole batch, or return its gap and leave the group unchanged."""
        reached: dict[str, int] = {}
        metas: dict[str, SessionMeta] = {}
        runs: list[Run] = []
        # Loops in C where possible: this runs for every event of every agent.
        for session_id, records in groupby(batch, _session_id):
            run = list(records)
            events = [record for record in run if isinstance(record, Stored)]
            last = reached.get(session_id, -1)
            if last < 0:
                last = self._last_seq(session_id)
            seqs = [event.seq for event in events]
            if seqs != list(range(last + 1, last + 1 + len(seqs))):
                return _gap(session_id, last + 1, seqs)
            reached[session_id] = last + len(seqs)
            if events:
                runs.append((session_id, seqs[-1], [event.data for event in events]))
            if len(events) < len(run):
                metas |= {m.session_id: m for m in run if isinstance(m, SessionMeta)}
        self.records += batch
        self.runs += runs
        self.metas |= metas
        self.last_seqs |= reached
        return None

    def _last_seq(self, session_id: str) -> int:
        last = self.last_seqs.get(session_id)
        return self._stored_seq(session_id) if last is None else last


def _gap(session_id: str, first: int, seqs: list[int]) -> LogGap:
    expected, seq = next(pair for pair in enumerate(seqs, first) if pair[0] != pair[1])
    return LogGap(session_id, expected=expected, seq=seq)

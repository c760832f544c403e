"""The one interface of all logs; `tests/storage/test_contract.py` says what each must do.

What a log holds: numbered events as bytes, and what must be known to continue a session.

Which batches continue the log: the rule behind INV-1, for every back end.
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


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a session was opened and what became of it; the last one stored counts."""

    session_id: str
    agent_definition_id: str | None = None
    cwd: str
    mcp_servers: tuple[dict[str, Any], ...] | None = None
    additional_directories: tuple[str, ...] = ()
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    lifecycle: Lifecycle = "open"
    last_seq: int = 0
    """The seq of the last stored event. Storages fill it in and ignore it when it is given."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event; `data` is `encode_event(event)`: one line of JSON with this id and this seq."""

    session_id: str
    seq: int
    data: bytes


Record: TypeAlias = Stored | SessionMeta
Batch: TypeAlias = Sequence[Record]

META_KIND: Final = "session-meta"
_META_KEYS: Final = {"kind", *(f.encode_name for f in msgspec.structs.fields(SessionMeta))}
_decode: Final = msgspec.json.Decoder(SessionMeta).decode


def encode_meta(meta: SessionMeta, *, freed_seq: int = 0, before: bytes | None = None) -> bytes:
    """Write a meta as the line of JSON that acpjs writes.

    `lastSeq` is ours: events up to `freed_seq` were deleted, and the numbering goes on after it.
    Keys of `before`, the meta that this one replaces, that this version does not know are kept.
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
    """Read what `encode_meta` or acpjs wrote.

    Raises:
        msgspec.ValidationError: if it is JSON, but not a meta.
        JsonInvalid: if it is not even JSON.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError):  # a lone surrogate, perhaps
        return msgspec.convert(decode_json(line), SessionMeta)


def listed_meta(session_id: str, line: bytes | None, last_seq: int) -> SessionMeta:
    """Return the meta to list for a session; one that has none is listed as acpjs does."""
    if line is not None:
        try:
            return msgspec.structs.replace(decode_meta(line), last_seq=last_seq)
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
    """A log of sessions. Whoever is given one opens it once and closes it."""

    @property
    def is_durable(self) -> bool:
        """Whether what `append` stored outlives this process."""
        ...

    @property
    def is_immediate(self) -> bool:
        """Whether `read_now` may be called: reading needs neither a disk nor a thread."""
        ...

    async def open(self) -> None:
        """Make the log ready; an open one is left as it is, a closed one opens again.

        Raises:
            StorageRefused: if it is damaged, newer than this program, not a log, not writable
                or used by another process. Nothing was changed.
        """
        ...

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        """Store all records of a batch, or none, and return when they are stored.

        Batches are stored in the order of the calls. Whoever is cancelled while waiting does not
        know whether the batch was stored; if it was, it was stored whole.

        Raises:
            LogGap: if an event is not the next one of its session.
            StorageFailed: if it could not be stored. Batches that were handed over before this
                one's failure was known fail with it, so offering all again, in order, is right.
        """
        ...

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return the first `limit` events with a seq above `after`, in order, as stored."""
        ...

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Do what `read` does in the same step, if the storage `is_immediate`.

        Raises:
            StorageFailed: if it is not.
        """
        ...

    async def sessions(self) -> list[SessionMeta]:
        """Return the meta of every session, in order of first appearance, with its last seq."""
        ...

    async def delete_events(self, session_id: str) -> None:
        """Let go of all events of a session; its meta stays and its numbering goes on."""
        ...

    async def close(self) -> None:
        """Store what was handed over, then let go of files and threads; may be called twice."""
        ...


@runtime_checkable
class ImmediateStorage(Protocol):
    """A storage that can store in the same step, at least at times."""

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        """Do what `append` does and return True, or nothing and return False: use `append` then.

        It is False as long as anything that was appended before is not stored.

        Raises:
            LogGap, StorageFailed: as `append`.
        """
        ...


Run = tuple[str, int, list[bytes]]
"""Events of one session that follow each other: its id, the last one's seq, and all of them."""

_session_id = attrgetter("session_id")


class Group:
    """The records that one commit stores: those of all batches offered that leave no gap."""

    def __init__(self, stored_seq: Callable[[str], int]) -> None:
        self.records: list[Record] = []
        self.runs: list[Run] = []
        """The events among the records, those of a session that follow each other in one."""
        self.metas: dict[str, SessionMeta] = {}
        """The last of each session among the records."""
        self.last_seqs: dict[str, int] = {}
        """Every session that is touched, in order, with its last seq after the commit."""
        self._stored_seq = stored_seq

    def offer(self, batch: Batch) -> LogGap | None:
        """Take a batch whole, or say why not and leave the group as it was."""
        reached: dict[str, int] = {}
        metas: dict[str, SessionMeta] = {}
        runs: list[Run] = []
        # In steps that are loops in C: there is a step for every event of every agent.
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

"""Whether a log is what was stored: checksums, the damage they find, and the epoch of its numbers.

CRC-32 finds every flipped bit, every burst of up to 32 bits and all but one in four billion other
changes; it is no defence against a person who can write the file. A checksum covers its place as
well as its content: the session and the numbers of its events. A row that a damaged index returns
for another session, or for other numbers, does not match. It is computed per run of events, not per
event: 0.6 ns per byte.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable
from zlib import crc32

import msgspec

_EPOCH: Final = re.compile(r"l[0-9a-f]{8}")


class Damage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Events of a session that are not what was stored."""

    session_id: str | None
    """None if its id is lost too."""
    first_seq: int
    last_seq: int
    reason: str
    """A clause, such as `their checksum is wrong`."""
    is_lost: bool = False
    """The events are gone and the session works without them; else they cannot be read."""

    @property
    def sentence(self) -> str:
        """Which events of which session, and why."""
        session = "a session" if self.session_id is None else f"session {self.session_id}"
        if self.first_seq >= self.last_seq:
            events = f"event {self.last_seq}" if self.last_seq else "the record"
            return f"{events} of {session}: {self.reason}"
        return f"events {self.first_seq} to {self.last_seq} of {session}: {self.reason}"


class LogEpoch(msgspec.Struct, frozen=True):
    """An epoch: as long as it lasts, a number means the same event to every reader."""

    id: str
    is_first: bool = True
    """The log has never gone back: a number without an epoch can be trusted too."""


@runtime_checkable
class CheckedStorage(Protocol):
    """A storage that knows its epoch and finds damage."""

    @property
    def epoch(self) -> LogEpoch:
        """The epoch of the open log."""
        ...

    @property
    def damages(self) -> Sequence[Damage]:
        """The damage found so far: when the log was opened, and by reading it."""
        ...


@runtime_checkable
class UnconfirmedStorage(Protocol):
    """A storage that may have lost events in a power cut, of which there may be copies."""

    @property
    def unconfirmed_epoch(self) -> LogEpoch | None:
        """The epoch before the power cut; None if there was none."""
        ...

    async def confirm(self) -> None:
        """Record what is still missing as lost.

        Raises:
            StorageFailed: if that cannot be stored.
        """
        ...


def epoch_of(storage: object) -> LogEpoch:
    """Return the epoch of an open storage; a new one for a storage that has none."""
    if isinstance(storage, CheckedStorage):
        return storage.epoch
    return LogEpoch(new_epoch(), is_first=False)


def damages_of(storage: object) -> Sequence[Damage]:
    """Return the damage that a storage has found."""
    return storage.damages if isinstance(storage, CheckedStorage) else ()


def name_checksum(session_id: str) -> int:
    """Return the checksum of a session's id, from which those of its events begin."""
    return crc32(session_id.encode("utf-8", "surrogatepass"))


def run_checksum(name: int, last_seq: int, count: int, data: bytes) -> int:
    """Return the checksum of a run of events; `name` is the `name_checksum` of its session."""
    return crc32(data, crc32(b"%d %d" % (last_seq, count), name))


def record_checksum(name: int, meta: int, last_seq: int, freed_seq: int) -> int:
    """Return the checksum of a session's record; `meta` is that of its meta."""
    return crc32(b"%d %d %d" % (meta, last_seq, freed_seq), name)


def meta_checksum(line: bytes | None) -> int:
    """Return the checksum of a session's meta; 0 if it has none."""
    return 0 if line is None else crc32(line)


def new_epoch() -> str:
    """Return a new name of an epoch. Its first letter tells it from a number."""
    return f"l{secrets.token_hex(4)}"


def is_epoch(text: str) -> bool:
    """Return whether a text can be the name of an epoch."""
    return _EPOCH.fullmatch(text) is not None

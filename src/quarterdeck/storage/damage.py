"""What is known to be wrong with a log, and the epoch that its readers compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from quarterdeck.storage.checksums import new_epoch


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


def epoch_of(storage: object) -> LogEpoch:
    """Return the epoch of an open storage; a new one for a storage that has none."""
    if isinstance(storage, CheckedStorage):
        return storage.epoch
    return LogEpoch(new_epoch(), is_first=False)


def damages_of(storage: object) -> Sequence[Damage]:
    """Return the damage that a storage has found."""
    return storage.damages if isinstance(storage, CheckedStorage) else ()

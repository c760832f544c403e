"""The one interface of all logs; `tests/storage/test_contract.py` says what each must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from quarterdeck.storage.records import SessionMeta, Stored


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

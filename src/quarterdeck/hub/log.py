"""`HubLog`: the hub's copies of the logs of other machines, in files or in PostgreSQL.

The hub never numbers events: their machine did, and is the only one that does. The hub stores runs
of them, under the machine's id (its *space*, since agents choose the ids of sessions and two
machines may choose the same) and with the numbers that they have.

Fencing. A hub claims a session before it stores events of it, and gets an *epoch*. Each claim
raises it; a run with an older epoch is `Fenced` and stores nothing. So when a machine's link moves
to another hub, what the first one still holds cannot be stored behind its back.

Sending a run again is harmless: the answer is always the hub's own number.

    run ends at or before the head      → `Acknowledged(head)`: nothing to store
    run continues the head, or overlaps → `Acknowledged(its last number)`: the rest was stored
    numbers between are missing         → `Again(head)`: send from there

Two implementations, one contract: `tests/hub/test_log.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import anyio
from anyio import to_thread

from quarterdeck.errors import StorageFailed
from quarterdeck.machine.private_files import private_folder
from quarterdeck.storage import CompactedFile, LogEpoch, SqliteStorage, Stored


class ClaimedHead(NamedTuple):
    """How far a session is stored, and the epoch of the claim that may continue it."""

    epoch: int
    last_seq: int


class LogRun(NamedTuple):
    """Events in a row, as their machine stored them."""

    space: str
    session_id: str
    epoch: int
    last_seq: int
    """The number of the last one."""
    events: Sequence[bytes]


class LogCursor(NamedTuple):
    """What follows a number in a session."""

    space: str
    session_id: str
    after: int


class Acknowledged(NamedTuple):
    """Everything up to this number is stored."""

    last_seq: int


class Again(NamedTuple):
    """Nothing was stored: events after this number are missing."""

    last_seq: int


class Fenced(NamedTuple):
    """Nothing was stored: the session was claimed again, with this epoch."""

    epoch: int


Outcome: TypeAlias = Acknowledged | Again | Fenced


class HubLog(Protocol):
    """Copies of logs. Every method raises `StorageFailed` if they cannot be written or read."""

    async def open_space(self, space: str) -> LogEpoch:
        """Open the copies of a machine, or create them; return their epoch.

        Raises:
            StorageRefused: if they are damaged or in use.
        """

    async def close_space(self, space: str) -> None:
        """Close the copies of a machine; nothing happens if they are not open."""

    async def remove_space(self, space: str) -> None:
        """Delete the copies of a machine, and their numbers; they must be closed."""

    async def heads(self, space: str) -> dict[str, int]:
        """Return the last number of each session of a machine."""

    async def claim(
        self, space: str, session_id: str, owner: str, *, take: bool = False
    ) -> ClaimedHead | None:
        """Let `owner` store events of a session from now on, and no other claim.

        None if another owner has it, unless it is taken over (`take`).
        """

    async def append(self, runs: Sequence[LogRun]) -> list[Outcome]:
        """Store runs, each completely or not at all; return what became of each.

        Runs of other callers that wait at the same time are stored with them.
        """

    async def read(self, cursors: Sequence[LogCursor], limit: int) -> list[list[bytes]]:
        """Return up to `limit` events after each cursor.

        Fewer, if they are large: a page that has `MOST_PAGE_BYTES` or more ends there.
        """

    async def forget(self, space: str, session_id: str) -> None:
        """Delete all events of a session; its numbering continues."""

    async def compact(self, space: str) -> list[CompactedFile]:
        """Give free space of a machine's copies back to the disk."""


def missing_part(run: LogRun, head: ClaimedHead | None) -> LogRun | Outcome:
    """Return what of a run is to be stored after a head; or the answer, if that is nothing."""
    if head is None or run.epoch != head.epoch:
        return Fenced(0 if head is None else head.epoch)
    if run.last_seq <= head.last_seq:
        return Acknowledged(head.last_seq)
    stored_count = head.last_seq - (run.last_seq - len(run.events))
    if stored_count < 0:
        return Again(head.last_seq)
    return run._replace(events=run.events[stored_count:])


# ---- files -------------------------------------------------------------------------------------


class SqliteHubLog:
    """`HubLog` as a file for each machine, `<machine>/log.db`.

    Epochs are in memory: the hub holds the lock of its data folder, so there is no other writer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storages: dict[str, SqliteStorage] = {}
        self._heads: dict[str, dict[str, ClaimedHead]] = {}
        self._owners: dict[tuple[str, str], str] = {}

    async def open_space(self, space: str) -> LogEpoch:
        folder = private_folder(self._folder / space)
        storage = SqliteStorage(folder / "log.db")
        await storage.open()
        known = await storage.sessions()
        self._storages[space] = storage
        epochs = self._heads.get(space, {})
        self._heads[space] = {
            each.session_id: ClaimedHead(
                epochs[each.session_id].epoch if each.session_id in epochs else 0, each.last_seq
            )
            for each in known
        }
        return storage.epoch

    async def close_space(self, space: str) -> None:
        storage = self._storages.pop(space, None)
        if storage is not None:
            await storage.close()

    async def remove_space(self, space: str) -> None:
        self._heads.pop(space, None)
        self._owners = {key: owner for key, owner in self._owners.items() if key[0] != space}
        folder = self._folder / space
        await to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async def heads(self, space: str) -> dict[str, int]:
        return {name: head.last_seq for name, head in self._heads[space].items() if head.last_seq}

    async def claim(
        self, space: str, session_id: str, owner: str, *, take: bool = False
    ) -> ClaimedHead | None:
        if not take and self._owners.get((space, session_id), owner) != owner:
            return None
        self._owners[space, session_id] = owner
        heads = self._heads[space]
        head = heads.get(session_id, ClaimedHead(0, 0))
        claimed = heads[session_id] = head._replace(epoch=head.epoch + 1)
        return claimed

    async def append(self, runs: Sequence[LogRun]) -> list[Outcome]:
        return [await self._append(run) for run in runs]

    async def _append(self, run: LogRun) -> Outcome:
        head = self._heads[run.space].get(run.session_id)
        part = missing_part(run, head)
        if not isinstance(part, LogRun):
            return part
        assert head is not None, "else it was fenced"
        begin = part.last_seq - len(part.events) + 1
        # Known before it is stored: another append that comes meanwhile continues after this one.
        self._heads[run.space][run.session_id] = head._replace(last_seq=part.last_seq)
        events = [Stored(run.session_id, seq, data) for seq, data in enumerate(part.events, begin)]
        try:
            with anyio.CancelScope(shield=True):  # else it would not be known what was stored
                await self._storages[run.space].append(events)
        except StorageFailed:
            self._heads[run.space][run.session_id] = head
            raise
        return Acknowledged(part.last_seq)

    async def read(self, cursors: Sequence[LogCursor], limit: int) -> list[list[bytes]]:
        return [
            await self._storages[space].read(session_id, after, limit)
            for space, session_id, after in cursors
        ]

    async def forget(self, space: str, session_id: str) -> None:
        if session_id in self._heads[space]:
            await self._storages[space].delete_events(session_id)

    async def compact(self, space: str) -> list[CompactedFile]:
        before, after = await self._storages[space].compact()
        file = str(Path(self._folder.name, space, self._storages[space].path.name))
        return [CompactedFile(file=file, before=before, after=after)]

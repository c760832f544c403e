"""A log that ends with its process: the default of `Host`, and the one that tests use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from quarterdeck.errors import StorageFailed
from quarterdeck.storage.contract import MOST_PAGE_BYTES, Group, SessionMeta, Stored
from quarterdeck.storage.integrity import Damage, LogEpoch, new_epoch


class _Session:
    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.meta = SessionMeta(session_id=session_id, cwd="")
        self.events: list[bytes] = []
        self.freed_seq = 0
        """The seq of the event before `events[0]`."""

    @property
    def last_seq(self) -> int:
        return self.freed_seq + len(self.events)


class MemoryStorage:
    """Keeps everything as long as the object lives; closing and opening it loses nothing."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._is_open = False
        self.epoch = LogEpoch(new_epoch())
        self.damages: Sequence[Damage] = ()

    @property
    def is_durable(self) -> bool:
        return False

    @property
    def is_immediate(self) -> bool:
        return True

    async def open(self) -> None:
        self._is_open = True

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        self.append_now(batch)

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        self._check_open()
        self._check_numbers(batch)
        session: _Session | None = None
        for record in batch:
            session_id = record.session_id
            if session is None or session.id != session_id:
                session = self._sessions.get(session_id)
                if session is None:
                    session = self._sessions[session_id] = _Session(session_id)
            if isinstance(record, Stored):
                session.events.append(record.data)
            else:
                session.meta = record
        return True

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        return self.read_now(session_id, after, limit)

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return []
        # There are no gaps, so the seq is the position.
        start = max(after - session.freed_seq, 0)
        page = session.events[start : start + limit]
        sizes = accumulate(map(len, page))
        end = next((count for count, size in enumerate(sizes, 1) if size >= MOST_PAGE_BYTES), limit)
        return page[:end]

    async def sessions(self) -> list[SessionMeta]:
        self._check_open()
        return [
            msgspec.structs.replace(session.meta, last_seq=session.last_seq)
            for session in self._sessions.values()
        ]

    async def delete_events(self, session_id: str) -> None:
        self._check_open()
        session = self._sessions.get(session_id)
        if session is not None:
            session.freed_seq = session.last_seq
            session.events = []

    async def close(self) -> None:
        self._is_open = False

    def _check_numbers(self, batch: Sequence[Stored | SessionMeta]) -> None:
        """Raise `LogGap` for a batch that leaves a gap, before any of it is stored."""
        gap = Group(self._last_seq).offer(batch)
        if gap is not None:
            raise gap

    def _last_seq(self, session_id: str) -> int:
        session = self._sessions.get(session_id)
        return 0 if session is None else session.last_seq

    def _check_open(self) -> None:
        if not self._is_open:
            raise StorageFailed("in memory", "it is not open", "open it first")

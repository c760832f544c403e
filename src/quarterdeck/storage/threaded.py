"""A storage around a log with blocking calls: one thread writes it, another one reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread

from quarterdeck.errors import StorageFailed
from quarterdeck.storage.records import SessionMeta, Stored
from quarterdeck.storage.writer import STOP_SECONDS, Commits, Writer


class BlockingLog(Commits, Protocol):
    """A log on disk. `commit`, `tidy` and `forget` never run at the same time; reads may."""

    @property
    def path(self) -> Path: ...

    def open(self) -> None: ...

    def read(self, session_id: str, after: int, limit: int) -> list[bytes]: ...

    def sessions(self) -> list[SessionMeta]: ...

    def forget(self, session_id: str) -> None:
        """Let the events of a session be gone from now on; `tidy` frees their space."""
        ...

    def close(self) -> None: ...


class ThreadedStorage:
    """All of `Storage` but the constructor."""

    def __init__(self, log: BlockingLog) -> None:
        self._log = log
        self._writer: Writer | None = None
        self._reads = anyio.CapacityLimiter(1)  # one reader is enough: pages are short

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def is_immediate(self) -> bool:
        return False

    @property
    def path(self) -> Path:
        return self._log.path

    async def open(self) -> None:
        if self._writer is None:
            await to_thread.run_sync(self._log.open, limiter=self._reads)
            self._writer = Writer(self._log, name=f"writer of {self._log.path.name}")

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        await self._open_writer().append(batch)

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        return self._open_writer().append_now(batch)

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        del session_id, after, limit
        raise StorageFailed(self._log.path, "it is read on a thread", "await read instead")

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self._open_writer()
        page = partial(self._log.read, session_id, after, limit)
        return await to_thread.run_sync(page, limiter=self._reads)

    async def sessions(self) -> list[SessionMeta]:
        self._open_writer()
        return await to_thread.run_sync(self._log.sessions, limiter=self._reads)

    async def delete_events(self, session_id: str) -> None:
        await self._open_writer().run(partial(self._log.forget, session_id))

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not await writer.stop():
            waited = f"its last commit takes more than {STOP_SECONDS:g} s"
            raise StorageFailed(self._log.path, waited, "check the disk")
        # Bounded by one page being read and the housekeeping that is left.
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(self._log.close, limiter=self._reads)

    def _open_writer(self) -> Writer:
        if self._writer is None:
            raise StorageFailed(self._log.path, "it is not open", "open it first")
        return self._writer

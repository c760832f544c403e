"""One log, encoded once for all who follow it.

A follower is a cursor, not a queue. What it has not seen is in the ring (the newest events, in
memory) or in a block: older events, read from storage in aligned runs, so that all who are behind
read the same blocks and share them. Nobody's slowness costs more than the bytes on their way to
them (INV-8), and the ring is filled in the step that publishes, so nothing falls between what was
read and what is live (INV-2).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import anyio

from quarterdeck.host import EncodedLog, Host, PermissionRequest
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import to_json
from quarterdeck.server.library import Library
from quarterdeck.server.streams.closed import ClosedLog, open_source
from quarterdeck.server.streams.runs import Run, stored_run

BLOCK: Final = 128  # events; about 40 KB of an ordinary session, and as much is on its way at most
RING_EVENTS: Final = 8192  # that are kept, or two runs if they are longer: a commit can be large
NEAR_EVENTS: Final = 1024  # behind the head, that are soon caught up with
RING_BYTES: Final = 4 << 20
BLOCKS_BYTES: Final = 2 << 20  # of one log, while somebody reads it
Source: TypeAlias = EncodedLog | ClosedLog
_CUTS: Final = 32  # runs of the ring that are kept until the next event


class SharedLog:
    """The log of a session, or of the host, while somebody follows it."""

    def __init__(self, source: Source, session_id: str | None, prefix: bytes = b"") -> None:
        self.session_id = session_id
        self.head = source.head
        self.has_ended = source.has_ended
        self.prefix = prefix
        self.holders = 0
        self._source = source
        self._ring: list[bytes] = []
        self._ring_from = self.head + 1
        self._ring_bytes = 0
        self._cuts: dict[int, Run] = {}
        self._blocks: OrderedDict[int, Run] = OrderedDict()
        self._blocks_bytes = 0
        self._reading = anyio.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._unwatch = source.watch(self)

    # ---- followers -------------------------------------------------------------------------

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is news; return what ends that."""
        key = object()
        self._wakers[key] = wake
        return lambda: self._wakers.pop(key, None) and None

    def close(self) -> None:
        self._unwatch()

    @property
    def was_closed(self) -> bool:
        """Whether it is of a session that was closed before this hub began."""
        return isinstance(self._source, ClosedLog)

    @property
    def first(self) -> int:
        """The number of the oldest event there may be."""
        return self._source.first

    def recent(self, cursor: int) -> Run | None:
        """Return what follows a cursor that is behind the head, if it is in memory."""
        if cursor + 1 < self._ring_from:
            return None
        run = self._cuts.get(cursor)
        if run is None:
            if len(self._cuts) >= _CUTS:
                self._cuts.clear()
            run = self._cuts[cursor] = self._cut(cursor)
        return run

    async def older(self, cursor: int) -> Run:
        """Return what follows a cursor, up to the next border of a block.

        Raises:
            StorageFailed: if it cannot be read.
        """
        number = cursor // BLOCK
        block = self._blocks.get(number)
        if block is None:
            async with self._reading:
                block = self._blocks.get(number) or await self._read(number)
        else:
            self._blocks.move_to_end(number)
        return block.after(cursor)

    # ---- of the host -----------------------------------------------------------------------

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._ring += encoded
        self._ring_bytes += sum(map(len, encoded))
        self.head = last_seq
        self._cuts.clear()
        kept = max(RING_EVENTS, 2 * len(encoded))
        if len(self._ring) > 2 * kept or self._ring_bytes > RING_BYTES:
            self._trim(kept)
        self._wake()

    def on_ended(self) -> None:
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakers.values()):
            wake()

    def _trim(self, kept: int) -> None:
        """Forget all but the newest, and of those the older half if they are large."""
        dropped = max(0, len(self._ring) - kept)
        size = self._ring_bytes - sum(map(len, self._ring[:dropped]))
        while size > RING_BYTES // 2 and dropped < len(self._ring):
            size -= len(self._ring[dropped])
            dropped += 1
        del self._ring[:dropped]
        self._ring_from += dropped
        self._ring_bytes = size

    def _cut(self, cursor: int) -> Run:
        last = min(self.head, (cursor // BLOCK + 1) * BLOCK)
        start = cursor + 1 - self._ring_from
        events = self._ring[start : start + last - cursor]
        return Run(range(cursor + 1, last + 1), events, last, self.prefix)

    async def _read(self, number: int) -> Run:
        after = number * BLOCK
        last = min(self.head, after + BLOCK)
        page = await self._source.read(after, last - after)
        block = stored_run(page, last, self.prefix)
        if last == after + BLOCK and block.size <= BLOCKS_BYTES:
            self._keep(number, block)
        return block

    def _keep(self, number: int, block: Run) -> None:
        self._blocks[number] = block
        self._blocks_bytes += block.size
        while self._blocks_bytes > BLOCKS_BYTES:
            _, oldest = self._blocks.popitem(last=False)
            self._blocks_bytes -= oldest.size


class Logs:
    """The logs that are being followed."""

    def __init__(self, host: Host, library: Library | None = None) -> None:
        self.host = host
        self._library = library
        self.epoch = secrets.token_hex(4)
        """Of the host's own numbers, which begin anew with each process."""
        self._logs: dict[str | None, SharedLog] = {}
        self._standing = (-1, b"")

    async def open(self, session_id: str | None) -> SharedLog:
        """Return the log of a session, or without one the host's; `release` it in the end.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
            StorageFailed: if it cannot be read.
        """
        source = await open_source(self.host, self._library, session_id)
        log = self._logs.get(session_id)
        if log is None or log.has_ended:
            prefix = b"" if session_id is not None else b"%b-" % self.epoch.encode()
            log = self._logs[session_id] = SharedLog(source, session_id, prefix)
        log.holders += 1
        return log

    def release(self, log: SharedLog) -> None:
        """Let go of a log; nobody's is forgotten."""
        log.holders -= 1
        if not log.holders:
            log.close()
            if self._logs.get(log.session_id) is log:
                del self._logs[log.session_id]

    def standing(self, head: int) -> bytes:
        """Write how things stand after the host's newest event, as members of a JSON object."""
        if self._standing[0] != head:
            self._standing = (head, _standing(self.host))
        return self._standing[1]


def _standing(host: Host) -> bytes:
    state: dict[str, Sequence[Any]] = {
        "agents": host.get_agents(),
        "sessions": host.get_sessions(),
        "elicitations": host.pending_elicitations(),
    }
    facts = {name: [to_json(each) for each in listed] for name, listed in state.items()}
    facts["permissions"] = [_permission(each) for each in host.pending_permissions()]
    return encode_json(facts)[1:-1]


def _permission(request: PermissionRequest) -> dict[str, Any]:
    """Return a pending request with the extensions of its event: the whole card."""
    shown: dict[str, Any] = to_json(request.snapshot())
    if request.derived is not None:
        shown["extensions"] = {"quarterdeck": {"request": request.derived}}
    return shown

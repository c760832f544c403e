"""`SharedLog`: one log, encoded once for all its subscribers.

A subscriber is a cursor, not a queue. What it has not seen is in the ring (the newest events, in
memory) or in a block: older events, read from storage in aligned runs, so that all who are behind
read the same blocks and share them. A slow subscriber costs no more than the bytes on their way to
it (INV-8). The ring is filled in the step that publishes, so nothing falls between what was read
and what is live (INV-2).

`EncodedRun` is a run of events as bytes, with each way to write it made once.

An event on its way to a client: its `LogSource` calls `SharedLog.on_published`, which wakes the
streams that joined. `Fleet.open_log` (`hub/fleet/fleet`) gives the source. Of the hub's own machine
it is a `RemoteLog` (`runner/link/remote_log`), which gets events over the link and reads older ones
by a call; in a hub whose runner is in the same process, it is the `EncodedLog` of the host. Of
another machine it is the hub's copy (`hub/fleet/replica`). Each stream then asks its
`LogSubscription` (`subscription`) for the next run and sends it as server-sent events (`http/sse`);
`web/src/data/stream.ts` reads them in the page.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, Self

import anyio
import msgspec
from typing_extensions import override

from quarterdeck.errors import JsonInvalid
from quarterdeck.hub.view_cache import ViewBudget
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import to_json
from quarterdeck.runner import LogSource, PermissionView, RunnerApi
from quarterdeck.storage import MOST_PAGE_BYTES, LogEpoch

logger = logging.getLogger(__name__)


class EncodedText(str):
    """A text that remembers its bytes.

    ASGI has the frames of a WebSocket as `str`, which servers encode for every client again: for
    text that is not ASCII that costs more than sending it.
    """

    __slots__ = ("_data",)

    _data: bytes

    def __new__(cls, data: bytes) -> Self:
        plain = data.decode("utf-8", "replace")
        text = super().__new__(cls, plain)
        text._data = data if "\ufffd" not in plain else plain.encode()  # it may be damaged
        return text

    @override
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self._data if encoding == "utf-8" else super().encode(encoding, errors)


class EncodedRun:
    """A run of one log; `last` is the cursor of a subscriber that has it."""

    def __init__(
        self, numbers: Sequence[int], events: Sequence[bytes], last: int, prefix: bytes = b""
    ) -> None:
        self.numbers = numbers
        self.events = events
        self.last = last
        self._prefix = prefix
        self._frame: tuple[str, EncodedText] | None = None

    @cached_property
    def sse(self) -> bytes:
        """The events as an event stream; `id:` is the number, behind the log's prefix."""
        form = b"id: " + self._prefix.replace(b"%", b"%%") + b"%d\ndata: %b\n\n"
        return b"".join([form % each for each in zip(self.numbers, self.events, strict=True)])

    def frame(self, head: str) -> str:
        """Return the events as a JSON array behind `head`; most clients name it the same."""
        if self._frame is None or self._frame[0] != head:
            data = b"%b[%b]}" % (head.encode(), b",".join(self.events))
            self._frame = (head, EncodedText(data))
        return self._frame[1]

    @cached_property
    def size(self) -> int:
        return sum(map(len, self.events))

    def after(self, cursor: int) -> EncodedRun:
        """Return what follows a number."""
        skipped = bisect_right(self.numbers, cursor)
        if not skipped:
            return self
        return EncodedRun(self.numbers[skipped:], self.events[skipped:], self.last, self._prefix)

    def up_to(self, number: int) -> EncodedRun:
        """Return what does not go beyond a number."""
        if self.last <= number:
            return self
        kept = bisect_right(self.numbers, number)
        return EncodedRun(self.numbers[:kept], self.events[:kept], number, self._prefix)


class _Numbered(msgspec.Struct):
    seq: int


_read_number = msgspec.json.Decoder(_Numbered).decode


def stored_run(page: Sequence[bytes], last: int, prefix: bytes = b"") -> EncodedRun:
    """Return what was read from storage; a damaged event is left out and does not hide others.

    Reading the number reads the whole event: what is passed on is JSON, on one line.
    """
    whole = b" ".join(page)
    if b"\n" not in whole and b"\r" not in whole:
        try:
            numbers = [_read_number(data).seq for data in page]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # one of them is damaged, or odd
        else:
            if not numbers or numbers[-1] <= last:
                return EncodedRun(numbers, page, last, prefix)
    found = [(number, data) for data in page if (number := _read_slowly(data)) is not None]
    kept = [(number, _on_one_line(data)) for number, data in found if number <= last]
    return EncodedRun([number for number, _ in kept], [data for _, data in kept], last, prefix)


def _read_slowly(data: bytes) -> int | None:
    try:
        event = decode_json(data)
    except JsonInvalid as error:
        logger.warning("a stored event cannot be read", extra={"reason": error.reason})
        return None
    number = event.get("seq") if isinstance(event, dict) else None
    return number if isinstance(number, int) else None


def _on_one_line(data: bytes) -> bytes:
    # JSON may be written on several lines; ours never is, but a log can be edited.
    return encode_json(decode_json(data)) if b"\n" in data or b"\r" in data else data


BLOCK: Final = 128  # events; about 40 KB of an ordinary session, and as much is on its way at most
RING_EVENTS: Final = 8192  # that are kept, or two runs if they are longer: a commit can be large
NEAR_EVENTS: Final = 1024  # behind the head, that are soon caught up with
RING_BYTES: Final = 4 << 20
RINGS_BYTES: Final = 64 << 20  # of all rings; with many logs each has less, `LEAST_RING` at least
LEAST_RING: Final = 128 << 10
BLOCKS_BYTES: Final = 16 << 20  # of the blocks of all logs, while they have subscribers
PIECE_BYTES: Final = 1 << 20  # of large events that are on their way to one subscriber, about
_CUTS: Final = 32  # runs of the ring that are kept until the next event


class SharedLog:
    """The log of a session, or of the host, while it has subscribers; a `RunSubscriber` of it."""

    def __init__(
        self,
        source: LogSource,
        session_id: str | None,
        prefix: bytes = b"",
        shared: SharedBytes | None = None,
    ) -> None:
        self.session_id = session_id
        self.head = source.head
        self.has_ended = source.has_ended
        self.prefix = prefix
        self.holders = 0
        self._source = source
        self._ring: list[bytes] = []
        self._ring_from = self.head + 1
        self._ring_bytes = 0
        self._cuts: dict[int, EncodedRun] = {}
        self._blocks: dict[int, EncodedRun] = {}
        self._shared = SharedBytes() if shared is None else shared
        self._shared.logs += 1
        self._step = BLOCK
        """How many events are read at a time: fewer than a block, if they are large."""
        self._reading = anyio.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._unsubscribe = source.subscribe(self)

    # ---- subscribers -----------------------------------------------------------------------

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there are new events; return what ends that."""
        key = object()
        self._wakers[key] = wake
        return lambda: self._wakers.pop(key, None) and None

    def close(self) -> None:
        self._unsubscribe()
        self._shared.logs -= 1
        for number in tuple(self._blocks):
            self._shared.blocks.release((self, number))
        self._blocks.clear()

    @property
    def epoch(self) -> str:
        """The epoch of its numbers."""
        return self.prefix.rstrip(b"-").decode()

    @property
    def was_closed(self) -> bool:
        """Whether its session was closed before the runner started."""
        return self._source.was_closed

    @property
    def first(self) -> int:
        """The number of the oldest event there may be."""
        return self._source.first

    def recent(self, cursor: int) -> EncodedRun | None:
        """Return what follows a cursor that is behind the head, if it is in memory."""
        if cursor + 1 < self._ring_from:
            return None
        run = self._cuts.get(cursor)
        if run is None:
            if len(self._cuts) >= _CUTS:
                self._cuts.clear()
            run = self._cuts[cursor] = self._cut(cursor)
        return run

    async def older(self, cursor: int) -> EncodedRun:
        """Return what follows a cursor, up to the next border of a block.

        Raises:
            StorageFailed: if it cannot be read.
        """
        number = cursor // BLOCK
        block = self._blocks.get(number)
        if block is None:
            async with self._reading:
                block = self._blocks.get(number) or await self._read(number, cursor)
        return block.after(cursor)

    # ---- called in the step that publishes (`RunSubscriber`) --------------------------------

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._ring += encoded
        self._ring_bytes += sum(map(len, encoded))
        self.head = last_seq
        self._cuts.clear()
        kept = max(RING_EVENTS, 2 * len(encoded))
        most = self._shared.ring_bytes
        if len(self._ring) > 2 * kept or self._ring_bytes > most:
            self._trim(kept, most)
        self._wake()

    def on_skipped(self, last_seq: int) -> None:
        """Forget the ring: what is before `last_seq` is read from the runner."""
        self._ring.clear()
        self._ring_from = last_seq + 1
        self._ring_bytes = 0
        self.head = last_seq
        self._cuts.clear()
        self._wake()

    def on_ended(self) -> None:
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self._wakers.values()):
            wake()

    def _trim(self, kept: int, most: int) -> None:
        """Forget all but the newest, and of those the older half if they are large."""
        dropped = max(0, len(self._ring) - kept)
        size = self._ring_bytes - sum(map(len, self._ring[:dropped]))
        while size > most // 2 and dropped < len(self._ring):
            size -= len(self._ring[dropped])
            dropped += 1
        del self._ring[:dropped]
        self._ring_from += dropped
        self._ring_bytes = size

    def _cut(self, cursor: int) -> EncodedRun:
        last = min(self.head, (cursor // BLOCK + 1) * BLOCK)
        start = cursor + 1 - self._ring_from
        events = self._ring[start : start + last - cursor]
        return EncodedRun(range(cursor + 1, last + 1), events, last, self.prefix)

    async def _read(self, number: int, cursor: int) -> EncodedRun:
        if self._step < BLOCK:
            return await self._read_piece(cursor)
        after = number * BLOCK
        last = min(self.head, after + BLOCK)
        page = await self._source.read(after, last - after)
        block = stored_run(page, last, self.prefix)
        self._step = _step(page)
        if block.size >= MOST_PAGE_BYTES:  # the page may have ended before the block
            last = block.numbers[-1]
            if last <= cursor:
                return await self._read_piece(cursor)
            return block.up_to(last)
        if last == after + BLOCK and self._step == BLOCK:
            self._keep(number, block)
        return block

    async def _read_piece(self, cursor: int) -> EncodedRun:
        """Read a few large events after a cursor, for one subscriber."""
        page = await self._source.read(cursor, min(self._step, self.head - cursor))
        self._step = _step(page)
        if page:
            last = _read_slowly(page[-1]) or cursor + len(page)
        else:
            last = (cursor // BLOCK + 1) * BLOCK  # its events were deleted
        return stored_run(page, min(self.head, max(last, cursor + 1)), self.prefix)

    def _keep(self, number: int, block: EncodedRun) -> None:
        self._blocks[number] = block

        def drop() -> None:
            self._blocks.pop(number, None)

        self._shared.blocks.hold((self, number), 2 * block.size, drop)  # as events, and as SSE


def _step(page: Sequence[bytes]) -> int:
    """Return how many events to read next, if they are as large as those of a page."""
    return max(1, min(BLOCK, len(page) * PIECE_BYTES // max(1, sum(map(len, page)))))


class SharedBytes:
    """What all logs with subscribers keep in memory, bounded by bytes."""

    def __init__(self) -> None:
        self.logs = 0
        """That have a ring."""
        self.blocks = ViewBudget(BLOCKS_BYTES)

    @property
    def ring_bytes(self) -> int:
        """What one ring may have."""
        return max(LEAST_RING, min(RING_BYTES, RINGS_BYTES // max(1, self.logs)))


class Logs:
    """The logs that have subscribers."""

    def __init__(self, runner: RunnerApi) -> None:
        self.runner = runner
        self._logs: dict[str | None, SharedLog] = {}
        self._shared = SharedBytes()
        self._host_state = (-1, b"")

    @property
    def epoch(self) -> str:
        """Of the host's own numbers, which begin anew with each runner."""
        return self.runner.host_epoch()

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        """Of the numbers of a session, which a log keeps as long as it does not go back.

        Without a session: of those of the hub's own machine.
        """
        return self.runner.log_epoch(session_id)

    async def open(self, session_id: str | None) -> SharedLog:
        """Return the log of a session, or without one the host's; `release` it in the end.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
            StorageFailed: if it cannot be read.
        """
        source = await self.runner.open_log(session_id)
        log = self._logs.get(session_id)
        if log is None or log.has_ended:
            epoch = self.epoch if session_id is None else self.log_epoch(session_id).id
            prefix = b"%b-" % epoch.encode()
            log = self._logs[session_id] = SharedLog(source, session_id, prefix, self._shared)
        log.holders += 1
        return log

    def release(self, log: SharedLog) -> None:
        """Release a log; one without subscribers is closed."""
        log.holders -= 1
        if not log.holders:
            log.close()
            if self._logs.get(log.session_id) is log:
                del self._logs[log.session_id]

    def host_state(self, head: int) -> bytes:
        """Encode agents, sessions and pending requests at event `head`, as members of an object."""
        if self._host_state[0] != head:
            self._host_state = (head, _host_state(self.runner))
        return self._host_state[1]


def _host_state(runner: RunnerApi) -> bytes:
    state: dict[str, Sequence[Any]] = {
        "agents": runner.agents(),
        "sessions": runner.session_snapshots(),
        "elicitations": runner.pending_elicitations(),
    }
    facts = {name: [to_json(each) for each in listed] for name, listed in state.items()}
    facts["permissions"] = [_permission(each) for each in runner.pending_permissions()]
    return encode_json(facts)[1:-1]


def _permission(pending: PermissionView) -> dict[str, Any]:
    """Return a pending request with the extensions of its event: the whole card."""
    shown: dict[str, Any] = to_json(pending.request)
    if pending.derived is not None:
        shown["extensions"] = {"quarterdeck": {"request": pending.derived}}
    return shown

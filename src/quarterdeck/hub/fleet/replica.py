"""`Replica`: the hub's copy of the logs of another machine, so that they can always be read.

Sessions of another machine are read from here, whether it is connected or away: a stream does not
notice that the link breaks, it just gets nothing new. An event is stored here before a client sees
it (INV-5), as the bytes that the machine stored, with the number that it gave.

For each session that has news, a follower runs:

    read what is missing, a page at a time
        → if the session is live: subscribe to it, and append each run as it arrives
        → after a while without events: unsubscribe

The head of a session on the machine is known from the link, so nothing is asked of sessions without
news. What the machine cannot give (damaged events, or those before a deletion) leaves its numbers
to placeholders, so that numbers stay dense.

A runner that lost events in a power cut gets them back from here (`compare`; `runner/heads` has the
rules). Where the two have different events under one number, the session is stopped on the machine,
and this copy stays as it is.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
import msgspec

from quarterdeck.errors import QuarterdeckError, RequestRejected, StorageFailed
from quarterdeck.hub.log import (
    Acknowledged,
    Again,
    ClaimedHead,
    Fenced,
    HubLog,
    LogCursor,
    LogRun,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.runner import LogSource, RunnerApi
from quarterdeck.runner.link import HeadVerdict, LogHead, RunSubscriber, event_digest
from quarterdeck.storage import CompactedFile, LogEpoch
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

PAGE: Final = 512
"""Events that are read from a machine at once."""
MOST_READ: Final = 8
"""Sessions that are read at once, after a machine has come back; others wait for their turn."""
MOST_UNUSED: Final = 64
"""Logs without subscribers that are kept."""
IDLE_SECONDS: Final = 20.0
"""Without events, after which a session is not followed any more."""
RETRY_SECONDS: Final = 1.0
MOST_PLACEHOLDERS: Final = 4_096
"""In one commit."""
MOST_MISSING: Final = 100_000
"""Numbers in a row that a machine cannot give, after which a session is not copied further."""
HEADS: Final = 1_000
"""That are compared with one call."""
MISSING: Final = "quarterdeck/not-copied"
"""The type of a placeholder; a client treats it as an event of a newer version."""

OnHead = Callable[[str, int], None]


class CopiedLog:
    """The copy of one session; a `LogSource`."""

    first = 1

    def __init__(self, replica: Replica, session_id: str) -> None:
        self.session_id = session_id
        self.has_ended = False
        self.was_closed = False
        self._replica = replica
        self._subscribers: tuple[RunSubscriber, ...] = ()

    @property
    def head(self) -> int:
        return self._replica.head(self.session_id)

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    async def read(self, after: int, limit: int) -> list[bytes]:
        return await self._replica.read(self.session_id, after, limit)

    def subscribe(self, subscriber: RunSubscriber) -> Callable[[], None]:
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)

        return unsubscribe

    def publish(self, last: int, encoded: list[bytes]) -> None:
        for subscriber in self._subscribers:
            subscriber.on_published(last, encoded)

    def skip(self, last: int) -> None:
        """Let subscribers read up to a number."""
        for subscriber in self._subscribers:
            subscriber.on_skipped(last)

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            for subscriber in self._subscribers:
                subscriber.on_ended()


class Replica:
    """The copies of all sessions of one machine, by their ids there."""

    def __init__(self, log: HubLog, machine_id: str, machine: RunnerApi, on_head: OnHead) -> None:
        """`on_head` is called in the step that publishes events of a session."""
        self._log = log
        self._space = machine_id
        self._owner = secrets.token_hex(8)
        self._machine = machine
        self._on_head = on_head
        self._heads: dict[str, int] = {}
        """What was shown of each session; it is stored, too."""
        self._claims: dict[str, ClaimedHead] = {}
        """What is stored of sessions that are followed: less, if a database has gone back."""
        self._stopped: set[str] = set()
        self._logs: dict[str, CopiedLog] = {}
        self._followed: dict[str, _Follower] = {}
        self._limit = anyio.Semaphore(MOST_READ)
        self._stored = anyio.Event()
        """Set when anything was stored."""
        self._tasks: IndependentTasks | None = None

    async def open(self, tasks: IndependentTasks) -> None:
        """Open the copies.

        Raises:
            StorageRefused: if they are damaged or in use.
        """
        self._epoch = await self._log.open_space(self._space)
        self._heads = await self._log.heads(self._space)
        self._tasks = tasks

    async def close(self) -> None:
        self._tasks = None
        for log in self._logs.values():
            log.end()
        await self._log.close_space(self._space)

    @property
    def epoch(self) -> LogEpoch:
        """The epoch of the copies themselves."""
        return self._epoch

    # ---- reading ---------------------------------------------------------------------------

    def head(self, session_id: str) -> int:
        return self._heads.get(session_id, 0)

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return events after a number, as they were stored on the machine.

        Raises:
            StorageFailed: if they cannot be read.
        """
        (events,) = await self._log.read([LogCursor(self._space, session_id, after)], limit)
        return events

    def log(self, session_id: str) -> CopiedLog:
        """Return the log of a session, which follows the machine's while it is connected."""
        log = self._logs.get(session_id)
        if log is None or log.has_ended:
            self._close_unused()
            log = self._logs[session_id] = CopiedLog(self, session_id)
        return log

    def _close_unused(self) -> None:
        if len(self._logs) > MOST_UNUSED:
            self._logs = {key: each for key, each in self._logs.items() if each.has_subscribers}

    async def reached(self, session_id: str, seq: int) -> None:
        """Wait until a session was copied up to a number."""
        self.advance(session_id, seq)
        while self.head(session_id) < seq and session_id not in self._stopped:
            await self._stored.wait()

    async def compact(self) -> list[CompactedFile]:
        """Give free space back to the disk.

        Raises:
            StorageFailed: if that is not possible now.
        """
        return await self._log.compact(self._space)

    # ---- following -------------------------------------------------------------------------

    def advance(self, session_id: str, seq: int) -> None:
        """Copy a session up to a number, and follow it; called when its machine has news of it."""
        if self._tasks is None or session_id in self._stopped:
            return
        if seq > self.head(session_id) and session_id not in self._followed:
            follower = self._followed[session_id] = _Follower(self, session_id)
            self._tasks.start_soon(self._follow, follower)

    async def _follow(self, follower: _Follower) -> None:
        session_id = follower.session_id
        try:
            with follower.scope:
                async with self._limit:
                    await self._claim(session_id)
                    await follower.read(self._machine)
                if self._machine.session_snapshot(session_id) is not None:
                    await follower.run(self._machine)
        except StorageFailed as error:  # a full disk, or a database that is away
            logger.warning("events were not copied", extra={"reason": str(error)})
            await anyio.sleep(RETRY_SECONDS)
            # Also without news, which may have come during the pause: it may have been the last.
            follower.has_progressed = not error.is_final
        except QuarterdeckError as error:  # away, or the session was deleted meanwhile
            logger.debug("a session is not followed", extra={"reason": str(error)})
        finally:
            del self._followed[session_id]
            self._claims.pop(session_id, None)
        is_over = follower.scope.cancel_called
        if self._machine.health().is_connected and follower.has_progressed and not is_over:
            self.advance(session_id, self._machine.last_seq(session_id))

    async def store(self, session_id: str, last: int, events: Sequence[bytes]) -> None:
        """Append events that end with a number, then show them.

        Raises:
            StorageFailed: if they cannot be stored.
        """
        claim = self._claims.get(session_id)
        if claim is None:
            claim = await self._claim(session_id)
        run = LogRun(self._space, session_id, claim.epoch, last, events)
        match (await self._log.append([run]))[0]:
            case Acknowledged():
                self._claims[session_id] = claim._replace(last_seq=last)
                self._show(session_id, last, events)
            case Again(last_seq=stored):
                self._claims[session_id] = claim._replace(last_seq=stored)
                raise self._not_stored(f"events after number {stored} are missing")
            case Fenced():
                del self._claims[session_id]
                raise self._not_stored("the machine is connected to another hub", is_final=True)

    def _show(self, session_id: str, last: int, events: Sequence[bytes]) -> None:
        new_count = min(len(events), last - self.head(session_id))
        if new_count <= 0:
            return  # stored again after a database had gone back
        self._heads[session_id] = last
        self._stored.set()
        self._stored = anyio.Event()
        log = self._logs.get(session_id)
        if log is not None:
            log.publish(last, list(events[-new_count:]))
        self._on_head(session_id, last)

    async def _claim(self, session_id: str) -> ClaimedHead:
        """Become the only one that stores events of a session, and learn where to continue.

        Raises:
            StorageFailed: if that fails.
        """
        claim = await self._log.claim(self._space, session_id, self._owner, take=True)
        assert claim is not None, "it was taken over"
        self._claims[session_id] = claim
        if claim.last_seq > self.head(session_id):  # another hub has copied more
            self._heads[session_id] = claim.last_seq
            log = self._logs.get(session_id)
            if log is not None:
                log.skip(claim.last_seq)
            self._on_head(session_id, claim.last_seq)
        return claim

    def stored_head(self, session_id: str) -> int:
        """Return after which number copying continues."""
        claim = self._claims.get(session_id)
        return self.head(session_id) if claim is None else claim.last_seq

    def _not_stored(self, reason: str, *, is_final: bool = False) -> StorageFailed:
        return StorageFailed(self._space, reason, "it is tried again", is_final=is_final)

    async def skip(self, session_id: str, up_to: int) -> None:
        """Use up numbers whose events the machine cannot give."""
        missing_count = up_to - self.stored_head(session_id)
        if missing_count > MOST_MISSING:
            facts = {"session": session_id, "missing": missing_count}
            logger.error("a session is not copied: too many events are missing", extra=facts)
            self._stop_copying(session_id)
            return
        while (head := self.stored_head(session_id)) < up_to:
            last = min(up_to, head + MOST_PLACEHOLDERS)
            missing = [_placeholder(session_id, seq) for seq in range(head + 1, last + 1)]
            await self.store(session_id, last, missing)

    def _stop_copying(self, session_id: str) -> None:
        self._stopped.add(session_id)
        follower = self._followed.get(session_id)
        if follower is not None:
            follower.scope.cancel()

    async def forget(self, session_id: str) -> None:
        """Delete the copy of a session that was deleted on its machine.

        Its number stays: if its id is used again, numbering continues there as well.
        """
        self._stop_copying(session_id)
        self._stopped.discard(session_id)
        log = self._logs.pop(session_id, None)
        if log is not None:
            log.end()
        if session_id in self._heads:
            await self._log.forget(self._space, session_id)

    # ---- after a power cut of the machine ----------------------------------------------------

    async def compare(self, *, is_same_log: bool) -> None:
        """Compare all copies with the machine's logs, and give back what it has lost.

        `is_same_log`: the log of the machine is the one that was copied. Otherwise sessions that it
        does not know are not copied further: their ids may mean other sessions.

        Raises:
            QuarterdeckError: if it fails to compare.
        """
        names = [name for name, head in self._heads.items() if head]
        for start in range(0, len(names), HEADS):
            heads = [await self._log_head(name) for name in names[start : start + HEADS]]
            known = [head for head in heads if head is not None]
            for head, verdict in zip(known, await self._machine.compare_heads(known), strict=True):
                if verdict.verdict == "unknown" and not is_same_log:
                    self._stop_copying(head.session_id)
                await self._act(head, verdict)

    async def _log_head(self, session_id: str) -> LogHead | None:
        head = self.head(session_id)
        newest = await self.read(session_id, head - 1, 1)
        if not newest or MISSING.encode() in newest[0]:
            return None
        return LogHead(session_id=session_id, last_seq=head, digest=event_digest(newest[0]))

    async def _act(self, head: LogHead, verdict: HeadVerdict) -> None:
        if verdict.verdict == "behind":
            await self._give_back(head, verdict)
        elif verdict.verdict == "diverged":
            reason = f"the hub has a different event with number {head.last_seq}"
            await self._stop(head.session_id, reason)

    async def _give_back(self, head: LogHead, verdict: HeadVerdict) -> None:
        session_id, reached = head.session_id, verdict.last_seq
        common = await self.read(session_id, reached - 1, 1) if reached else []
        if common and event_digest(common[0]) != verdict.digest:
            reason = f"the hub has a different event with number {reached}"
            await self._stop(session_id, reason)
            return
        try:
            while reached < head.last_seq:
                events = await self.read(session_id, reached, PAGE)
                if not events:
                    return  # it was deleted meanwhile
                await self._machine.take_back(session_id, events)
                reached += len(events)
        except RequestRejected as error:
            await self._stop(session_id, f"events could not be sent back: {error.message}")
        else:
            logger.warning("a machine had lost events; they were sent back")

    async def _stop(self, session_id: str, reason: str) -> None:
        logger.error("a session was stopped", extra={"reason": reason})
        self._stopped.add(session_id)
        await self._machine.stop_diverged(session_id, reason)


class _Follower:
    """Copies one session while it has news; a `RunSubscriber` of its log on the machine."""

    def __init__(self, replica: Replica, session_id: str) -> None:
        self.session_id = session_id
        self.has_progressed = False
        self.scope = anyio.CancelScope()
        self._replica = replica
        self._runs: deque[tuple[int, list[bytes]]] = deque()
        self._changed = anyio.Event()
        self._has_ended = False

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._runs.append((last_seq, encoded))
        if len(self._runs) > PAGE:
            self._runs.popleft()  # it is read again
        self._changed.set()

    def on_skipped(self, last_seq: int) -> None:
        del last_seq
        self._runs.clear()
        self._changed.set()

    def on_ended(self) -> None:
        self._has_ended = True
        self._changed.set()

    async def read(self, machine: RunnerApi) -> None:
        """Copy what the machine has now.

        Raises:
            QuarterdeckError: as `run` does.
        """
        newest = machine.last_seq(self.session_id)
        while (head := self._replica.stored_head(self.session_id)) < newest:
            events = await machine.read_events(self.session_id, head, PAGE)
            await self._store(head, events, newest)
            self.has_progressed = True

    async def run(self, machine: RunnerApi) -> None:
        """Follow the log until there is nothing new for a while.

        Raises:
            QuarterdeckError: if the machine cannot be reached, or nothing can be stored.
        """
        source = await machine.open_log(self.session_id)
        unsubscribe = source.subscribe(self)
        try:
            while True:
                self._changed = anyio.Event()
                await self._catch_up(source)
                if self._has_ended:
                    return
                with anyio.move_on_after(IDLE_SECONDS) as idle:
                    await self._changed.wait()
                if idle.cancelled_caught:
                    return
        finally:
            unsubscribe()

    async def _catch_up(self, source: LogSource) -> None:
        while (head := self._replica.stored_head(self.session_id)) < source.head:
            run = self._next_run(head)
            events = run if run is not None else await source.read(head, PAGE)
            await self._store(head, events, source.head)
            self.has_progressed = True

    def _next_run(self, head: int) -> list[bytes] | None:
        """Return the live events after a number, if they are here."""
        found: list[bytes] = []
        while self._runs:
            last, events = self._runs[0]
            start = head + len(found) - (last - len(events))
            if start < 0:
                break  # what is between was skipped
            self._runs.popleft()
            found += events[start:]
        return found or None

    async def _store(self, head: int, events: Sequence[bytes], source_head: int) -> None:
        """Append events with the numbers that they have; others are used up."""
        numbered = [(_number(data), data) for data in events]
        known = [(seq, data) for seq, data in numbered if seq is not None and seq > head]
        if not known:
            await self._replica.skip(self.session_id, source_head)
            return
        for run in _dense(known):
            await self._replica.skip(self.session_id, run[0][0] - 1)
            await self._replica.store(self.session_id, run[-1][0], [data for _, data in run])


class _Numbered(msgspec.Struct):
    seq: int


_read_number = msgspec.json.Decoder(_Numbered).decode


def _number(data: bytes) -> int | None:
    try:
        return _read_number(data).seq
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _dense(numbered: Iterable[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
    """Return runs without gaps, in order; what goes back is left out."""
    runs: list[list[tuple[int, bytes]]] = []
    for seq, data in numbered:
        if runs and seq <= runs[-1][-1][0]:
            continue
        if runs and seq == runs[-1][-1][0] + 1:
            runs[-1].append((seq, data))
        else:
            runs.append([(seq, data)])
    return runs


def _placeholder(session_id: str, seq: int) -> bytes:
    event = {"type": MISSING, "seq": seq, "ts": 0, "payload": {}, "sessionId": session_id}
    return encode_json(event)

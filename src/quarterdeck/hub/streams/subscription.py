"""Logs on their way to one client: cursors, resets, and several logs on one connection.

`LogSubscription` is one client's cursor in one log. A client whose number is of an earlier epoch of
the log, or ahead of it, or behind what the host still has, gets a `reset`: it forgets what it has
and starts over. A client that is cut off before its reset must get it again, so its position stays
what it was until then.

`MultiLogStream` puts several logs on one connection: browsers allow six to a server, and a phone
wants one. Each id has the positions of all of them (`cursors`), so a client that is cut off
anywhere resumes exactly there. The events are the bytes that every client gets; only their ids are
completed.

`RunnerNotices` has what the runner's news say beyond its logs. `QueueSubscription` sends that the
prompt queue of a session has changed, without its content; `RunnerSubscription` sends whether the
runner can be reached and takes turns, `MachineSubscription` that another machine has come, gone or
changed, and `ForeignSubscription` what another program reports about a session that it runs. A
notice is not an event of a log: it has no id and is not repeated to a client that reconnects. That
client reads queues and sessions anyway, and gets the runner's state again if it is not the usual
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from msgspec import to_builtins
from typing_extensions import override

from quarterdeck.errors import LogDamaged
from quarterdeck.http.sse import EventStream, named_event
from quarterdeck.hub.streams.cursors import NO_EPOCH, LogCursor, ManyCursors
from quarterdeck.hub.streams.shared_log import EncodedRun, Logs, SharedLog
from quarterdeck.jsontext import encode_json
from quarterdeck.runner import (
    ForeignState,
    HealthChanged,
    MachineUpdated,
    News,
    QueueChanged,
    RunnerApi,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.storage import LogEpoch

_MUCH: Final = 256 << 10  # bytes, after which other tasks run if no send had to wait


class LogSubscription:
    """One session's log."""

    _mark: ClassVar = b""
    """Marks its events among others on the same connection; a session's have its id."""

    def __init__(
        self,
        logs: Logs,
        log: SharedLog,
        cursor: LogCursor,
        id_suffix: Callable[[], bytes] | None = None,
    ) -> None:
        """`id_suffix` returns what an id has after this log's own cursor, if it has more."""
        self.log = log
        self.cursor = cursor.seq
        self.is_over = False
        self._id_suffix = id_suffix
        self._logs = logs
        self._is_behind = True
        self._requested = cursor
        self._reason = "ahead" if cursor.is_valid(logs.log_epoch(log.session_id)) else "epoch"
        self._must_reset = self._reason == "epoch" or self.cursor > log.head

    @property
    def position(self) -> str:
        """The cursor as an id of several logs lists it."""
        if self._must_reset:
            return _unreset(self._requested)
        if self.log.epoch == self._logs.log_epoch().id:
            return str(self.cursor)
        return f"{self.log.epoch}-{self.cursor}"  # of a machine with a log of its own

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there are new events; return what ends that."""
        return self.log.join(wake)

    async def next(self) -> bytes:
        """Return what to send next; nothing, if there is nothing new.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        if self._must_reset:
            return self._reset()
        log = self.log
        if self.cursor < log.head:
            try:
                run = log.recent(self.cursor) or await self._older()
            except LogDamaged as error:
                return self._damaged(error)
            if run is None:
                return self._reset()
            self.cursor = run.last
            return self._written(run)
        if self._is_behind:
            self._is_behind = False
            return named_event("caught-up", {**self._facts(), "seq": self.cursor})
        if log.has_ended:
            self.is_over = True
            return named_event("ended", {**self._facts(), "reason": why_ended(self._logs, log)})
        return b""

    async def _older(self) -> EncodedRun | None:
        self._is_behind = True
        return await self.log.older(self.cursor)

    def _written(self, run: EncodedRun) -> bytes:
        if self._id_suffix is None:
            return run.sse
        # JSON has no line breaks: this is found where an id ends and nowhere else.
        return run.sse.replace(b"\ndata: ", b"%b%b\ndata: " % (self._id_suffix(), self._mark))

    def _id(self) -> bytes:
        own = self.log.prefix + b"%d" % self.cursor
        return own + (b"" if self._id_suffix is None else self._id_suffix())

    def _reset(self) -> bytes:
        """Send a client whose number means nothing here back to the beginning."""
        self.cursor, self._must_reset = 0, False
        facts = {
            **self._facts(),
            "reason": self._reason,
            "epoch": self._logs.log_epoch(self.log.session_id).id,
            "seq": 0,
            "head": self.log.head,
        }
        return named_event("reset", facts, self._id())

    def _damaged(self, error: LogDamaged) -> bytes:
        """End a log that cannot be read further; other logs of the connection are not affected."""
        self.is_over = True
        facts = {"reason": "damaged", "message": error.public_message}
        return named_event("ended", {**self._facts(), **facts})

    def _facts(self) -> dict[str, Any]:
        return {"sessionId": self.log.session_id}


def _unreset(cursor: LogCursor) -> str:
    """Return the position of a client that still has to get its reset."""
    return f"{cursor.epoch or NO_EPOCH}-{cursor.seq}"


class HostLogSubscription(LogSubscription):
    """The host stream: its older events are not stored, but what they led to is known."""

    _mark: ClassVar = b"\nevent: host"

    def __init__(
        self,
        logs: Logs,
        log: SharedLog,
        cursor: LogCursor | None,
        id_suffix: Callable[[], bytes] | None = None,
    ) -> None:
        epoch = logs.epoch
        is_ours = cursor is not None and cursor.epoch in (None, epoch)
        start = cursor if cursor is not None and is_ours else LogCursor("", 0)
        super().__init__(logs, log, start, id_suffix)
        self._must_reset = not is_ours or self.cursor > log.head or self._is_forgotten()
        self._epoch = epoch
        self._wanted = "" if cursor is None else cursor.text
        self._reason = "start" if cursor is None else "epoch" if not is_ours else "forgotten"

    @property
    @override
    def position(self) -> str:
        # A client that is cut off before it got its reset must get it again.
        return self._wanted if self._must_reset else f"{self._epoch}-{self.cursor}"

    def _is_forgotten(self) -> bool:
        return self.cursor + 1 < self.log.first

    @override
    async def _older(self) -> EncodedRun | None:
        return None if self._is_forgotten() else await super()._older()

    @override
    def _reset(self) -> bytes:
        """Send the current state instead of the events that led to it."""
        self.cursor, self._must_reset = self.log.head, False
        reason, self._reason = self._reason, "forgotten"
        facts = b'{"epoch":%b,"reason":%b,"seq":%d,%b}' % (
            encode_json(self._epoch),
            encode_json(reason),
            self.cursor,
            self._logs.host_state(self.cursor),
        )
        return b"id: %b\nevent: reset\ndata: %b\n\n" % (self._id(), facts)

    @override
    def _facts(self) -> dict[str, Any]:
        return {"epoch": self._epoch}


def why_ended(logs: Logs, log: SharedLog) -> str:
    """Return why a log has ended."""
    if log.was_closed:
        return "reopened"
    is_there = log.session_id is None or logs.runner.session_snapshot(log.session_id) is not None
    return "shutdown" if is_there else "deleted"


class Sendable(Protocol):
    """Something that is sent on a connection, part by part."""

    @property
    def is_over(self) -> bool: ...

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is something to send; return what ends that."""

    async def next(self) -> bytes: ...


async def send_subscriptions(stream: EventStream, subscriptions: Sequence[Sendable]) -> None:
    """Send some logs, a run of each in turn, until all have ended.

    Raises:
        StorageFailed: if older events cannot be read.
    """
    leaves = [subscription.join(stream.wake) for subscription in subscriptions]
    sent = 0
    try:
        while subscriptions:
            if len(subscriptions) == 1:
                text = await subscriptions[0].next()
            else:
                text = b"".join([await subscription.next() for subscription in subscriptions])
            if not text:
                sent = 0
                await stream.wait()
                continue
            await stream.send(text)
            sent += len(text)
            if sent > _MUCH:
                sent = 0
                await asyncio.sleep(0)
            if any(subscription.is_over for subscription in subscriptions):
                subscriptions = [
                    subscription for subscription in subscriptions if not subscription.is_over
                ]
    finally:
        for leave in leaves:
            leave()


class MultiLogStream:
    """The logs of one connection, by their places in its query."""

    def __init__(self, cursors: ManyCursors, logs: Logs) -> None:
        self._names = cursors.names
        self._epoch = logs.log_epoch().id
        self._subscriptions: dict[int, LogSubscription] = {}
        self._requested = [
            self._requested_position(each, logs.log_epoch(session_id))
            for session_id, each in cursors.sessions
        ]
        if cursors.has_host:
            self._requested.append("" if cursors.host is None else cursors.host.text)

    def _requested_position(self, cursor: LogCursor, epoch: LogEpoch) -> str:
        if not cursor.is_valid(epoch):
            return _unreset(cursor)
        return str(cursor.seq) if epoch.id == self._epoch else f"{epoch.id}-{cursor.seq}"

    @property
    def subscriptions(self) -> list[LogSubscription]:
        return list(self._subscriptions.values())

    def add(self, index: int, subscription: LogSubscription) -> None:
        """Add a subscription that has the `id_suffix` of its place."""
        self._subscriptions[index] = subscription

    def id_suffix(self, index: int) -> Callable[[], bytes]:
        """Return what writes the rest of an id: which log it is of, and where the others are."""
        return partial(self._id_suffix, index)

    def _id_suffix(self, index: int) -> bytes:
        positions = [
            "" if each == index else self._position(each) for each in range(len(self._requested))
        ]
        return f"@{index}/{self._names}/{','.join(positions)}/{self._epoch}".encode()

    def _position(self, index: int) -> str:
        subscription = self._subscriptions.get(index)
        return self._requested[index] if subscription is None else subscription.position


class RunnerNotices:
    """Changes of prompt queues, of the runner's health, of other machines, and of sessions that
    other programs run; from news.
    """

    def __init__(self, runner: RunnerApi) -> None:
        self.health = runner.health
        self._find = runner.find_session
        self.foreign_changes = 0
        """Counts what has changed of sessions in the programs that run them."""
        self._foreign: dict[str, tuple[int, ForeignState | None]] = {}  # the newest change last
        self.machine_changes = 0
        """Counts what has changed of other machines."""
        self._changes: dict[str, int] = {}
        self._wakers: dict[object, Callable[[], None]] = {}
        self.close = runner.subscribe_news(self._on_news)

    def changes(self, session_id: str) -> int:
        return self._changes.get(session_id, 0)

    def foreign_after(self, number: int) -> dict[str, ForeignState | None]:
        """Return the sessions that have changed in their programs since a count."""
        changed: dict[str, ForeignState | None] = {}
        for session_id, (changed_at, state) in reversed(self._foreign.items()):
            if changed_at <= number:
                break
            changed[session_id] = state
        return changed

    def _note_foreign(self, session_id: str) -> bool:
        """Return whether what the program of a session reports has changed."""
        session = self._find(session_id)
        found = None if session is None else session.foreign
        state = found if isinstance(found, ForeignState) else None
        _, known = self._foreign.get(session_id, (0, None))
        if state == known:
            return False
        self.foreign_changes += 1
        self._foreign.pop(session_id, None)
        self._foreign[session_id] = (self.foreign_changes, state)
        return True

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each change of any queue or of the health; return what ends that."""
        key = object()
        self._wakers[key] = wake
        return lambda: self._wakers.pop(key, None) and None

    def _on_news(self, news: News) -> None:
        if isinstance(news, QueueChanged):
            self._changes[news.session_id] = news.number
        elif isinstance(news, MachineUpdated):
            self.machine_changes += 1
        elif isinstance(news, SessionUpdated):
            if not self._note_foreign(news.session_id):
                return
        elif isinstance(news, SessionDeleted):
            self._foreign.pop(news.session_id, None)
            return
        elif not isinstance(news, HealthChanged):
            return
        for wake in tuple(self._wakers.values()):
            wake()


class _NoticeSubscription:
    """Notices for the logs of a connection, which end with them."""

    def __init__(self, notices: RunnerNotices, subscriptions: Sequence[LogSubscription]) -> None:
        self._notices = notices
        self._subscriptions = subscriptions

    @property
    def is_over(self) -> bool:
        return all(subscription.is_over for subscription in self._subscriptions)

    def join(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each change; return what ends that."""
        return self._notices.join(wake)


class QueueSubscription(_NoticeSubscription):
    """Sends that prompt queues have changed."""

    def __init__(self, notices: RunnerNotices, subscriptions: Sequence[LogSubscription]) -> None:
        super().__init__(notices, subscriptions)
        sessions = [subscription.log.session_id for subscription in subscriptions]
        self._seen = {each: notices.changes(each) for each in sessions if each is not None}

    async def next(self) -> bytes:
        """Return what to send next; nothing, if there is nothing new."""
        changes = {session_id: self._notices.changes(session_id) for session_id in self._seen}
        if changes == self._seen:
            return b""
        changed = [each for each in changes if changes[each] != self._seen[each]]
        self._seen = changes
        return b"".join(named_event("queue", {"sessionId": session_id}) for session_id in changed)


class RunnerSubscription(_NoticeSubscription):
    """Sends whether the runner can be reached and takes turns, if not and at each change."""

    def __init__(self, notices: RunnerNotices, subscriptions: Sequence[LogSubscription]) -> None:
        super().__init__(notices, subscriptions)
        self._seen = {"isConnected": True, "isDraining": False}

    async def next(self) -> bytes:
        """Return what to send next; nothing, if there is nothing new."""
        health = self._notices.health()
        found = {"isConnected": health.is_connected, "isDraining": health.is_draining}
        if found == self._seen:
            return b""
        self._seen = found
        return named_event("runner", found)


class MachineSubscription(_NoticeSubscription):
    """Sends that a machine has come, gone, or changed in another way; without what."""

    def __init__(self, notices: RunnerNotices, subscriptions: Sequence[LogSubscription]) -> None:
        super().__init__(notices, subscriptions)
        self._seen = notices.machine_changes

    async def next(self) -> bytes:
        """Return what to send next; nothing, if there is nothing new."""
        if self._notices.machine_changes == self._seen:
            return b""
        self._seen = self._notices.machine_changes
        return named_event("machines", {})


class ForeignSubscription(_NoticeSubscription):
    """Sends what the program of a session reports about it, when that changes."""

    def __init__(self, notices: RunnerNotices, subscriptions: Sequence[LogSubscription]) -> None:
        super().__init__(notices, subscriptions)
        self._seen = notices.foreign_changes

    async def next(self) -> bytes:
        """Return what to send next; nothing, if there is nothing new."""
        changed = self._notices.foreign_after(self._seen)
        self._seen = self._notices.foreign_changes
        return b"".join(
            named_event("foreign", {"sessionId": session_id, "foreign": to_builtins(state)})
            for session_id, state in changed.items()
        )

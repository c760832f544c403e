"""One session on its way to one client of the context protocol.

Numbers of context events follow from the log, so the log is projected from its beginning; what the
client has seen is projected and not sent. A subscription to approvals sends nothing else:
every client gets every request, whatever it is subscribed to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from quarterdeck.errors import EventInvalid, StorageFailed
from quarterdeck.hub.context.frames import error_frame, event_frame, write_message
from quarterdeck.hub.streams.shared_log import NEAR_EVENTS, SharedLog
from quarterdeck.protocol import decode_event
from quarterdeck.views.context import (
    ApprovalRequestedEvent,
    ApprovalResolvedEvent,
    ContextEvent,
    ContextProjector,
    encode_context_event,
)
from quarterdeck.views.context.contract import SessionFacts

_APPROVALS = (ApprovalRequestedEvent, ApprovalResolvedEvent)


class ContextSubscription:
    """Sends all events after `from_seq`, or only those about approvals."""

    is_last = False

    def __init__(
        self,
        log: SharedLog,
        session: SessionFacts,
        *,
        from_seq: int = 0,
        only_approvals: bool = False,
    ) -> None:
        self.log = log
        self.leave: Callable[[], None] = lambda: None
        self._session_id = session.session_id
        self._projector = ContextProjector(session)
        self.wants_epoch = False
        """Whether the client keeps the epoch of the log with its number."""
        self._cursor = 0
        self._from_seq = from_seq
        self._only_approvals = only_approvals
        self._silent_until = 0
        self._replay_until: int | None = None
        self._frames: deque[str] = deque()
        self._waiting: dict[str, ContextEvent] = {}

    def replay(self) -> None:
        """Report to the client when it has all that there is now."""
        self._replay_until = self.log.head

    def begin_with_reset(self) -> None:
        """Have the client discard what it has, before the first event of the history."""
        facts = {"sessionId": self._session_id, "epoch": self.log.epoch}
        self._frames.append(write_message("history_reset", **facts))

    @property
    def is_replaying(self) -> bool:
        return self._replay_until is not None

    def send_only_approvals(self) -> None:
        """From now on, send nothing but approvals, when the connection says that there are some."""
        self._only_approvals = True
        self._frames.clear()
        self._replay_until = None
        self.leave()

    def begin_after(self, head: int) -> None:
        """Of what was up to this number of the log, say only what waits for an answer."""
        self._silent_until = head

    @property
    def goal(self) -> int:
        return self.log.head

    def is_near(self, goal: int) -> bool:
        return goal - self._cursor <= NEAR_EVENTS

    async def next(self, goal: int) -> str | None:
        while not self._frames and self._cursor < goal:
            try:
                await self._project()
            except StorageFailed as error:
                self._cursor = goal
                self._replay_until = None
                return error_frame(error, sessionId=self._session_id)
        if self._frames:
            return self._frames.popleft()
        if self._replay_until is not None and self._cursor >= self._replay_until:
            self._replay_until = None
            seq = self._projector.seq
            facts: dict[str, Any] = {"epoch": self.log.epoch} if self.wants_epoch else {}
            return write_message(
                "history_complete", sessionId=self._session_id, lastSeq=seq, **facts
            )
        return None

    async def _project(self) -> None:
        run = self.log.recent(self._cursor) or await self.log.older(self._cursor)
        for number, data in zip(run.numbers, run.events, strict=True):
            try:
                events = self._projector.feed(decode_event(data))
            except EventInvalid:
                continue
            for each in events:
                self._take(each, is_old=number <= self._silent_until)
        self._cursor = run.last
        if self._cursor >= self._silent_until:
            for waiting in self._waiting.values():
                self._say(waiting)
            self._waiting.clear()
        if len(run.numbers) > NEAR_EVENTS // 16:
            await asyncio.sleep(0)  # projecting takes a while; other tasks run in between

    def _take(self, event: ContextEvent, *, is_old: bool) -> None:
        if is_old:
            if isinstance(event, ApprovalRequestedEvent):
                self._waiting[event.request_id] = event
            elif isinstance(event, ApprovalResolvedEvent):
                self._waiting.pop(event.request_id, None)
        elif event.seq > self._from_seq and (
            not self._only_approvals or isinstance(event, _APPROVALS)
        ):
            self._say(event)

    def _say(self, event: ContextEvent) -> None:
        self._frames.append(event_frame(encode_context_event(event)))

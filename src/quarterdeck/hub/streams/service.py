"""The event streams of the hub: sessions, the host, several at once, and packets.

All streams of a hub share its open logs and one keep-alive timer. A stream of packets (seed 002) is
projected for one client from the beginning of the log: the state of the projection depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Final

from starlette.types import Receive, Scope, Send

from quarterdeck.errors import AcpError, EventInvalid, LogDamaged, StorageFailed
from quarterdeck.http.keepalive import TICK_SECONDS, KeepAlive
from quarterdeck.http.sse import EventStream, StreamBody, named_event, send_head, serve_events
from quarterdeck.hub.api.endpoint import Asgi, refusal
from quarterdeck.hub.context.commands import Catalogue, Commander
from quarterdeck.hub.streams.cursors import (
    CursorInvalid,
    LogCursor,
    host_cursor,
    many_cursors,
    packet_cursor,
    session_cursor,
)
from quarterdeck.hub.streams.shared_log import EncodedRun, Logs, SharedLog
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.hub.streams.subscription import (
    HostLogSubscription,
    LogSubscription,
    MultiLogStream,
    QueueNotices,
    QueueSubscription,
    Sendable,
    follow,
    why_ended,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import decode_event
from quarterdeck.views.packets import PacketProjector


class PacketSubscription:
    """Sends packets to one client; what it has seen is projected and not sent."""

    def __init__(self, logs: Logs, log: SharedLog, cursor: tuple[LogCursor, int]) -> None:
        self._logs = logs
        self._log = log
        self._requested, self._skipped = cursor
        self._after = self._requested.seq
        self._projected = 0
        self._projector = PacketProjector(str(log.session_id))

    async def follow(self, stream: EventStream) -> None:
        """Send all packets after the cursor until the log ends.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        leave = self._log.join(stream.wake)
        is_behind = True
        try:
            await self._send_reset(stream)
            while not (self._log.has_ended and self._projected >= self._log.head):
                if self._projected < self._log.head:
                    await self._send_next(stream)
                elif is_behind:
                    is_behind = False
                    await stream.send(named_event("caught-up", {"seq": self._projected}))
                else:
                    await stream.wait()
            reason = why_ended(self._logs, self._log)
            facts = {"sessionId": self._log.session_id, "reason": reason}
            await stream.send(named_event("ended", facts))
        finally:
            leave()

    async def _send_reset(self, stream: EventStream) -> None:
        """Send a client whose number means nothing here back to the beginning."""
        epoch = self._logs.log_epoch
        is_valid = self._requested.is_valid(epoch)
        if is_valid and self._after <= self._log.head:
            return
        self._after, self._skipped = 0, 0
        facts = {"reason": "ahead" if is_valid else "epoch", "epoch": epoch.id, "seq": 0}
        await stream.send(named_event("reset", facts, self._log.prefix + b"0"))

    async def _send_next(self, stream: EventStream) -> None:
        run = self._log.recent(self._projected) or await self._log.older(self._projected)
        text = b"".join(self._packets(run))
        self._projected = run.last
        if text:
            await stream.send(text)
        await asyncio.sleep(0)  # projecting takes a while; other tasks run in between

    def _packets(self, run: EncodedRun) -> list[bytes]:
        written: list[bytes] = []
        for number, data in zip(run.numbers, run.events, strict=True):
            try:
                packets = self._projector.feed(decode_event(data))
            except EventInvalid:
                continue
            if number <= self._after:
                continue
            seen, self._skipped = self._skipped, 0
            for count, packet in enumerate(packets[seen:], seen + 1):
                name = b"%d" % number if count == len(packets) else b"%d-%d" % (number, count)
                written.append(
                    b"id: %b%b\nevent: message\ndata: %b\n\n"
                    % (self._log.prefix, name, encode_json(packet))
                )
        return written


MOST_STREAMS: Final = 4096  # at once, of all kinds: each holds a connection

Handler = Callable[["_Request"], Awaitable[None]]


class _Request:
    """One request for a stream, and the logs it holds."""

    def __init__(self, streams: Streams, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.logs = streams.logs
        self._streams = streams
        self._receive = receive
        self._send = send
        self._held: list[SharedLog] = []

    @property
    def session_id(self) -> str:
        return str(self.scope["path_params"]["session_id"])

    @property
    def queue_notices(self) -> QueueNotices:
        """Changes of the prompt queues."""
        return self._streams.queue_notices

    async def open(self, session_id: str | None) -> SharedLog:
        log = await self.logs.open(session_id)
        self._held.append(log)
        return log

    async def serve(self, body: StreamBody) -> None:
        if self.scope["method"] == "HEAD":
            await send_head(self._send)
            return
        await serve_events(self._streams.keep_alive, self._receive, self._send, body)

    def release(self) -> None:
        for log in self._held:
            self.logs.release(log)


class Streams:
    """All streams of one hub: they share logs and a timer."""

    def __init__(self, sources: StreamSources, tick_seconds: float = TICK_SECONDS) -> None:
        self.sources = sources
        self.runner = sources.runner
        self.logs = Logs(sources.runner)
        self.catalogue = Catalogue(sources.runner)
        self.queue_notices = QueueNotices(sources.runner)
        self.keep_alive = KeepAlive(tick_seconds)
        if sources.before_end is not None:
            sources.before_end(self.keep_alive.end)
            sources.before_end(self.queue_notices.close)

    @cached_property
    def commander(self) -> Commander:
        return Commander(self.sources)

    @property
    def is_full(self) -> bool:
        return len(self.keep_alive) >= MOST_STREAMS

    def events(self, handler: Handler) -> Asgi:
        """Return a raw application: errors become responses, and every log is released."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = _Request(self, scope, receive, send)
            try:
                if self.is_full:
                    raise _TooMany
                await handler(request)
            except _REFUSED as error:
                await refusal(*_refused(error))(scope, receive, send)
            finally:
                request.release()

        return app


class _TooMany(Exception):
    """There are as many streams as there may be."""


_REFUSED: Final = (CursorInvalid, AcpError, StorageFailed, _TooMany)


def _refused(error: Exception) -> tuple[int, str, str]:
    match error:
        case CursorInvalid():
            return 400, "quarterdeck/invalid", str(error)
        case AcpError(message=message):
            return 404, "quarterdeck/not-found", f"{message}; GET /api/sessions lists what there is"
        case LogDamaged(public_message=reason):
            return 503, "quarterdeck/damaged", reason
        case StorageFailed(public_message=reason):
            return 503, "quarterdeck/unavailable", reason
        case _:
            message = f"there are {MOST_STREAMS} streams; close one, or follow several sessions"
            return 429, "quarterdeck/too-many", f"{message} on one with /api/stream"


async def session_events(request: _Request) -> None:
    """Serve one session's log."""
    cursor = session_cursor(request.scope)
    subscription = LogSubscription(request.logs, await request.open(request.session_id), cursor)
    await request.serve(lambda stream: follow(stream, [subscription]))


async def host_events(request: _Request) -> None:
    """Serve the host's own log."""
    cursor = host_cursor(request.scope)
    subscription = HostLogSubscription(request.logs, await request.open(None), cursor)
    await request.serve(lambda stream: follow(stream, [subscription]))


async def many_events(request: _Request) -> None:
    """Serve several logs; a session that is not there does not stop the others."""
    cursors = many_cursors(request.scope)
    combined = MultiLogStream(cursors, request.logs.log_epoch)
    missing: list[str] = []
    for index, (session_id, cursor) in enumerate(cursors.sessions):
        try:
            log = await request.open(session_id)
        except AcpError:
            missing.append(session_id)
        else:
            combined.add(index, LogSubscription(request.logs, log, cursor))
    if cursors.has_host:
        subscription = HostLogSubscription(request.logs, await request.open(None), cursors.host)
        combined.add(len(cursors.sessions), subscription)

    async def send(stream: EventStream) -> None:
        for session_id in missing:
            await stream.send(named_event("ended", {"sessionId": session_id, "reason": "unknown"}))
        subscriptions: list[Sendable] = [*combined.subscriptions]
        if subscriptions:
            subscriptions.append(QueueSubscription(request.queue_notices, combined.subscriptions))
        await follow(stream, subscriptions)

    await request.serve(send)


async def packets(request: _Request) -> None:
    """Serve one session as packets."""
    cursor = packet_cursor(request.scope)
    subscription = PacketSubscription(request.logs, await request.open(request.session_id), cursor)
    await request.serve(subscription.follow)

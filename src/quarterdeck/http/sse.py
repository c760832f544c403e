"""Server-sent events: write, number, replay, keep alive, notice the end.

*A stream* is one response that does not end by itself. `serve_events` runs its body, which sends
what there is and waits for more (`EventStream`). Four things end it: the body returns, the client
leaves (`http.disconnect`), the client does not read for a minute, or the server ends; `KeepAlive`
detects the last two. Whatever the cause, the last write is bounded, since the client may be stuck.

*Back-pressure.* `send` waits while the client's window is full, so a slow client slows its own
stream and nothing else: events wait in a log (hub) or in an `EventBuffer` (agent), never in the
stream.

*Numbers and replay.* Each event has an `id:`; a client that reconnects sends the last one it has as
`Last-Event-ID`, and the stream resumes after it. A message that was written to a socket may still
have been lost with it, so an `EventBuffer` keeps messages after they were sent, up to its limits;
when a client resumes before the oldest, it reads how many are lost.

Event names are a closed set, never text of an agent; data is JSON on one line:

    (none)      an event of a log, as it was stored
    host        the same of the host stream, on a connection that carries several logs
    queue       the prompt queue of a session has changed; on a connection that carries several logs
    runner      whether the hub reaches its runner, and whether it drains; on the same connections
    caught-up   every event up to now was sent; what follows is live
    reset       discard what you have: it was of another log or is too old; this is the position now
    ended       nothing more follows in this log: its session was deleted, or the hub ends
    dropped     disconnected, with a `code`: you did not read (`too-slow`), the log cannot be read
                (`log-failed`), or the hub ends (`shutdown`); reconnect
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import anyio

from quarterdeck.errors import StorageFailed
from quarterdeck.http.asgi import Receive, Send
from quarterdeck.http.keepalive import KeepAlive, LiveConnection
from quarterdeck.jsontext import encode_json

EVENT_NAMES: Final = frozenset(
    {"host", "queue", "runner", "machines", "foreign", "caught-up", "reset", "ended", "dropped"}
)
RETRY_MS: Final = 2000
_END_SECONDS: Final = 1.0  # for the last write to a client that may be stuck
_BATCH_BYTES: Final = 64 << 10  # taken from a buffer at once
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy must not wait for more
    (b"x-content-type-options", b"nosniff"),
]


def named_event(name: str, facts: dict[str, Any], event_id: bytes = b"") -> bytes:
    """Format an event of our own; without an id it leaves the client's position where it is."""
    assert name in EVENT_NAMES
    line = b"id: %b\n" % event_id if event_id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (line, name.encode(), encode_json(facts))


class Drop(NamedTuple):
    """Why a client is disconnected."""

    code: Literal["too-slow", "log-failed", "shutdown"]
    reason: str


def _dropped_event(drop: Drop | None) -> bytes:
    return b"" if drop is None else named_event("dropped", drop._asdict())


@dataclass(frozen=True, kw_only=True)
class StreamFormat:
    """The bytes around the events of a stream."""

    opening: bytes = b"retry: %d\n\n" % RETRY_MS
    comment: bytes = b": still here\n\n"
    """Sent when nothing else was for a while."""
    closing: Callable[[Drop | None], bytes] = _dropped_event
    """Formats why the stream ends; None if its body returned."""


_DEFAULT_FORMAT: Final = StreamFormat()


class EventStream:
    """The writing end of a stream, for its body."""

    def __init__(
        self, send: Send, keep_alive: KeepAlive, connection: LiveConnection, comment: bytes
    ) -> None:
        self._send = send
        self._keep_alive = keep_alive
        self._connection = connection
        self._comment = comment
        self.wake = connection.wake

    async def send(self, text: bytes) -> None:
        """Send, and wait while the client has too much unread."""
        connection = self._connection
        connection.stalled = 0
        await self._send({"type": "http.response.body", "body": text, "more_body": True})
        connection.stalled = None
        connection.quiet = 0

    async def wait(self) -> None:
        """Wait until woken; send a comment if nothing was sent for long."""
        await self._connection.wait()
        if self._keep_alive.is_quiet(self._connection):
            await self.send(self._comment)


StreamBody = Callable[[EventStream], Awaitable[None]]


async def serve_events(
    keep_alive: KeepAlive,
    receive: Receive,
    send: Send,
    body: StreamBody,
    *,
    stream_format: StreamFormat = _DEFAULT_FORMAT,
    connection: LiveConnection | None = None,
) -> None:
    """Run a stream until its body returns, the client leaves or does not read, or the server ends.

    A caller that passes a `connection` can end the stream by cancelling its scope.
    """
    connection = connection or LiveConnection()
    keep_alive.add(connection)
    has_left = False

    async def await_disconnect(scope: anyio.CancelScope) -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        scope.cancel()

    drop: Drop | None = None
    try:
        with connection.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(await_disconnect, tasks.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                stream = EventStream(send, keep_alive, connection, stream_format.comment)
                await stream.send(stream_format.opening)
                try:
                    await body(stream)
                except StorageFailed as error:
                    drop = Drop("log-failed", f"the log cannot be read: {error}")
                tasks.cancel_scope.cancel()
        if connection.is_stuck:
            reason = "you did not read for a minute; reconnect with the last id you have"
            drop = Drop("too-slow", reason)
        if connection.server_ends:
            drop = Drop("shutdown", "the hub ends; reconnect with the last id you have")
        if not has_left:
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await send({"type": "http.response.body", "body": stream_format.closing(drop)})
    finally:
        keep_alive.remove(connection)


async def send_head(send: Send) -> None:
    """Answer a HEAD request for a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b""})


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """How much is kept for a client that reads late, or has to read again."""

    messages: int = 100_000
    # More than the kernel holds of a connection (4 MiB to send, 6 MiB received): all of it may be
    # lost when the connection breaks.
    size: int = 16 * 1024 * 1024


class EventBuffer:
    """The messages for one client, numbered from 1, as far back as the limits allow.

    kept        the newest messages within both limits, taken by a reader or not
    taken       what the current reader was given
    behind      half of what may be kept has not been taken; senders should wait
    """

    def __init__(self, limits: ReplayLimits) -> None:
        self._limits = limits
        self._events: dict[int, tuple[bytes, int]] = {}  # number → message, size up to its end
        self._first = 1
        self._next = 1
        self._size_put = 0  # of all there ever were
        self._size_dropped = 0
        self._size_taken = 0
        self.position = 1
        """The next number that a reader is given."""
        self._changed = anyio.Event()
        self._wake_reader: Callable[[], None] | None = None

    @property
    def first(self) -> int:
        """The number of the oldest message that is kept."""
        return self._first

    @property
    def last(self) -> int:
        """The number of the newest message."""
        return self._next - 1

    @property
    def is_behind(self) -> bool:
        waiting = self._next - self.position
        size = self._size_put - self._size_taken
        return waiting * 2 >= self._limits.messages or size * 2 >= self._limits.size

    def put(self, message: bytes) -> None:
        """Add a message; the oldest are dropped if there are too many."""
        self._size_put += len(message)
        self._events[self._next] = (message, self._size_put)
        self._next += 1
        while self._is_too_much():
            _, self._size_dropped = self._events.pop(self._first)
            self._first += 1
        self.wake()

    def seek(self, position: int) -> int:
        """Continue at `position`; return how many messages before the oldest kept are missing."""
        dropped = max(0, self._first - position)
        self.position = min(max(position, self._first), self._next)
        before = self._events.get(self.position - 1)
        self._size_taken = self._size_dropped if before is None else before[1]
        return dropped

    def take(self) -> list[tuple[int, bytes]]:
        """Return the reader's next batch; empty if it has all.

        A reader that was overtaken by the limits has to `seek` first.
        """
        taken: list[tuple[int, bytes]] = []
        size = 0
        while self.position < self._next and size < _BATCH_BYTES:
            message, self._size_taken = self._events[self.position]
            taken.append((self.position, message))
            size += len(message)
            self.position += 1
        if taken:
            self.wake()
        return taken

    def set_reader(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every change from now on, and no longer an earlier reader's."""
        self._wake_reader = wake

    def wake(self) -> None:
        """Wake the reader, and every sender that waits."""
        self._changed.set()
        self._changed = anyio.Event()
        if self._wake_reader is not None:
            self._wake_reader()

    async def wait_changed(self) -> None:
        await self._changed.wait()

    def _is_too_much(self) -> bool:
        count = self._next - self._first
        if count <= 1:
            return False
        is_heavy = self._size_put - self._size_dropped > self._limits.size
        return count > self._limits.messages or is_heavy

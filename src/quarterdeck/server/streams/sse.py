"""One event stream over HTTP: says what it is given, keeps quiet lines alive, notices the end.

Names of events are of a closed set and never an agent's words; data is JSON on one line:

    (none)      an event of a log, as it was stored
    host        the same of the host's log, on a connection that carries several logs
    queue       the queue of a session has changed; on a connection that carries several logs
    caught-up   everything that has happened so far was said; what follows is live
    reset       forget what you have: it was of another log or is too old; this is where we are
    ended       nothing more will come of this log: its session was deleted, or the hub stops
    dropped     you are let go: you did not read, or the log cannot be read; come again
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from starlette.types import Receive, Send

from quarterdeck.errors import StorageFailed
from quarterdeck.jsontext import encode_json
from quarterdeck.server.streams.pulse import Follower, Pulse

EVENT_NAMES: Final = frozenset({"host", "queue", "caught-up", "reset", "ended", "dropped"})
RETRY_MS: Final = 2000
_HELLO: Final = b"retry: %d\n\n" % RETRY_MS
_KEEP_ALIVE: Final = b": still here\n\n"
_GOODBYE_SECONDS: Final = 1.0  # for the last words to a reader who may be stuck
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy must not wait for more
]


def notice(name: str, facts: dict[str, Any], event_id: bytes = b"") -> bytes:
    """Write an event of our own; without an id it leaves the reader's cursor where it is."""
    assert name in EVENT_NAMES
    line = b"id: %b\n" % event_id if event_id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (line, name.encode(), encode_json(facts))


class EventStream:
    """What a body of a stream writes to."""

    def __init__(self, send: Send, follower: Follower) -> None:
        self._send = send
        self._follower = follower
        self.wake = follower.wake

    async def say(self, text: bytes) -> None:
        """Send, and wait while the reader has too much on its way to it."""
        follower = self._follower
        follower.stalled = 0
        await self._send({"type": "http.response.body", "body": text, "more_body": True})
        follower.stalled = None
        follower.quiet = 0

    async def rest(self) -> None:
        """Wait for news; say that we are still here if there has been none for long."""
        await self._follower.wait()
        if self._follower.is_too_quiet:
            await self.say(_KEEP_ALIVE)


Body = Callable[[EventStream], Awaitable[None]]


async def serve_events(pulse: Pulse, receive: Receive, send: Send, body: Body) -> None:
    """Run a stream until its body ends, the reader leaves or does not read."""
    follower = Follower()
    pulse.add(follower)
    has_left = False

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        scope.cancel()

    reason: str | None = None
    try:
        with follower.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                stream = EventStream(send, follower)
                await stream.say(_HELLO)
                try:
                    await body(stream)
                except StorageFailed as error:
                    reason = f"the log cannot be read: {error}"
                tasks.cancel_scope.cancel()
        if follower.dropped:
            reason = "you did not read for a minute; come again with the last id you have"
        if follower.dismissed:
            reason = "the hub ends; come again with the last id you have"
        if not has_left:
            await _say_goodbye(send, reason)
    finally:
        pulse.remove(follower)


async def send_head(send: Send) -> None:
    """Answer who asks only whether there is such a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b""})


async def _say_goodbye(send: Send, reason: str | None) -> None:
    text = b"" if reason is None else notice("dropped", {"reason": reason})
    with anyio.move_on_after(_GOODBYE_SECONDS, shield=True):
        await send({"type": "http.response.body", "body": text})

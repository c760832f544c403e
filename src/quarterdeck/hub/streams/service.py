"""`StreamService`: what all streams and WebSockets of a hub share: open logs, one timer, limits.

`endpoints` has the route table and the handlers of event streams; `envelope` and `hub/context` are
the WebSockets. A handler gets a `StreamRequest`, opens logs through it and serves a subscription
(`subscription`, `packets`). Every log that it opened is released when the request ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Final

from starlette.types import Receive, Scope, Send

from quarterdeck.errors import AcpError, LogDamaged, StorageFailed
from quarterdeck.http.keepalive import TICK_SECONDS, KeepAlive
from quarterdeck.http.sse import StreamBody, send_head, serve_events
from quarterdeck.hub.api.endpoint import Asgi, error_response
from quarterdeck.hub.context.commands import Commander
from quarterdeck.hub.context.listing import SessionListing
from quarterdeck.hub.streams.cursors import CursorInvalid
from quarterdeck.hub.streams.shared_log import Logs, SharedLog
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.hub.streams.subscription import RunnerNotices

MOST_STREAMS: Final = 4096  # at once, of all kinds: each holds a connection

StreamHandler = Callable[["StreamRequest"], Awaitable[None]]


class StreamRequest:
    """One request for a stream, and the logs it holds."""

    def __init__(self, streams: StreamService, scope: Scope, receive: Receive, send: Send) -> None:
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
    def runner_notices(self) -> RunnerNotices:
        """Changes of the prompt queues and of the runner's health."""
        return self._streams.runner_notices

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


class StreamService:
    """All streams of one hub: they share logs and a timer."""

    def __init__(self, sources: StreamSources, tick_seconds: float = TICK_SECONDS) -> None:
        self.sources = sources
        self.runner = sources.runner
        self.logs = Logs(sources.runner)
        self.listing = SessionListing(sources.runner)
        self.runner_notices = RunnerNotices(sources.runner)
        self.keep_alive = KeepAlive(tick_seconds)
        if sources.before_end is not None:
            sources.before_end(self.keep_alive.end)
            sources.before_end(self.runner_notices.close)

    @cached_property
    def commander(self) -> Commander:
        return Commander(self.sources)

    @property
    def is_full(self) -> bool:
        return len(self.keep_alive) >= MOST_STREAMS

    def endpoint_app(self, handler: StreamHandler) -> Asgi:
        """Return a raw application: errors become responses, and every log is released."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = StreamRequest(self, scope, receive, send)
            try:
                if self.is_full:
                    raise _TooMany
                await handler(request)
            except _REFUSED as error:
                await error_response(*_refused(error))(scope, receive, send)
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
            return (
                404,
                "quarterdeck/not-found",
                f"{message}; list the sessions, and open one of them",
            )
        case LogDamaged(public_message=reason):
            return 503, "quarterdeck/damaged", reason
        case StorageFailed(public_message=reason):
            return 503, "quarterdeck/unavailable", reason
        case _:
            message = f"there are {MOST_STREAMS} streams; close one, or follow several sessions"
            return 429, "quarterdeck/too-many", f"{message} on one with /api/stream"

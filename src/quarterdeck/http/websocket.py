"""WebSockets: one writer with a bounded outbox, and a transport for ACP.

*One writer* (`WebSocketConnection`). Everything is sent by one task. What is pushed (answers,
requests) is sent after the events that were published before it was pushed, and the host's events
after those of the sessions that they describe: a client never reads that a call ended before what
the call did. Only a source that is far behind, because its client requested old events, does not
delay the others.

*Back-pressure.* Events wait in their log and are formatted when they can be sent (`FrameSource`),
so a client that reads slowly costs nothing. Pushed frames wait here; more than `MAX_PENDING` bytes
of them close the connection with 1013. `KeepAlive` closes it when one write waits for a minute.

*ACP* (`AcpWebSocketTransport`). Each text frame is one JSON-RPC message; a `wire.Connection` has
its own outbox and its own rule for full, so the transport only converts frames to lines and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from quarterdeck.errors import ConnectionClosed
from quarterdeck.http.asgi import Receive, Send
from quarterdeck.http.keepalive import KeepAlive, LiveConnection
from quarterdeck.wire.transports.base import OnBytes

MAX_PENDING: Final = 16 << 20
"""Bytes of pushed frames that may wait for a client."""
NORMAL, GOING_AWAY, UNREADABLE, FAILED, TOO_SLOW = 1000, 1001, 1003, 1011, 1013
MISUSE: Final = 1008
"""Close codes."""
_CLOSE_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 60.0  # that a client may leave one frame unread
_NO_MESSAGE: Final = b"?\n"  # text that is no object could be read as a header
_CLIENT_LEFT: Final = "the client is gone"

OnFrame = Callable[[str | bytes], Awaitable[None]]


class FrameSource(Protocol):
    """Frames that are formatted when they can be sent."""

    @property
    def is_last(self) -> bool:
        """Whether it describes what other sources send, and so has to follow them."""

    @property
    def goal(self) -> int:
        """The position up to which there is something to send now."""

    def is_near(self, goal: int) -> bool:
        """Return whether others wait until the goal is reached."""

    async def next(self, goal: int) -> str | None:
        """Return the next frame; None if all up to the goal was sent, or cannot be."""


class WebSocketConnection:
    """An accepted WebSocket."""

    def __init__(self, keep_alive: KeepAlive, receive: Receive, send: Send) -> None:
        self._keep_alive = keep_alive
        self._receive = receive
        self._send = send
        self._connection = LiveConnection()
        self._pushed: list[str] = []
        self._pending_bytes = 0
        self._closing: tuple[int, str] | None = None
        self._due: dict[FrameSource, None] = {}
        self.has_left = False

    def due(self, source: FrameSource) -> None:
        """Send the frames of a source, when it is its turn."""
        self._due[source] = None
        self._connection.wake()

    def drop(self, source: FrameSource) -> None:
        """Send no more frames of a source."""
        self._due.pop(source, None)

    def push(self, text: str) -> None:
        """Send a frame after all events that are published by now."""
        if self.has_left:
            return
        self._pushed.append(text)
        self._pending_bytes += len(text)
        if self._pending_bytes > MAX_PENDING:
            self.close(TOO_SLOW, "too much is waiting to be read; reconnect and read faster")
        self._connection.wake()

    def close(self, code: int, reason: str) -> None:
        """Close the connection after what was pushed before."""
        if self._closing is None:
            self._closing = (code, reason)
            self._connection.wake()

    async def run(self, on_frame: OnFrame) -> None:
        """Read and write until one side closes."""
        self._keep_alive.add(self._connection)
        try:
            with self._connection.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, on_frame, tasks)
                    await self._write()
                    tasks.cancel_scope.cancel()
        except OSError:  # the client left during a write
            self.has_left = True
        finally:
            self._keep_alive.remove(self._connection)
        if not self.has_left:
            self.has_left = True
            await close_websocket(self._send, *self._closing_reason())

    async def _read(self, on_frame: OnFrame, tasks: TaskGroup) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self.has_left = True
                tasks.cancel_scope.cancel()
                return
            text = message.get("text")
            await on_frame(message["bytes"] if text is None else text)

    async def _write(self) -> None:
        while True:
            pushed, self._pushed = self._pushed, []
            has_written = await self._drain(sorted(self._due, key=_is_last))
            for text in pushed:
                await self._send_text(text)
                self._pending_bytes -= len(text)
            if self._closing is not None and not self._pushed:
                return
            if not (pushed or has_written):
                await self._connection.wait()

    async def _drain(self, sources: Sequence[FrameSource]) -> bool:
        """Send all that is near, one frame of each other source; return whether any was sent."""
        has_written = False
        goals = [(source, source.goal) for source in sources]
        for source, goal in goals:
            is_all = True
            while (frame := await source.next(goal)) is not None:
                await self._send_text(frame)
                has_written = True
                if not source.is_near(goal):
                    is_all = False
                    break
            if is_all and source.goal == goal:
                self._due.pop(source, None)
        if has_written:
            await asyncio.sleep(0)
        return has_written

    async def _send_text(self, text: str) -> None:
        connection = self._connection
        connection.stalled = 0
        await self._send({"type": "websocket.send", "text": text})
        connection.stalled = None

    def _closing_reason(self) -> tuple[int, str]:
        if self._connection.server_ends:
            return GOING_AWAY, "the hub ends; reconnect"
        if self._connection.is_stuck:
            return TOO_SLOW, "you did not read for a minute; reconnect"
        return self._closing or (NORMAL, "")


async def accept_websocket(
    receive: Receive, send: Send, headers: Sequence[tuple[bytes, bytes]] = ()
) -> bool:
    """Accept a WebSocket; return False if the client has left already."""
    if (await receive())["type"] != "websocket.connect":
        return False
    try:
        await send({"type": "websocket.accept", "headers": list(headers)})
    except OSError:
        return False
    return True


async def close_websocket(send: Send, code: int, reason: str) -> None:
    """Close a WebSocket; a client that does not read delays it by a second at most."""
    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
        try:
            await send({"type": "websocket.close", "code": code, "reason": reason})
        except (OSError, RuntimeError):
            return  # the client left by itself


def _is_last(source: FrameSource) -> bool:
    return source.is_last


class AcpWebSocketTransport:
    """A transport of `wire.Connection`: one JSON-RPC message in each text frame."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.closing: tuple[int, str] = (NORMAL, "")
        """Code and reason to close with."""
        self._receive = receive
        self._send = send
        self._has_left = False

    async def pump(self, on_bytes: OnBytes) -> None:
        while not self._has_left:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._has_left = True
                return
            text = message.get("text")
            if text is None:
                continue  # ACP's draft: "binary frames are ignored"
            hold = on_bytes(_line(text))
            if hold is not None:
                await hold.wait()

    async def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line:
                await self._send_text(line.decode())

    def send_now(self, data: bytes) -> int:
        return 0

    def detach(self) -> None:
        """Send nothing more, and leave closing to the caller."""
        self._has_left = True

    async def aclose(self) -> None:
        if not self._has_left:
            self._has_left = True
            await close_websocket(self._send, *self.closing)

    async def explain_refusal(self) -> str:
        return _CLIENT_LEFT

    async def explain_end(self) -> str:
        return _CLIENT_LEFT

    async def _send_text(self, text: str) -> None:
        if self._has_left:
            raise ConnectionClosed(_CLIENT_LEFT)
        try:
            with anyio.fail_after(_STALLED_SECONDS):
                await self._send({"type": "websocket.send", "text": text})
        except TimeoutError as error:
            self.closing = (MISUSE, "you did not read for a minute; connect again")
            await self.aclose()
            raise ConnectionClosed("the client does not read") from error
        except OSError as error:
            self._has_left = True
            raise ConnectionClosed(_CLIENT_LEFT) from error


def _line(text: str) -> bytes:
    # Outside of strings a line break is white space, and inside there can be none.
    line = text.encode("utf-8", "replace").replace(b"\n", b" ").replace(b"\r", b" ").strip()
    return line + b"\n" if line.startswith((b"{", b"[")) else _NO_MESSAGE

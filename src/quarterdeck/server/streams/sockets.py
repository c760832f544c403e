"""One WebSocket: frames in, frames out, and events of logs between them in their right place.

Everything goes out by one writer. What is pushed (answers, questions) is sent after the events
that were published before it was pushed, and the host's events after those of sessions that they
tell of: a client never hears of the end of a call before what the call did. Only a lane that is far
behind, since its client asked for old events, is not waited for. Events wait in the log, so a
client that reads slowly costs nothing; what is pushed waits here, and a client for which too much
waits is let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup
from starlette.types import Receive, Send

from quarterdeck.server.streams.pulse import Follower, Pulse

MOST_WAITING: Final = 16 << 20
"""Bytes of pushed frames that may wait for a client."""
NORMAL, GOING_AWAY, UNREADABLE, FAILED, TOO_SLOW = 1000, 1001, 1003, 1011, 1013
_CLOSE_SECONDS: Final = 1.0

OnFrame = Callable[[str | bytes], Awaitable[None]]


class Lane(Protocol):
    """Frames that are made when they can be sent."""

    @property
    def is_last(self) -> bool:
        """Whether it tells of what the others have."""

    @property
    def goal(self) -> int:
        """How far there is something to send now."""

    def is_near(self, goal: int) -> bool:
        """Whether others wait until the goal is reached."""

    async def next(self, goal: int) -> str | None:
        """Return the next frame; None if all up to the goal was sent, or cannot be."""


class Socket:
    """An accepted WebSocket."""

    def __init__(self, pulse: Pulse, receive: Receive, send: Send) -> None:
        self._pulse = pulse
        self._receive = receive
        self._send = send
        self._follower = Follower()
        self._pushed: list[str] = []
        self._waiting = 0
        self._ending: tuple[int, str] | None = None
        self._due: dict[Lane, None] = {}
        self.has_left = False

    def due(self, lane: Lane) -> None:
        """Send what a lane has, when it is its turn."""
        self._due[lane] = None
        self._follower.wake()

    def drop(self, lane: Lane) -> None:
        """Send nothing more of a lane."""
        self._due.pop(lane, None)

    def push(self, text: str) -> None:
        """Send a frame after all events that are published by now."""
        if self.has_left:
            return
        self._pushed.append(text)
        self._waiting += len(text)
        if self._waiting > MOST_WAITING:
            self.close(TOO_SLOW, "too much waits for you; connect again and read faster")
        self._follower.wake()

    def close(self, code: int, reason: str) -> None:
        """End the connection after what was pushed before."""
        if self._ending is None:
            self._ending = (code, reason)
            self._follower.wake()

    async def run(self, on_frame: OnFrame) -> None:
        """Read and write until one side ends it."""
        self._pulse.add(self._follower)
        try:
            with self._follower.scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, on_frame, tasks)
                    await self._write()
                    tasks.cancel_scope.cancel()
        except OSError:  # it went away while we were writing
            self.has_left = True
        finally:
            self._pulse.remove(self._follower)
        if not self.has_left:
            self.has_left = True
            await self._say_goodbye()

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
                await self._say(text)
                self._waiting -= len(text)
            if self._ending is not None and not self._pushed:
                return
            if not (pushed or has_written):
                await self._follower.wait()

    async def _drain(self, lanes: Sequence[Lane]) -> bool:
        """Send what is near, and one frame of what is not; say whether there was any."""
        has_written = False
        goals = [(lane, lane.goal) for lane in lanes]
        for lane, goal in goals:
            is_all = True
            while (frame := await lane.next(goal)) is not None:
                await self._say(frame)
                has_written = True
                if not lane.is_near(goal):
                    is_all = False
                    break
            if is_all and lane.goal == goal:
                self._due.pop(lane, None)
        if has_written:
            await asyncio.sleep(0)
        return has_written

    async def _say(self, text: str) -> None:
        follower = self._follower
        follower.stalled = 0
        await self._send({"type": "websocket.send", "text": text})
        follower.stalled = None

    async def _say_goodbye(self) -> None:
        code, reason = self._ending or (NORMAL, "")
        if self._follower.dropped:
            code, reason = TOO_SLOW, "you did not read for a minute; connect again"
        if self._follower.dismissed:
            code, reason = GOING_AWAY, "the hub ends; connect again"
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
            except OSError:
                return  # it has gone by itself


async def accept(receive: Receive, send: Send) -> bool:
    """Accept a WebSocket; False if it has gone already."""
    if (await receive())["type"] != "websocket.connect":
        return False
    try:
        await send({"type": "websocket.accept"})
    except OSError:
        return False
    return True


def _is_last(lane: Lane) -> bool:
    return lane.is_last

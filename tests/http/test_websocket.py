"""Frames of a WebSocket: their order, a client that does not read, and ACP's lines."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from quarterdeck.errors import ConnectionClosed
from quarterdeck.http import websocket
from quarterdeck.http.asgi import Message
from quarterdeck.http.keepalive import KeepAlive
from quarterdeck.http.websocket import (
    GOING_AWAY,
    NORMAL,
    TOO_SLOW,
    AcpWebSocketTransport,
    WebSocketConnection,
    accept_websocket,
)
from quarterdeck.wire import background_tasks

PATIENCE = 30.0


class Peer:
    """The other side of an ASGI WebSocket."""

    def __init__(self, *messages: Message) -> None:
        self.sent: list[Message] = []
        self.is_reading = True
        self._messages = list(messages)

    async def receive(self) -> Message:
        if not self._messages:
            await anyio.sleep_forever()
        return self._messages.pop(0)

    async def send(self, message: Message) -> None:
        if not self.is_reading and message["type"] == "websocket.send":
            await anyio.sleep_forever()
        self.sent.append(message)

    @property
    def texts(self) -> list[str]:
        return [each["text"] for each in self.sent if "text" in each]

    @property
    def closed_with(self) -> int | None:
        return next((each["code"] for each in self.sent if "code" in each), None)


class Numbers:
    """A source of numbered frames."""

    def __init__(self, name: str, goal: int, *, is_last: bool = False, near: int = 100) -> None:
        self.name = name
        self.goal = goal
        self.is_last = is_last
        self._near = near
        self._next = 1

    def is_near(self, goal: int) -> bool:
        return goal - self._next < self._near

    async def next(self, goal: int) -> str | None:
        if self._next > goal:
            return None
        self._next += 1
        return f"{self.name}{self._next - 1}"


async def ignored(_frame: str | bytes) -> None:
    """Do nothing with a frame."""


async def run(socket: WebSocketConnection) -> None:
    with anyio.fail_after(PATIENCE):
        await socket.run(ignored)


async def test_pushed_frames_follow_events_and_the_last_lane_follows_the_others() -> None:
    peer = Peer()
    socket = WebSocketConnection(KeepAlive(), peer.receive, peer.send)
    socket.push("answer")
    socket.due(Numbers("host", 1, is_last=True))
    socket.due(Numbers("session", 2))
    socket.close(NORMAL, "")
    await run(socket)
    assert peer.texts == ["session1", "session2", "host1", "answer"]
    assert peer.closed_with == NORMAL


async def test_a_lane_that_is_far_behind_delays_the_others_by_one_frame() -> None:
    peer = Peer()
    socket = WebSocketConnection(KeepAlive(), peer.receive, peer.send)
    socket.due(Numbers("old", 50, near=1))
    socket.push("answer")
    socket.close(NORMAL, "")
    await run(socket)
    assert peer.texts == ["old1", "answer"]


async def test_a_client_that_leaves_ends_it_without_a_close() -> None:
    peer = Peer({"type": "websocket.disconnect", "code": 1000})
    socket = WebSocketConnection(KeepAlive(), peer.receive, peer.send)
    await run(socket)
    assert (socket.has_left, peer.sent) == (True, [])


async def test_too_much_that_waits_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_PENDING", 10)
    peer = Peer()
    socket = WebSocketConnection(KeepAlive(), peer.receive, peer.send)
    socket.push("x" * 11)
    await run(socket)
    assert peer.closed_with == TOO_SLOW


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    peer = Peer()
    peer.is_reading = False
    socket = WebSocketConnection(KeepAlive(0.01, stalled_ticks=1), peer.receive, peer.send)
    socket.push("x")
    await run(socket)
    assert peer.closed_with == TOO_SLOW


async def test_the_end_of_the_server_is_the_reason_to_close() -> None:
    peer, keep_alive = Peer(), KeepAlive()
    socket = WebSocketConnection(keep_alive, peer.receive, peer.send)
    keep_alive.end()
    await run(socket)
    assert peer.closed_with == GOING_AWAY


async def test_a_client_that_left_before_is_not_accepted() -> None:
    assert not await accept_websocket(Peer({"type": "websocket.disconnect"}).receive, Peer().send)
    peer = Peer({"type": "websocket.connect"})
    assert await accept_websocket(peer.receive, peer.send, [(b"a", b"b")])
    assert peer.sent == [{"type": "websocket.accept", "headers": [(b"a", b"b")]}]


async def test_frames_become_lines_and_lines_become_frames() -> None:
    peer = Peer(
        {"type": "websocket.receive", "text": '{"a":\r\n1}'},
        {"type": "websocket.receive", "bytes": b"ignored"},
        {"type": "websocket.receive", "text": "Content-Length: 5"},
        {"type": "websocket.disconnect"},
    )
    transport = AcpWebSocketTransport(peer.receive, peer.send)
    lines: list[Any] = []
    async with background_tasks():
        await transport.send(b'{"b":2}\n{"c":3}\n')
        await transport.pump(lines.append)
    assert lines == [b'{"a":  1}\n', b"?\n"]
    assert peer.texts == ['{"b":2}', '{"c":3}']
    with pytest.raises(ConnectionClosed):
        await transport.send(b"{}\n")


@pytest.mark.parametrize("is_detached", [False, True])
async def test_a_transport_closes_with_its_reason_unless_it_is_detached(is_detached: bool) -> None:
    peer = Peer()
    transport = AcpWebSocketTransport(peer.receive, peer.send)
    transport.closing = (GOING_AWAY, "the hub ends")
    if is_detached:
        transport.detach()
    await transport.aclose()
    await transport.aclose()
    closed = {"type": "websocket.close", "code": GOING_AWAY, "reason": "the hub ends"}
    assert peer.sent == ([] if is_detached else [closed])


async def test_an_acp_client_that_does_not_read_is_closed_as_misuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quarterdeck.http.websocket._STALLED_SECONDS", 0.01)
    closed: list[Any] = []

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        if message["type"] == "websocket.close":
            closed.append(message["code"])
        else:
            await anyio.sleep_forever()

    transport = AcpWebSocketTransport(receive, send)
    with anyio.fail_after(5), pytest.raises(ConnectionClosed, match="does not read"):
        await transport.send(b"{}\n")
    assert closed == [1008]

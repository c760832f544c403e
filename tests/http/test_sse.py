"""Streams of events, and what is kept for a client: property tests against a plain list."""

import anyio
from hypothesis import given, strategies as st

from quarterdeck.errors import StorageFailed
from quarterdeck.http.asgi import Message
from quarterdeck.http.keepalive import KeepAlive
from quarterdeck.http.sse import (
    EventBuffer,
    EventStream,
    ReplayLimits,
    StreamBody,
    named_event,
    serve_events,
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 10), st.integers(1, 120))
def test_a_reader_gets_every_message_once_and_in_order_or_the_number_it_missed(
    steps: list[tuple[str, int]], messages: int, size: int
) -> None:
    buffer = EventBuffer(ReplayLimits(messages, size))
    sent: list[bytes] = []
    expected = 1  # the number the reader waits for
    for step, number in steps:
        match step:
            case "put":
                sent.append(b"x" * number)
                buffer.put(sent[-1])
                kept = sent[buffer.first - 1 :]
                assert len(kept) <= messages
                assert len(kept) == 1 or sum(map(len, kept)) <= size
            case "take":
                expected += buffer.seek(buffer.position)
                for taken, message in buffer.take():
                    assert (taken, message) == (expected, sent[expected - 1])
                    expected += 1
            case _:
                wanted = min(max(1, number), len(sent) + 1)
                expected = wanted + buffer.seek(wanted)
                assert buffer.position == expected
    assert buffer.last == len(sent)
    expected += buffer.seek(buffer.position)
    waiting = sent[expected - 1 :]
    is_behind = len(waiting) * 2 >= messages or sum(map(len, waiting)) * 2 >= size
    assert buffer.is_behind == is_behind


def test_all_that_waits_is_taken_in_batches() -> None:
    buffer = EventBuffer(ReplayLimits())
    for _ in range(10):
        buffer.put(b"x" * 30_000)
    batches = []
    while batch := buffer.take():
        batches.append(len(batch))
    assert batches == [3, 3, 3, 1]


class Peer:
    """The other side of an ASGI response."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.has_left = anyio.Event()

    async def receive(self) -> Message:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)


async def waiting(stream: EventStream) -> None:
    while True:
        await stream.wait()


async def serve(peer: Peer, keep_alive: KeepAlive, body: StreamBody) -> None:
    with anyio.fail_after(30):
        await serve_events(keep_alive, peer.receive, peer.send, body)


async def test_a_stream_ends_with_its_body() -> None:
    async def body(stream: EventStream) -> None:
        await stream.send(named_event("caught-up", {"seq": 3}, b"3"))

    peer = Peer()
    await serve(peer, KeepAlive(), body)
    assert peer.body == b'retry: 2000\n\nid: 3\nevent: caught-up\ndata: {"seq":3}\n\n'
    assert "more_body" not in peer.sent[-1]


async def test_a_quiet_stream_sends_comments() -> None:
    peer = Peer()

    async def body(stream: EventStream) -> None:
        while peer.body.count(b": still here\n\n") < 2:
            await stream.wait()

    await serve(peer, KeepAlive(0.01), body)


async def test_a_client_that_leaves_ends_its_stream() -> None:
    peer, keep_alive = Peer(), KeepAlive()
    peer.has_left.set()
    await serve(peer, keep_alive, waiting)
    assert b"dropped" not in peer.body
    assert len(keep_alive) == 0


async def test_the_end_of_the_server_is_an_event() -> None:
    peer, keep_alive = Peer(), KeepAlive()
    keep_alive.end()
    await serve(peer, keep_alive, waiting)
    assert b'event: dropped\ndata: {"code":"shutdown",' in peer.body


async def test_a_log_that_cannot_be_read_is_an_event() -> None:
    async def body(_stream: EventStream) -> None:
        raise StorageFailed("read", "disk full", "make room")

    peer = Peer()
    await serve(peer, KeepAlive(), body)
    assert b'event: dropped\ndata: {"code":"log-failed",' in peer.body
    assert b"the log cannot be read" in peer.body


async def test_a_change_of_a_buffer_wakes_its_newest_reader() -> None:
    buffer, woken = EventBuffer(ReplayLimits()), list[str]()
    buffer.set_reader(lambda: woken.append("old"))
    buffer.set_reader(lambda: woken.append("new"))
    buffer.put(b"x")
    assert woken == ["new"]

"""One contract for every transport: memory, file descriptors, the own stdio, a child process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import AgentNotFound, ConnectionClosed
from quarterdeck.wire import (
    ByteTransport,
    FdTransport,
    MemoryTransport,
    background_tasks,
    memory_pair,
    open_connection,
    open_process,
)

pytestmark = pytest.mark.anyio

ECHO = """
import os
while data := os.read(0, 65536):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
"""

# The same, but the child itself reads and writes through our transport for the own process's stdio.
ECHO_THROUGH_STDIO = """
import anyio
from quarterdeck.wire import stdio_transport
async def main():
    transport = stdio_transport()
    print("this goes to standard error")
    sender, receiver = anyio.create_memory_object_stream(1_000_000)
    async def echo():
        async for data in receiver:
            await transport.send(data)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo)
        await transport.pump(sender.send_nowait)
        sender.close()
    await transport.aclose()
anyio.run(main)
"""


class Received:
    """Collects what a transport pumps; a test waits for as many bytes as it expects."""

    def __init__(self) -> None:
        self.data = b""
        self.has_ended = False
        self._changed = anyio.Event()

    def take(self, data: bytes) -> None:
        self.data += data
        self._changed.set()

    async def pump(self, transport: ByteTransport) -> None:
        await transport.pump(self.take)
        self.has_ended = True
        self._changed.set()

    async def exactly(self, size: int) -> bytes:
        while len(self.data) < size and not self.has_ended:
            self._changed = anyio.Event()
            await self._changed.wait()
        assert len(self.data) >= size, "the transport ended early"
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    async def end(self) -> bytes:
        while not self.has_ended:
            self._changed = anyio.Event()
            await self._changed.wait()
        return self.data


@asynccontextmanager
async def pumping(transport: ByteTransport) -> AsyncIterator[Received]:
    received = Received()
    async with background_tasks() as tasks:
        tasks.start_soon(received.pump, transport)
        yield received


async def _echo(theirs: MemoryTransport) -> None:
    with suppress(ConnectionClosed):
        while data := await theirs.receive():
            await theirs.send(data)
    await theirs.aclose()


@asynccontextmanager
async def _memory() -> AsyncIterator[ByteTransport]:
    ours, theirs = memory_pair()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_echo, theirs)
        yield ours
        await ours.aclose()


def _echo_descriptors(read_fd: int, write_fd: int) -> None:
    with suppress(BrokenPipeError):
        while data := os.read(read_fd, 65536):
            view = memoryview(data)
            while view:
                view = view[os.write(write_fd, view) :]
    os.close(read_fd)
    os.close(write_fd)


@asynccontextmanager
async def _descriptors() -> AsyncIterator[ByteTransport]:
    our_read, their_write = os.pipe()
    their_read, our_write = os.pipe()
    thread = threading.Thread(target=_echo_descriptors, args=(their_read, their_write))
    thread.start()
    ours = FdTransport(our_read, our_write)
    yield ours
    await ours.aclose()
    thread.join()


def _child(script: str) -> Callable[[], AbstractAsyncContextManager[ByteTransport]]:
    return lambda: open_process([sys.executable, "-c", script], stop_seconds=10)


OPENERS: dict[str, Callable[[], AbstractAsyncContextManager[ByteTransport]]] = {
    "memory": _memory,
    "descriptors": _descriptors,
    "child process": _child(ECHO),
    "own stdio": _child(ECHO_THROUGH_STDIO),
}


@pytest.fixture(params=OPENERS)
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[ByteTransport]:
    with anyio.fail_after(60):
        async with OPENERS[request.param]() as opened:
            yield opened


async def test_bytes_arrive_in_order_and_unchanged(transport: ByteTransport) -> None:
    async with pumping(transport) as received:
        for piece in (b"a", b"\x00\xff\n\r", "✓".encode()):
            await transport.send(piece)
        assert await received.exactly(8) == b"a\x00\xff\n\r\xe2\x9c\x93"


async def test_more_than_any_buffer_holds_passes_both_ways(transport: ByteTransport) -> None:
    data = bytes(range(256)) * 20_000
    async with pumping(transport) as received, anyio.create_task_group() as tasks:
        tasks.start_soon(transport.send, data)
        assert await received.exactly(len(data)) == data


async def test_what_goes_at_once_is_counted_and_the_rest_is_left(transport: ByteTransport) -> None:
    data = bytes(range(256)) * 20_000
    async with pumping(transport) as received:
        sent = transport.send_now(data)
        assert 0 < sent < len(data)
        assert await received.exactly(sent) == data[:sent]


async def test_closing_ends_the_reader_and_refuses_the_writer(transport: ByteTransport) -> None:
    async with pumping(transport) as received:
        await anyio.wait_all_tasks_blocked()
        await transport.aclose()
        assert await received.end() == b""
    with pytest.raises(ConnectionClosed):
        await transport.send(b"x")
    with pytest.raises(ConnectionClosed):
        transport.send_now(b"x")
    async with pumping(transport) as received:
        assert await received.end() == b""


async def test_closing_twice_is_harmless(transport: ByteTransport) -> None:
    await transport.aclose()
    await transport.aclose()


async def test_a_writer_that_waits_can_be_cancelled(transport: ByteTransport) -> None:
    finished: list[bool] = []

    async def send() -> None:
        await transport.send(bytes(8 * 1024 * 1024))
        finished.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert not finished


async def test_a_waiting_reader_can_be_cancelled_and_another_continues(
    transport: ByteTransport,
) -> None:
    async with pumping(transport):
        await anyio.wait_all_tasks_blocked()
    async with pumping(transport) as received:
        await transport.send(b"still usable")
        assert await received.exactly(12) == b"still usable"


async def test_nothing_is_read_while_the_reader_holds(transport: ByteTransport) -> None:
    pieces: list[bytes] = []
    release = anyio.Event()

    def take(data: bytes) -> anyio.Event | None:
        pieces.append(data)
        return release if len(pieces) == 1 else None

    async with background_tasks() as tasks:
        tasks.start_soon(transport.pump, take)
        await transport.send(b"a")
        while not pieces:
            await anyio.lowlevel.checkpoint()
        await transport.send(b"b")
        await anyio.wait_all_tasks_blocked()
        assert pieces == [b"a"]
        release.set()
        while len(pieces) < 2:
            await anyio.lowlevel.checkpoint()
    assert pieces == [b"a", b"b"]


async def test_an_exception_of_the_reader_reaches_its_task(transport: ByteTransport) -> None:
    def fail(_data: bytes) -> None:
        raise ZeroDivisionError

    await transport.send(b"x")
    with pytest.raises(ZeroDivisionError):
        await transport.pump(fail)


@pytest.mark.parametrize("source", ["a regular file", "/dev/null"])
async def test_what_the_event_loop_cannot_watch_is_read_and_written_all_the_same(
    tmp_path: Path, source: str
) -> None:
    path = tmp_path / "in" if source == "a regular file" else Path(source)
    if path.parent == tmp_path:
        path.write_bytes(b"{}\n" * 3)
    target = tmp_path / "out"
    transport = FdTransport(os.open(path, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT))
    async with pumping(transport) as received:
        assert await received.end() in (b"{}\n" * 3, b"")
    assert transport.send_now(b"x") == 0
    await transport.send(b"done")
    await transport.aclose()
    assert target.read_bytes() == b"done"


async def test_a_pair_of_terminals_is_not_made_non_blocking() -> None:
    leader, follower = os.openpty()
    try:
        transport = FdTransport(os.dup(follower), os.dup(follower))
        assert os.get_blocking(follower)
        async with pumping(transport) as received:
            os.write(leader, b"{}\n")
            assert (await received.exactly(3)).strip() == b"{}"
        await transport.send(b"x" * 100)
        await transport.aclose()
    finally:
        os.close(leader)
        os.close(follower)


async def test_the_last_reader_is_missed_before_anything_is_written() -> None:
    reading, writing = os.pipe()
    transport = FdTransport(os.open(os.devnull, os.O_RDONLY), writing)
    async with background_tasks() as tasks:
        noticed = anyio.Event()

        async def wait() -> None:
            await transport.wait_unread()
            noticed.set()

        tasks.start_soon(wait)
        await transport.send(b"read by nobody yet")
        assert not noticed.is_set()
        os.close(reading)
        with anyio.fail_after(30):
            await noticed.wait()
    await transport.aclose()


async def test_a_child_whose_input_is_closed_can_still_be_read() -> None:
    async with (
        open_process([sys.executable, "-c", ECHO]) as child,
        pumping(child) as received,
    ):
        await child.send(b"last words")
        child.close_input()
        with pytest.raises(ConnectionClosed):
            child.send_now(b"too late")
        assert await received.end() == b"last words"


async def test_print_of_a_process_that_speaks_on_stdio_goes_to_standard_error() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", ECHO_THROUGH_STDIO]
    async with open_process(command, on_stderr=lines.append) as child, pumping(child) as received:
        await child.send(b"hello")
        assert await received.exactly(5) == b"hello"
    assert lines == ["this goes to standard error"]


async def test_a_child_that_exits_is_explained_with_status_and_last_words() -> None:
    script = "import sys; print('bad key', file=sys.stderr); sys.exit(3)"
    async with open_process([sys.executable, "-c", script]) as child, pumping(child) as received:
        assert await received.end() == b""
        reason = await child.explain_end()
    assert reason.endswith("exited with status 3; its last words: bad key")


KILLED_LATER = """
import os, signal, sys
print("error: no update server", file=sys.stderr, flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("is_recent", [True, False])
async def test_a_signal_is_explained_only_by_what_was_written_just_before(
    name: str, monkeypatch: pytest.MonkeyPatch, *, is_recent: bool
) -> None:
    if not is_recent:
        monkeypatch.setattr("quarterdeck.wire.transports.process.RECENT_SECONDS", 0)
    written = anyio.Event()
    command = [sys.executable, "-c", KILLED_LATER, name]
    async with (
        open_process(command, on_stderr=lambda _: written.set()) as child,
        pumping(child) as received,
    ):
        with anyio.fail_after(5):
            await written.wait()
        await child.send(b"x")
        await received.end()
        reason = await child.explain_end()
    words = "; its last words: error: no update server" if is_recent else ""
    assert reason.endswith(f"was ended by {name}{words}")


async def test_last_words_have_no_colours() -> None:
    script = "import sys; print('\\x1b[31mERROR\\x1b[0m bad \\x1b[1mkey', file=sys.stderr)"
    async with open_process([sys.executable, "-c", script]) as child, pumping(child) as received:
        assert await received.end() == b""
        reason = await child.explain_end()
    assert reason.endswith("its last words: ERROR bad key")


async def test_a_child_that_fails_at_its_start_is_explained_to_the_first_caller() -> None:
    command = ["sh", "-c", "echo 'bad api key' >&2; exit 3"]
    for _ in range(5):
        async with open_process(command) as child, open_connection(child) as connection:
            with pytest.raises(ConnectionClosed, match="status 3; its last words: bad api key"):
                await connection.call("initialize")


async def test_a_child_that_ignores_its_input_and_sigterm_is_killed_with_its_group(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "pid"
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1000)\n"
    )
    with anyio.fail_after(60):
        command = [sys.executable, "-c", script]
        async with open_process(command, stop_seconds=0.1) as child, pumping(child) as received:
            assert await received.exactly(6) == b"ready\n"
            grandchild = int(pid_file.read_text())
        assert child.exit_status == -9
        while _is_alive(grandchild):  # noqa: ASYNC110 - the kernel sends no event for it
            await anyio.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.parametrize("command", [["no-such-program-anywhere"], ["/"], []])
async def test_a_command_that_cannot_be_started_is_named_and_leaves_nothing_open(
    command: list[str],
) -> None:
    before = open_descriptors()
    with pytest.raises(AgentNotFound, match="install it, or add its folder to PATH"):
        async with open_process(command):
            pass
    assert open_descriptors() == before


def open_descriptors() -> list[int]:
    def is_open(fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True

    return [fd for fd in range(200) if is_open(fd)]
